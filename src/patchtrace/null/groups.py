"""Images by artist, class or source: labels, and shares added up."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.checks import brief
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet

#: What an image without a group is called, and the group of all decoys.
NONE, DECOYS = "(none)", "(decoys)"


class Group(NamedTuple):
    """The images of a group for one query, or over all of them.

    ``share`` is the sum of theirs, ``error`` its standard error as if their errors were independent, ``by_number``
    what they would have if all images had the same, ``p`` how often the largest z of a control within the group is as
    large; None where it is not known.
    """

    name: str
    images: int
    share: float
    by_number: float
    error: float | None = None
    p: float | None = None


def labels_of(ids: Sequence[str], by: str) -> tuple[str, ...]:
    r"""The group of each image.

    Parameters
    ----------
    ids : sequence of str
        Names of the images.
    by : str
        ``folder``: the folder of each image; ``csv:FILE``, a table with the columns id and group; anything else is a
        regular expression, of which the first group counts, or what it matches.

    >>> labels_of(["ann/1.png", "bob/x/2.png", "3.png"], "folder")
    ('ann', 'bob/x', '(none)')
    >>> labels_of(["ann_1.png", "bob_2.png", "3.png"], r"([a-z]+)_")
    ('ann', 'bob', '(none)')
    """
    if by == "folder":
        parents = (PurePosixPath(name).parent.as_posix() for name in ids)
        return tuple(NONE if parent in (".", "") else parent for parent in parents)
    if by.startswith("csv:"):
        known = _table(Path(by.removeprefix("csv:")))
        return tuple(known.get(name, NONE) for name in ids)
    try:
        pattern = re.compile(by)
    except (re.error, OverflowError, RecursionError) as error:
        raise PatchtraceError(
            f"{brief(by)} is not a way to group: use folder, csv:FILE or a pattern ({error})"
        ) from error
    found = (pattern.search(name) for name in ids)
    return tuple(NONE if one is None else (one[1] if pattern.groups else one[0]) or NONE for one in found)


def labels_of_set(train: ImageSet, by: str | None) -> tuple[str, ...]:
    """The group of each image of a set, with one for its decoys; empty if none was asked for."""
    return (*labels_of(train.collection.ids, by), *(DECOYS,) * train.decoys) if by else ()


def numbered(labels: Sequence[str]) -> tuple[list[str], NDArray[np.intp]]:
    """The groups in order, and the number of each image's group.

    Not by an array of text, in which every label takes as much memory as the longest.

    >>> numbered(["b", "a", "b"])[0], numbered(["b", "a", "b"])[1].tolist()
    (['a', 'b'], [1, 0, 1])
    """
    names = sorted(set(labels))
    numbers = {name: number for number, name in enumerate(names)}
    return names, np.array([numbers[label] for label in labels], dtype=np.intp)


def groups_of(result: Attribution, labels: Sequence[str], query: int | None = None) -> list[Group]:
    """The groups of a query, largest share first; without a query, the mean over all of them.

    >>> shares = np.float32([[0.3, 0.1, 0.4]])
    >>> result = Attribution(10 * shares, shares, ("q",), ("a/1", "a/2", "b/1"), "nda")
    >>> [(group.name, group.images, round(group.share, 3)) for group in groups_of(result, ["a", "a", "b"], 0)]
    [('a', 2, 0.4), ('b', 1, 0.4)]
    """
    names, which = numbered(labels)
    rows = slice(None) if query is None else slice(query, query + 1)
    shares = result.shares[rows].astype(np.float64).mean(axis=0)
    counts = np.bincount(which, minlength=len(names))
    sums = np.bincount(which, shares, minlength=len(names))
    errors = _errors(result, which, rows)
    found = []
    for number, name in enumerate(names):
        p = None
        if result.null is not None and query is not None and name in result.null.groups:
            p = result.null.groups[name][query]
        part, error = counts[number] / len(which), None if errors is None else float(errors[number])
        found.append(Group(name, int(counts[number]), float(sums[number]), float(part), error, p))
    return sorted(found, key=lambda group: -group.share)


def _errors(result: Attribution, which: NDArray[np.intp], rows: slice) -> NDArray[np.float64] | None:
    if result.nda is None or result.nda.errors is None or not np.isfinite(result.nda.errors[rows]).all():
        return None
    squares = result.nda.errors[rows].astype(np.float64) ** 2
    return np.sqrt(np.bincount(which, squares.sum(axis=0))) / len(squares)


def _table(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:  # spreadsheets write a byte order mark
            rows = csv.DictReader(stream)
            if not {"id", "group"} <= set(rows.fieldnames or ()):
                held = ", ".join(map(brief, (rows.fieldnames or ())[:10]))
                raise PatchtraceError(f"cannot read groups from {path}: use columns id and group, not {held or 'none'}")
            for row in rows:
                name, group = row["id"], row["group"]
                if name is None or group is None:
                    raise PatchtraceError(f"{path} has a row without a group, that of {brief(name)}: give it one")
                if found.setdefault(name, group) != group:
                    both = f"{brief(found[name])} and {brief(group)}"
                    raise PatchtraceError(f"{path} has two groups for {brief(name)}: {both}")
    except (OSError, UnicodeError, csv.Error) as error:
        raise PatchtraceError(f"cannot read groups from {path}: {error}; use columns id and group") from error
    return found
