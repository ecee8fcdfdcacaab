"""Writing files so that a reader sees either the old one or the new one, never half of one."""

from __future__ import annotations

import csv
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patchtrace.errors import PatchtraceError

#: What makes a spreadsheet compute a cell, and what is written before it instead.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary place beside ``path`` to write to; it takes the name ``path`` when the block ends well.

    The content reaches the disk before the name does, so that a crash leaves no half-written file under that name.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    temporary.touch(exist_ok=False)  # not by tempfile, which makes files that only their owner can read
    try:
        yield temporary
        with temporary.open("rb+") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
        _sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text, in place of an older file."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write plain data as JSON, in place of an older file."""
    write_text(path, json.dumps(content, indent=1))


def write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a table as CSV, in place of an older one. None is an empty cell; numbers keep all their digits.

    Text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    path = Path(path)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for row in rows:
            check_row(header, row)
            writer.writerow([no_formula(cell) if isinstance(cell, str) else cell for cell in row])
    return path


def no_formula(text: str) -> str:
    """Text with an apostrophe before it if a spreadsheet would compute it; also before an apostrophe, as a mark.

    >>> no_formula("=1+1.png"), no_formula("'a"), no_formula("a=b.png")
    ("'=1+1.png", "''a", 'a=b.png')
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def check_row(header: Sequence[str], row: Sequence[object]) -> None:
    """Refuse a row that has not one cell for each column of its table."""
    if len(row) != len(header):
        raise PatchtraceError(f"a row has {len(row)} cells, and the table {len(header)} columns: {list(row)!r}")


def _sync_directory(directory: Path) -> None:
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
