"""Scores of any method as a plain file: how others judge their own method beside those of patchtrace.

A file is an array (``.npy``, or ``scores`` in an ``.npz``) or a table (``.csv``, ``.parquet``), with a row for each
query and a column for each image. A table may name its rows and columns, and may also be long: a row for each pair, as
:meth:`patchtrace.Attribution.export` writes it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.array_files import SINGLE, header_of, read_arrays
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.scoring import MethodScores
from patchtrace.evaluate.truth import GroundTruth, as_scores

#: Suffixes that are read.
SUFFIXES = (".npy", ".npz", ".csv", ".parquet")
#: Arrays of an .npz that name columns and rows.
IDS = ("train_ids", "query_ids")
#: Columns of a long table: the query and the score, and one that names the image.
LONG, NAMES = ("query", "score"), ("id", "index")

#: Bytes of a name, four for each letter.
LONGEST_NAME = 1 << 14

#: Queries and images of the truth.
Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Found:
    """What a file holds: scores, names of rows and columns where it has them, and facts."""

    scores: NDArray[Any]
    query_ids: tuple[str, ...] | None = None
    train_ids: tuple[str, ...] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def read_scores(path: str | Path, truth: GroundTruth, name: str | None = None) -> MethodScores:
    """Read the scores of a method from a file, and check that they are about the images and queries of a truth.

    Parameters
    ----------
    path : path
        A ``.npy`` with an array (queries, images), an ``.npz`` with such an array ``scores`` and perhaps ``query_ids``,
        ``train_ids`` and ``facts``, or a ``.csv`` or ``.parquet`` with a row for each query and a column for each image
        or with columns ``query``, ``id`` or ``index``, and ``score``.
    truth : GroundTruth
        What the scores will be judged by. Rows and columns are in its order, unless the file names them.
    name : str, optional
        What tables call the method; by default the name of the file.

    Returns
    -------
    MethodScores

    Raises
    ------
    PatchtraceError
        If the file cannot be read, has another shape, other names, or numbers that are not finite.

    Examples
    --------
    >>> import tempfile
    >>> from patchtrace.evaluate import make_subsets
    >>> truth = GroundTruth(make_subsets(4, 3), np.ones((3, 2)), tuple("abcd"), ("p", "q"))
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     path = Path(directory) / "mine.npy"
    ...     np.save(path, np.arange(8.0).reshape(2, 4))
    ...     read_scores(path, truth).variants[""].shape
    (2, 4)
    """
    path = Path(path)
    label, shape = name or path.stem, (len(truth.query_ids), len(truth.train_ids))
    try:
        found = _reader(path)(path, truth)
        _check_shape(found.scores.shape, shape)
        found = _in_order(found, truth)
        truth.check_ids(found.train_ids or truth.train_ids, found.query_ids or truth.query_ids, found.facts)
        scores = as_scores(found.scores, shape).astype(np.float64)
    except PatchtraceError as error:
        raise PatchtraceError(f"the scores in {str(path)!r}: {error}") from error
    settings, requires = found.facts.get("settings", {}), found.facts.get("requires", "")
    return MethodScores(label, {"": scores}, settings if isinstance(settings, dict) else {}, str(requires))


def images_in(path: str | Path) -> int | None:
    """The number of images that an array in a file is about; None where only the truth can tell."""
    path = Path(path)
    if path.suffix not in (".npy", ".npz"):
        return None
    shape = _shape_in(path)
    return shape[1] if len(shape) == 2 else None


def _reader(path: Path) -> Callable[[Path, GroundTruth], _Found]:
    readers = dict(zip(SUFFIXES, (_npy, _npz, _csv, _parquet), strict=True))
    if path.suffix not in readers:
        raise PatchtraceError(f"files of type {path.suffix or 'none'} are not read: use {', '.join(SUFFIXES)}")
    return readers[path.suffix]


def _in_order(found: _Found, truth: GroundTruth) -> _Found:
    """The same with rows and columns in the order of the truth, if they have its names in another one."""
    scores, names = found.scores, list[tuple[str, ...] | None]()
    for axis, (ids, own) in enumerate(((found.query_ids, truth.query_ids), (found.train_ids, truth.train_ids))):
        if ids is not None and ids != own and sorted(ids) == sorted(own):
            places = {name: place for place, name in enumerate(ids)}
            scores, ids = scores.take([places[name] for name in own], axis), own
        names.append(ids)
    query_ids, train_ids = names
    return _Found(scores, query_ids, train_ids, found.facts)


def _check_shape(found: tuple[int, ...], shape: Shape) -> None:
    queries, images = shape
    if found == shape:
        return
    about = f"the truth is about {queries} queries and {images} images"
    if found == (images, queries):
        raise PatchtraceError(f"they have shape {found}, and {about}: transpose them, rows are queries")
    if found == (queries * images,):
        raise PatchtraceError(f"they have shape {found}, and {about}: reshape them to {shape}")
    raise PatchtraceError(f"they have shape {found}, and {about}: use {shape}, a row for each query")


# --- arrays ---


def _npy(path: Path, truth: GroundTruth) -> _Found:
    _check_shape(_shape_in(path), (len(truth.query_ids), len(truth.train_ids)))
    return _Found(_arrays(path)[SINGLE])


def _npz(path: Path, truth: GroundTruth) -> _Found:
    shape = len(truth.query_ids), len(truth.train_ids)
    _check_shape(_shape_in(path), shape)
    for name, count in zip(IDS, reversed(shape), strict=True):
        _check_names(header_of(path, name), name, count)
    arrays = _arrays(path)
    ids: Any = {name: tuple(map(str, arrays[name].ravel().tolist())) for name in IDS if name in arrays}
    try:
        facts = json.loads(str(arrays.get("facts", "{}")))
    except (ValueError, RecursionError) as error:
        raise PatchtraceError(f"there are no readable arrays: its facts are not JSON ({error})") from error
    return _Found(arrays["scores"], facts=facts if isinstance(facts, dict) else {}, **ids)


def _check_names(header: Any, name: str, count: int) -> None:
    """Refuse names that are not one for each, or longer than any name, before they are read."""
    if isinstance(header, list):  # there are none
        return
    shape, dtype = header
    if shape != (count,) or dtype.itemsize > LONGEST_NAME:
        raise PatchtraceError(f"its {name} have shape {shape} and take {dtype.itemsize} bytes each: use {count} names")


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(path, ("scores", "facts", *IDS))
    except PatchtraceError as error:
        raise PatchtraceError(f"there are no readable arrays: {error}") from error


def _shape_in(path: Path) -> tuple[int, ...]:
    """The shape that the scores have by their header: what is too large is refused before it is read."""
    try:
        found = header_of(path, "scores")
    except PatchtraceError as error:
        raise PatchtraceError(f"there is no readable array: {error}") from error
    if isinstance(found, list):
        raise PatchtraceError(
            f"it holds no array 'scores', only {', '.join(found[:10]) or 'nothing'}: add it, (queries, images)"
        )
    shape, dtype = found
    if dtype.kind not in "fiub":
        raise PatchtraceError(f"it holds {dtype}: use numbers")
    return shape


# --- tables ---


def _csv(path: Path, truth: GroundTruth) -> _Found:
    queries, images = len(truth.query_ids), len(truth.train_ids)
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = (row for row in csv.reader(stream) if row)
            first = next(rows, [])
            if set(LONG) <= set(first):
                return _long(path, truth, (dict(zip(first, row, strict=False)) for row in rows), first)
            # one more than fits is enough to see that there are too many
            table = [first, *islice(rows, queries + 1)]
    except (OSError, UnicodeError, csv.Error) as error:
        raise PatchtraceError(f"there is no readable table: {error}") from error
    widths = {len(row) for row in table}
    if not first:
        raise PatchtraceError("it is empty: write a row for each query")
    if len(table) > queries + 1:
        raise PatchtraceError(f"it has more than {queries + 1} rows, and the truth is about {queries} queries")
    if len(widths) != 1:
        raise PatchtraceError(f"its rows have from {min(widths)} to {max(widths)} cells: use as many in all")
    # whether there are names is decided by the shape of the truth: ids can look like numbers
    head = table.pop(0) if len(table) == queries + 1 else None
    side = widths == {images + 1}
    return _Found(
        _numbers([row[side:] for row in table]),
        tuple(row[0] for row in table) if side else None,
        tuple(head[side:]) if head else None,
    )


def _numbers(rows: list[list[str]]) -> NDArray[np.float64]:
    try:
        return np.array(rows, dtype=np.float64).reshape(len(rows), -1)
    except ValueError as error:
        raise PatchtraceError(f"some of its cells are not numbers: {error}") from error


def _parquet(path: Path, truth: GroundTruth) -> _Found:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise PatchtraceError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'") from error
    try:
        with pq.ParquetFile(path) as file:
            held, count = list(file.schema_arrow.names), file.metadata.num_rows
            if set(LONG) <= set(held):
                columns = [name for name in held if name in (*LONG, *NAMES)]
                batches = file.iter_batches(columns=columns)
                return _long(path, truth, (row for batch in batches for row in batch.to_pylist()), held)
            if count > len(truth.query_ids) + 1 or len(held) > len(truth.train_ids) + 1:
                _check_shape((count, len(held)), (len(truth.query_ids), len(truth.train_ids)))
            table = file.read()
    except PatchtraceError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything inside a reader
        raise PatchtraceError(f"there is no readable table: {str(error) or type(error).__name__}") from error
    if len(set(held)) < len(held):
        raise PatchtraceError("two of its columns have the same name: give each its own")
    named = [name for name in held if not _is_number(table.schema.field(name).type)]
    if len(named) > 1:
        raise PatchtraceError(f"its columns {', '.join(named[:5])} are not numbers: only one may name the queries")
    columns = [name for name in held if name not in named]
    scores = np.column_stack([table[name].to_numpy() for name in columns]) if columns else np.empty((count, 0))
    return _Found(scores, tuple(map(str, table[named[0]].to_pylist())) if named else None, tuple(columns))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _long(path: Path, truth: GroundTruth, rows: Iterable[Mapping[str, Any]], held: Sequence[str]) -> _Found:
    """A table with a row for each pair of a query and an image, in any order."""
    by = next((name for name in NAMES if name in held), None)
    if by is None:
        raise PatchtraceError(f"it has columns {', '.join(held[:10])}: add one that names the image, id or index")
    queries = {name: row for row, name in enumerate(truth.query_ids)}
    images = {name: column for column, name in enumerate(truth.train_ids)}
    scores = np.full((len(queries), len(images)), np.nan)
    for query, image, score in _cells(rows, by):
        row = _named(queries, query)
        column = _named(images, image) if by == "id" else _place(image, len(images))
        if row is None or column is None:
            kind, unknown = ("query", query) if row is None else ("image", image)
            raise PatchtraceError(f"the truth has no {kind} {unknown[:80]!r}: use its names")
        if not np.isnan(scores[row, column]):
            raise PatchtraceError(f"there are two scores of image {image[:80]!r} for query {query[:80]!r}")
        scores[row, column] = score
    missing = np.argwhere(np.isnan(scores))
    if len(missing):
        query, image = truth.query_ids[missing[0][0]], truth.train_ids[missing[0][1]]
        raise PatchtraceError(
            f"{len(missing)} of {scores.size} pairs have no score, such as image {image!r} for query {query!r}: "
            "score every image for every query"
        )
    return _Found(scores)


def _cells(rows: Iterable[Mapping[str, Any]], by: str) -> Iterator[tuple[str, str, float]]:
    for number, row in enumerate(rows, start=1):
        query, image, score = (row.get(name) for name in ("query", by, "score"))
        try:
            yield str(query), str(image), float(score)  # type: ignore[arg-type]  # what is no number raises
        except (TypeError, ValueError):
            raise PatchtraceError(f"row {number} has the score {str(score)[:80]!r}: use a number") from None


def _named(places: Mapping[str, int], name: str) -> int | None:
    """The place of a name; in our own tables an apostrophe stands before what could be a formula."""
    return places.get(name, places.get(name[1:]) if name.startswith("'") else None)


def _place(text: str, images: int) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 20 and int(text) < images else None
