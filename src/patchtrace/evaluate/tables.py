"""Plain tables: aligned on a terminal, and as CSV."""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing


def text_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns side by side; those that hold numbers only stand at the right.

    None is an empty cell. Numbers are written as they are; give text for fewer digits.

    >>> print(text_table(["method", "LDS %", "interval"], [["nda", "22.5", "20.1 to 24.9"], ["pixel", "9.0", None]]))
    method  LDS %  interval
    nda      22.5  20.1 to 24.9
    pixel     9.0
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    for row in cells:
        _check(header, row)
    padded = []
    for column in zip(header, *cells, strict=True):
        width, filled = max(map(text_width, column)), [cell for cell in column[1:] if cell]
        at_right = bool(filled) and all(map(_is_number, filled))
        blanks = [" " * (width - text_width(cell)) for cell in column]
        padded.append(
            [f"{blank}{cell}" if at_right else f"{cell}{blank}" for blank, cell in zip(blanks, column, strict=True)]
        )
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


def write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    """Write a table as CSV, in place of an older one. None is an empty cell; numbers keep all their digits."""
    path = Path(path)
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for row in rows:
            _check(header, row)
            writer.writerow(row)
    return path


def _check(header: Sequence[str], row: Sequence[object]) -> None:
    if len(row) != len(header):
        raise PatchtraceError(f"a row has {len(row)} cells, and the table {len(header)} columns: {list(row)!r}")


def _is_number(cell: str) -> bool:
    try:
        float(cell.lstrip("<").removesuffix("%"))
    except ValueError:
        return False
    return True


def text_width(cell: str) -> int:
    """Columns of a terminal that a text takes: two for a wide letter, none for an accent that sits on another."""
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in cell
    )
