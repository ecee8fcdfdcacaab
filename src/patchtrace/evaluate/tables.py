"""Plain tables, aligned on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from patchtrace.files import check_row


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
        check_row(header, row)
    padded = []
    for column in zip(header, *cells, strict=True):
        width, filled = max(map(text_width, column)), [cell for cell in column[1:] if cell]
        at_right = bool(filled) and all(map(_is_number, filled))
        blanks = [" " * (width - text_width(cell)) for cell in column]
        padded.append(
            [f"{blank}{cell}" if at_right else f"{cell}{blank}" for blank, cell in zip(blanks, column, strict=True)]
        )
    return "\n".join("  ".join(line).rstrip() for line in zip(*padded, strict=True))


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
