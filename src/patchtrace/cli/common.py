"""What the commands share: progress, tables, and reports of images that could not be read."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
import numpy as np
from tqdm import tqdm

from patchtrace.attribution import Attribution, Hit, TableFormat
from patchtrace.cli.helptext import colour
from patchtrace.cli.kinds import DEFAULT_ROWS
from patchtrace.display import printable as printable
from patchtrace.drawing.parts import percent
from patchtrace.drawing.sheet import contact_sheet
from patchtrace.files import write_csv, write_text
from patchtrace.images import ImageSet, Skipped
from patchtrace.images.write import write_picture
from patchtrace.progress import Watch

#: Done, but some images could not be read.
UNREADABLE = 3
#: Between two signs of life where there is no terminal.
SECONDS_BETWEEN_LINES = 15


class Bar(Watch):
    """A progress bar that shows remarks, and each result as soon as it is known, if ``table`` is set.

    Where stderr is not a terminal, a line now and then takes the place of the bar. What is known of a query so far is
    shown on a terminal, and drawn again in its place; other programs that read the output get the end only, unless
    ``stream`` is set.
    """

    KNOWN = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}, {remaining} left{postfix}"
    UNKNOWN = "{desc}: {n_fmt} so far, {elapsed}"

    def __init__(self, bar: Any, quiet: bool) -> None:
        super().__init__()
        self._bar, self._quiet, self._drawn = bar, quiet, 0
        self._reported = self._begin = time.monotonic()
        #: The lines that show a result.
        self.table: Callable[[Any], list[str]] | None = None
        self.stream = False
        self.shown = 0
        self.latest: Any = None

    def __call__(self, done: int, total: int) -> None:
        self._bar.total = total or None
        self._bar.bar_format = self.KNOWN if total else self.UNKNOWN
        self._bar.update(done - self._bar.n)
        now = time.monotonic()
        if self._bar.disable and not self._quiet and now - self._reported > SECONDS_BETWEEN_LINES:
            self._reported = now
            part = f"{100 * done / total:.0f} %" if total else f"{done} so far"
            note(f"{self._bar.desc}: {part} after {now - self._begin:.0f} s")

    def remark(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def note(self, text: str) -> None:
        self._bar.clear()
        self._erase()
        note(text, quiet=self._quiet)
        self._bar.refresh()

    def provisional(self, result: Any) -> None:
        self.latest = result
        if self.table is None:
            return
        lines = self.table(result)
        if self.stream:
            self._print(lines)
        elif sys.stdout.isatty() and not self._quiet:
            width, height = shutil.get_terminal_size()
            if len(lines) + 2 < height:  # what has left the screen cannot be drawn again
                self._print([line[: width - 1] for line in lines])
                self._drawn = len(lines)

    def finished(self, result: Any) -> None:
        """Print the result above the bar."""
        self.latest = None
        if self.table is not None:
            self._print(self.table(result))
            self.shown += 1

    def interrupted(self) -> bool:
        """Print what is known so far of a query that was not finished; returns whether there is anything."""
        if self.latest is None or self.table is None or self.stream:
            return False
        self._print(self.table(self.latest))
        return True

    def _erase(self) -> None:
        """Go back to where the last provisional table began."""
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}A\x1b[J")
            sys.stdout.flush()
            self._drawn = 0

    def _print(self, lines: list[str]) -> None:
        """Print lines above the bar. A closed pipe does not stop the work."""
        self._bar.clear()
        try:
            self._erase()
            sys.stdout.write("".join(f"{line}\n" for line in lines))
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._bar.refresh()


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Bar]:
    """A bar with the time left on stderr; lines now and then where stderr is not a terminal."""
    with tqdm(desc=label, total=1, disable=quiet or None, leave=False, bar_format=Bar.KNOWN) as bar:
        bar.desc = label  # a bar that is not shown has none
        yield Bar(bar, quiet)


def table(result: Attribution, top: int) -> list[str]:
    """The top images of each query as lines: rank, share, standard error, chance, z, fdr, id; and what they mean.

    Methods that do not share a query out among images have scores instead.
    """
    lines, details, null = [], result.nda, result.null
    listed = f"in top {details.top}" if details and details.chances is not None else ""
    rows = zip(result.query_ids, result.top(top), result.effective_sources(), strict=True)
    for query, (name, hits, sources) in enumerate(rows):
        spread = f", {sources:.1f} effective sources" if result.has_shares else ""
        lines.append(f"{name}  ({len(result.train_ids) - result.decoys} images{spread})")
        heading = f"{'share' if result.has_shares else 'score':>10}"
        nobody = result.nobody(query)
        more = f"{'       z' if null else ''}{'     fdr' if nobody else ''}"
        lines.append(f"  rank{heading}{f'         ±  {listed}' if listed else ''}{more}  id")
        for hit, (rank, tied) in zip(hits, result.ranks(query, top), strict=True):
            sure = ""
            if hit.error is not None and hit.chance is not None:
                sure = f"  {percent(hit.error):>8}  {f'{100 * hit.chance:.0f} %':>{len(listed)}}"
            if null is not None:
                sure += f"  {hit.z:>5.1f}{'*' if null.stands_out(query, hit.index) else ' '}"
            if hit.fdr is not None:
                sure += f"  {f'{100 * hit.fdr:.0f} %':>6}"
            value = percent(hit.share) if result.has_shares else f"{hit.score:.4g}"
            lines.append(f"  {rank:4d}{'=' if tied else ' '} {value:>8}{sure}  {hit.id}")
        if null is not None:
            lines += [f"  {line}" for line in evidence_lines(result, query, hits)]
        if nobody is not None:
            lines += [f"  {line}" for line in nobody.sentences(len(hits))]
        lines += [f"  {line}" for line in result.remarks(query)]
    return [printable(line) for line in lines]  # a saved result may come from anywhere, with its sentences


def evidence_lines(result: Attribution, query: int, hits: Sequence[Hit]) -> list[str]:
    """How unusual a query is, and which of the images that are shown are."""
    null = result.null
    assert null is not None
    marked = sum(null.stands_out(query, hit.index) for hit in hits)
    lines = [null.sentence(query), *filter(None, [null.ratio_sentence(query)])]
    if marked:
        lines.append(f"*: {marked} of these {len(hits)} images stand out by their own z at {100 * null.rate:g} %")
    best = null.best(query)
    if null.stands_out(query, best) and best not in [hit.index for hit in hits]:
        rank = int(np.flatnonzero(result.ranking(query) == best)[0]) + 1
        lines.append(f"largest z: {null.z[query, best]:.1f}, {result.train_ids[best]}, at rank {rank}")
    return lines + ([null.remark] if null.remark else [])


def print_table(result: Attribution, top: int) -> None:
    """Print the :func:`table` of a result."""
    click.echo("\n".join(table(result, top)))


def write_run(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    output: Path,
    table: TableFormat = "csv",
    *,
    rows: int | None = DEFAULT_ROWS,
    **for_the_sheet: Any,
) -> Path | None:
    """Everything about the run, in place of an older one; returns the list of unreadable images, if there is one.

    The ranking lists so many images of each query; None: all.
    """
    result.save(output)
    ranking, recipe = output / f"ranking.{table}", output / "recipe.toml"
    result.export(ranking, top=rows)
    write_picture(output / "sheet.png", contact_sheet(result, queries, train, **for_the_sheet))
    stale = {*(output / f"ranking.{kind}" for kind in get_args(TableFormat)), recipe} - {ranking}
    if result.nda:
        write_text(recipe, result.nda.recipe.to_toml())
        stale.remove(recipe)
    # files that only the older run had are deleted last, so that nothing is lost if something fails before
    listed = list_skipped(result.skipped, output / "skipped.csv")
    for path in stale:
        path.unlink(missing_ok=True)
    return listed


def note_rows(result: Attribution, output: Path, rows: int | None, *, quiet: bool) -> None:
    """Say so where the ranking on disk does not list all images."""
    images = len(result.train_ids) - result.decoys
    if rows is not None and rows < images:
        note(
            f"the ranking in {output} lists {rows:,} of {images:,} images for each query: --rows all lists all",
            quiet=quiet,
        )


def list_skipped(skipped: tuple[Skipped, ...], path: Path) -> Path | None:
    """Write which images could not be read, and why, in place of an older list; returns the path if there are any."""
    if not skipped:
        path.unlink(missing_ok=True)
        return None
    return write_csv(path, ("of", "id", "reason"), [(item.of, item.id, item.reason) for item in skipped])


def note(*lines: str, quiet: bool = False, mark: str = "") -> None:
    """Print lines on stderr, unless only results are wanted; ``mark`` is a word such as error:, in bold."""
    shown = f"{click.style(mark, bold=True)} " if mark else ""
    for line in () if quiet else lines:
        click.echo(f"{shown}{printable(line)}", err=True, color=colour())


def echo_lines(text: str) -> None:
    """Print a table that may contain names from outside."""
    for line in text.splitlines():
        click.echo(printable(line))


def echo_json(value: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(value, indent=1))


def ended(
    written: Path | None, skipped: tuple[Skipped, ...], listed: Path | None = None, *, quiet: bool = False
) -> int:
    """Report where results are and how many images could not be read, and which unless a file lists them.

    Returns the exit code.
    """
    if written is not None:
        note(f"written to {written}", quiet=quiet)
    if not skipped:
        return 0
    where = f"; listed in {listed}" if listed else ":"
    note(f"{len(skipped)} image{'s' * (len(skipped) > 1)} could not be read{where}")
    if listed is None:
        note(*(f"  {item.id}: {item.reason}" for item in skipped[:20]))
        if len(skipped) > 20:
            note(f"  and {len(skipped) - 20} more; -o DIR lists them all")
    return UNREADABLE
