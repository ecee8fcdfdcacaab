"""What the commands share: progress, tables, and saying what could not be read."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from tqdm import tqdm

from patchtrace.attribution import Attribution
from patchtrace.files import replacing
from patchtrace.images import Progress, Skipped
from patchtrace.sheet import percent

#: Done, but some images could not be read.
UNREADABLE = 3


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Progress]:
    """A bar with the time left on stderr; none where stderr is not a terminal."""
    form = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}, {remaining} left"
    with tqdm(desc=label, total=1, disable=quiet or None, leave=False, bar_format=form) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total or None
            bar.update(done - bar.n)

        yield progress


def printable(text: str) -> str:
    """A name as it can be shown on a terminal: a file may be called anything, escape sequences included.

    >>> printable("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def print_table(result: Attribution, top: int) -> None:
    """The top images of each query: rank, share, id."""
    for query, hits, sources in zip(result.query_ids, result.top(top), result.effective_sources(), strict=True):
        click.echo(f"{printable(query)}  ({len(result.train_ids)} images, {sources:.1f} effective sources)")
        click.echo("  rank     share  id")
        for rank, hit in enumerate(hits, start=1):
            click.echo(f"  {rank:4d}  {percent(hit.share):>8}  {printable(hit.id)}")


def write_skipped(skipped: tuple[Skipped, ...], path: Path) -> None:
    """The images that could not be read, with their reasons, as CSV."""
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(("id", "reason"))
        writer.writerows((item.id, item.reason) for item in skipped)


def say_skipped(skipped: tuple[Skipped, ...], listed: Path | None) -> None:
    """Tell how many images could not be read, and which: in the file if there is one, else here."""
    where = f"; listed in {listed}" if listed else ":"
    click.echo(f"{len(skipped)} images could not be read{where}", err=True)
    if listed is None:
        for item in skipped[:20]:
            click.echo(f"  {printable(item.id)}: {printable(item.reason)}", err=True)
        if len(skipped) > 20:
            click.echo(f"  and {len(skipped) - 20} more; -o DIR lists them all", err=True)
