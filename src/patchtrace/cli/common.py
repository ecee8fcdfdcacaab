"""What the commands share: progress, tables, and reports of images that could not be read."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import click
from tqdm import tqdm

from patchtrace.attribution import Attribution, TableFormat
from patchtrace.drawing.parts import percent
from patchtrace.drawing.sheet import contact_sheet
from patchtrace.files import replacing
from patchtrace.images import ImageSet, Skipped
from patchtrace.nda_details import ShortlistFacts
from patchtrace.progress import Watch

#: Done, but some images could not be read.
UNREADABLE = 3


class Bar(Watch):
    """A progress bar that shows remarks, and each result as soon as it is known, if ``show`` is set."""

    KNOWN = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}, {remaining} left{postfix}"
    UNKNOWN = "{desc}: {n_fmt} so far, {elapsed}"

    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._bar = bar
        self.show: Callable[[Any], None] | None = None
        self.shown = 0

    def __call__(self, done: int, total: int) -> None:
        self._bar.total = total or None
        self._bar.bar_format = self.KNOWN if total else self.UNKNOWN
        self._bar.update(done - self._bar.n)

    def remark(self, text: str) -> None:
        self._bar.set_postfix_str(text)

    def finished(self, result: Any) -> None:
        """Print the result above the bar. A closed pipe does not stop the work."""
        if self.show is None:
            return
        self._bar.clear()
        try:
            self.show(result)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        self._bar.refresh()
        self.shown += 1


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Bar]:
    """A bar with the time left on stderr; none where stderr is not a terminal."""
    with tqdm(desc=label, total=1, disable=quiet or None, leave=False, bar_format=Bar.KNOWN) as bar:
        yield Bar(bar)


def printable(text: str) -> str:
    """A name with everything escaped that a terminal must not get: file names can contain escape sequences.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def print_table(result: Attribution, top: int) -> None:
    """Print the top images of each query: rank, share, standard error, chance, id."""
    rows = zip(result.query_ids, result.top(top), result.effective_sources(), strict=True)
    for query, (name, hits, sources) in enumerate(rows):
        click.echo(f"{printable(name)}  ({len(result.train_ids)} images, {sources:.1f} effective sources)")
        details = result.nda
        known = details is not None and details.chances is not None
        listed = details.top if details else 0
        click.echo(f"  rank     share{f'         ±  in top {listed}' if known else ''}  id")
        for rank, hit in enumerate(hits, start=1):
            sure = ""
            if hit.error is not None and hit.chance is not None:
                sure = f"  {percent(hit.error):>8}  {f'{100 * hit.chance:.0f} %':>{len(f'in top {listed}')}}"
            click.echo(f"  {rank:4d}  {percent(hit.share):>8}{sure}  {printable(hit.id)}")
        if known:
            click.echo(f"  {result.settled(query)}")
        if details and details.shortlist:
            click.echo(f"  {_approximate(details.shortlist)}")


def _approximate(facts: ShortlistFacts) -> str:
    """How an approximate result was made, and the measured recall of such results."""
    words = f"approximate: a coarse pass chose {facts.images:,} of the {facts.of:,} images"
    if facts.recall is None:
        return f"{words}; the recall of so short a list was not measured"
    part, ten, hundred = (100 * value for value in facts.recall)
    return (
        f"{words};\n  in benchmarks, a list of {part:g} % of the images had "
        f"{ten:.0f} % of the best 10 and {hundred:.0f} % of the best 100"
    )


def write_run(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    output: Path,
    table: TableFormat = "csv",
    **for_the_sheet: Any,
) -> Path | None:
    """Everything about the run, in place of an older one; returns the list of unreadable images, if there is one."""
    result.save(output)
    ranking, recipe = output / f"ranking.{table}", output / "recipe.toml"
    result.export(ranking)
    with replacing(output / "sheet.png") as temporary:
        contact_sheet(result, queries, train, **for_the_sheet).save(temporary, format="PNG")
    stale = {*(output / f"ranking.{kind}" for kind in get_args(TableFormat)), recipe} - {ranking}
    if result.nda:
        with replacing(recipe) as temporary:
            temporary.write_text(result.nda.recipe.to_toml(), encoding="utf-8")
        stale.remove(recipe)
    # files that only the older run had are deleted last, so that nothing is lost if something fails before
    listed = list_skipped(result.skipped, output / "skipped.csv")
    for path in stale:
        path.unlink(missing_ok=True)
    return listed


def list_skipped(skipped: tuple[Skipped, ...], path: Path) -> Path | None:
    """Write which images could not be read, and why, in place of an older list; returns the path if there are any."""
    if not skipped:
        path.unlink(missing_ok=True)
        return None
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("of", "id", "reason"), *((item.of, item.id, item.reason) for item in skipped)])
    return path


def note(*lines: str, quiet: bool = False) -> None:
    """Print lines on stderr, unless only results are wanted."""
    for line in () if quiet else lines:
        click.echo(printable(line), err=True)


def echo_lines(text: str) -> None:
    """Print a table that may contain names from outside."""
    for line in text.splitlines():
        click.echo(printable(line))


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
