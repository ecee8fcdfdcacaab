"""The ground truth that scores are judged by: subsets of a collection, and losses of models trained on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.array_files import SINGLE, read_arrays
from patchtrace.attribution import Attribution
from patchtrace.checks import store, whole
from patchtrace.errors import PatchtraceError
from patchtrace.facts import facts_of
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.short import short_repr


def make_subsets(
    images: int, count: int = 64, *, fraction: float = 0.5, classes: ArrayLike | None = None, seed: int = 0
) -> NDArray[np.bool_]:
    """Random parts of a collection, to train models on: bool (subsets, images).

    All have the same number of images. With a larger ``count`` and the same seed the first ones stay as they were.

    Parameters
    ----------
    images : int
        Number of images in the collection.
    count : int, default 64
        Number of subsets.
    fraction : float, default 0.5
        Fraction of the images that are in each subset.
    classes : array (images,), optional
        Class of each image: each subset then has that fraction of every class, to the image.
    seed : int, default 0
        Seed of the choice.

    Examples
    --------
    >>> subsets = make_subsets(10, 4, classes=[0] * 6 + [1] * 4)
    >>> subsets.shape, subsets[:, :6].sum(axis=1), subsets[:, 6:].sum(axis=1)
    ((4, 10), array([3, 3, 3, 3]), array([2, 2, 2, 2]))
    """
    images, count, seed = whole("images", images, 2), whole("count", count, 1), whole("seed", seed, 0)
    size = int(fraction * images + 0.5) if 0 < fraction < 1 else 0
    if not 0 < size < images:
        raise PatchtraceError(
            f"fraction is {fraction}: use one between 0 and 1 that takes some of the {images} images and leaves some"
        )
    labels = np.zeros(images, dtype=int) if classes is None else np.asarray(classes)
    if labels.shape != (images,):
        raise PatchtraceError(f"classes have shape {labels.shape}: use {(images,)}, one for each image")
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    wanted = np.array([fraction * len(places) for places in members])
    floors = np.floor(wanted).astype(int)
    rng = np.random.default_rng(seed)
    subsets = np.zeros((count, images), dtype=bool)
    for subset in subsets:
        # what rounding leaves over goes to the classes that lost most by it; ties are broken at random in each subset
        by_lot = rng.permutation(len(members))
        order = by_lot[np.argsort((floors - wanted)[by_lot].round(9), kind="stable")]
        sizes = floors.copy()
        sizes[order[: size - floors.sum()]] += 1
        for places, take in zip(members, sizes, strict=True):
            subset[rng.choice(places, take, replace=False)] = True
    return subsets


def split(queries: int, part: float = 0.5, seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Queries to choose settings on, and queries to report: two disjoint lists of indices.

    >>> tuning, reported = split(10, 0.3)
    >>> len(tuning), len(reported), len({*tuning, *reported})
    (3, 7, 10)
    """
    order = np.random.default_rng(seed).permutation(queries)
    count = round(part * queries)
    return np.sort(order[:count]), np.sort(order[count:])


@dataclass(frozen=True, eq=False)
class GroundTruth:
    """Subsets of a collection, and the losses on queries of models that were trained on them.

    Parameters
    ----------
    subsets : bool (subsets, images)
        Which images each model was trained on.
    losses : float64 (subsets, queries)
        Loss of each model on each query: the mean over models, where a subset has several.
    train_ids, query_ids : tuple of str
        Names of images and queries, in the order of the arrays; where they have none, their numbers.
    facts : mapping
        How it was made, plain data. Fingerprints of the image sets under ``train`` and ``queries`` are checked where
        results have them too.

    Examples
    --------
    >>> truth = GroundTruth(make_subsets(4, 3), np.ones((3, 2)), tuple("abcd"), ("p", "q"))
    >>> truth.select([1]).query_ids
    ('q',)
    """

    subsets: NDArray[np.bool_]
    losses: NDArray[np.float64]
    train_ids: tuple[str, ...]
    query_ids: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        store(self, subsets=as_subsets(self.subsets), losses=as_losses(self.losses))
        (subsets, images), (measured, queries) = self.subsets.shape, self.losses.shape
        if subsets != measured:
            hint = ": losses are (subsets, queries), transpose them" if subsets == queries else ""
            raise PatchtraceError(f"there are {subsets} subsets, but losses of {measured}{hint}")
        _check_ids(self.train_ids, images, "images in the subsets")
        _check_ids(self.query_ids, queries, "queries with losses")

    def select(self, queries: Sequence[int] | NDArray[np.integer[Any]] | NDArray[np.bool_]) -> GroundTruth:
        """The truth about some of the queries: by their indices, or by a mask."""
        places = np.asarray(queries)
        try:
            chosen = np.arange(len(self.query_ids))[places if places.dtype == np.bool_ else places.astype(np.intp)]
        except IndexError as error:
            raise PatchtraceError(f"there are {len(self.query_ids)} queries: {error}") from error
        # facts about all queries, such as a fingerprint, do not hold for some of them
        facts = {name: fact for name, fact in self.facts.items() if name != "queries"} | {"selected": chosen.tolist()}
        ids = tuple(self.query_ids[i] for i in chosen)
        return replace(self, losses=self.losses[:, chosen], query_ids=ids, facts=facts)

    def check(self, result: Attribution) -> None:
        """Refuse a result about other images or queries, or about these in another order.

        Ids that are only numbers identify nothing: then the number of images has to agree, and their order is trusted.
        """
        self.check_ids(result.train_ids, result.query_ids, result.facts)

    def check_pictures(self, train: ImageSet, queries: ImageSet) -> None:
        """Refuse other images or queries, or these in another order."""
        try:
            self.check_ids(train.ids, queries.ids, facts_of(train, queries))
        except PatchtraceError as error:
            raise PatchtraceError(f"the truth is about other pictures than these: {error}") from error

    def check_ids(self, train_ids: tuple[str, ...], query_ids: tuple[str, ...], facts: Mapping[str, Any]) -> None:
        """The same of scores that are known by names, and by the fingerprints in their facts if these have any."""
        for ids, others, what, role in (
            (self.train_ids, train_ids, "training images", "train"),
            (self.query_ids, query_ids, "queries", "queries"),
        ):
            if len(ids) != len(others):
                raise PatchtraceError(
                    f"the truth is about {len(ids)} {what}, the result about {len(others)}: use the same for both"
                )
            if ids != others and not named_by_numbers(ids) and not named_by_numbers(others):
                place = next(i for i, (a, b) in enumerate(zip(ids, others, strict=True)) if a != b)
                raise PatchtraceError(
                    f"of the {what}, number {place} is {ids[place]!r} in the truth and {others[place]!r} in the "
                    "result: use the same images, in the same order"
                )
            about = facts.get(role)
            own, fingerprint = self.facts.get(role), about.get("fingerprint") if isinstance(about, dict) else None
            if isinstance(own, str) and fingerprint not in (None, own):
                raise PatchtraceError(
                    f"the {what} of the truth and of the result have other pixels: use the same files at the same size"
                )

    def save(self, path: str | Path) -> Path:
        """Write it as npz: subsets, losses, train_ids, query_ids, and facts as JSON text. Nothing is pickled."""
        path = Path(path)
        ids: Any = {name: np.array(getattr(self, name), dtype=np.str_) for name in ("train_ids", "query_ids")}
        facts = np.array(json.dumps(dict(self.facts)))
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, subsets=self.subsets, losses=self.losses, **ids, facts=facts)
        return path

    @classmethod
    def load(cls, path: str | Path, *, images: int | None = None) -> GroundTruth:
        """Read a file of :meth:`save`, or one that others have published in the same form.

        Only ``subsets`` and ``losses`` are required; ids are numbers if there are none. Subsets may be booleans, 0 and
        1, or bits packed by ``np.packbits(subsets, axis=1)``, if the number of images is known: from ``train_ids``, or
        from ``images``.
        """
        path = Path(path)
        arrays = _read(path)
        try:
            losses = as_losses(arrays["losses"])
            train_ids, query_ids = (_ids(arrays.get(name)) for name in ("train_ids", "query_ids"))
            if train_ids and images not in (None, len(train_ids)):
                raise PatchtraceError(f"it is about {len(train_ids)} images, not about {images}")
            subsets = unpacked(arrays["subsets"], len(train_ids) if train_ids else images)
            facts = _facts(str(arrays.get("facts", "{}")))
            train_ids, query_ids = train_ids or numbers(subsets.shape[1]), query_ids or numbers(losses.shape[1])
            return cls(subsets, losses, train_ids, query_ids, facts)
        except PatchtraceError as error:
            raise PatchtraceError(f"the truth in {str(path)!r}: {error}") from error


def as_subsets(subsets: ArrayLike) -> NDArray[np.bool_]:
    """Subsets as booleans (subsets, images); 0 and 1 will do."""
    found = np.asarray(subsets)
    if found.ndim != 2 or 0 in found.shape:
        raise PatchtraceError(f"subsets have shape {found.shape}: use (subsets, images)")
    if found.dtype != np.bool_ and (found.dtype.kind not in "iuf" or not ((found == 0) | (found == 1)).all()):
        raise PatchtraceError(
            "subsets are neither booleans nor 0 and 1: say for each image whether it is in the subset"
        )
    return found.astype(np.bool_, copy=False)


def as_losses(losses: ArrayLike) -> NDArray[np.float64]:
    """Losses as float64 (subsets, queries), all finite."""
    found = np.asarray(losses)
    if found.ndim != 2 or 0 in found.shape or found.dtype.kind not in "iuf":
        raise PatchtraceError(f"losses are {found.dtype} of shape {found.shape}: use numbers (subsets, queries)")
    finite = np.isfinite(found)
    if not finite.all():
        subset, query = np.argwhere(~finite)[0]
        raise PatchtraceError(
            f"the loss of subset {subset} on query {query} is {found[subset, query]}: measure it, or leave it out"
        )
    return found.astype(np.float64, copy=False)


def as_scores(scores: Attribution | ArrayLike, shape: tuple[int, int], name: str = "") -> NDArray[Any]:
    """Scores as finite numbers of the shape (queries, images)."""
    found = np.asarray(scores.scores if isinstance(scores, Attribution) else scores)
    which = f"the scores of {name}" if name else "the scores"
    if found.shape != shape:
        raise PatchtraceError(
            f"{which} have shape {found.shape}: use {shape}, a row for each query and a column for each image"
        )
    if found.dtype.kind not in "fiub" or not np.isfinite(found).all():
        raise PatchtraceError(f"{which} hold numbers that are not finite: leave such queries out")
    return found


def unpacked(subsets: NDArray[Any], images: int | None = None) -> NDArray[np.bool_]:
    """Subsets as booleans, from booleans, 0 and 1, or packed bits.

    >>> packed = np.packbits(np.array([[1, 0, 0, 1, 1, 0, 0, 0, 0, 1]]), axis=1)
    >>> unpacked(packed, images=10).astype(int)
    array([[1, 0, 0, 1, 1, 0, 0, 0, 0, 1]])
    """
    if subsets.ndim == 2 and subsets.dtype == np.uint8:
        if images is None and subsets.max(initial=0) > 1:
            raise PatchtraceError("subsets look like packed bits, without train_ids: say how many images there are")
        if images is not None and subsets.shape[1] == -(-images // 8) != images:
            bits = np.unpackbits(subsets, axis=1)
            if bits[:, images:].any():
                raise PatchtraceError(f"subsets, as packed bits, have more than {images} images")
            return bits[:, :images].astype(np.bool_)
    if subsets.ndim == 2 and images not in (None, subsets.shape[1]):
        raise PatchtraceError(
            f"subsets have {subsets.shape[1]} columns: use {images}, one for each image, or as many packed bits"
        )
    return as_subsets(subsets)


def read_subsets(path: str | Path, images: int) -> NDArray[np.bool_]:
    """Subsets that others have published: bool (subsets, images).

    Parameters
    ----------
    path : path
        A ``.npy``, or an ``.npz`` with an array ``subsets``, such as a truth: booleans, 0 and 1, or bits packed by
        ``np.packbits(subsets, axis=1)``, a row for each subset.
    images : int
        Number of images in the collection.

    Returns
    -------
    bool (subsets, images)

    Raises
    ------
    PatchtraceError
        If the file cannot be read or is about another number of images, or if a subset has no image.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     np.save(Path(directory) / "subsets.npy", np.packbits(np.eye(3, 10, dtype=bool), axis=1))
    ...     read_subsets(Path(directory) / "subsets.npy", images=10).sum(axis=1)
    array([1, 1, 1])
    """
    path = Path(path)
    try:
        arrays = read_arrays(path, ("subsets",))
    except PatchtraceError as error:
        raise PatchtraceError(f"there are no readable subsets in {str(path)!r}: {error}") from error
    try:
        if not {SINGLE, "subsets"} & set(arrays):
            raise PatchtraceError(f"it holds no array 'subsets', only {', '.join(arrays)}: add it")
        opened = arrays[SINGLE] if SINGLE in arrays else arrays["subsets"]
        packed = opened.dtype == np.uint8 and opened.shape[1:] == (-(-images // 8),) and opened.max(initial=0) > 1
        if opened.ndim == 2 and opened.shape[0] == images and opened.shape[1] != images and not packed:
            raise PatchtraceError(f"they have shape {opened.shape}: transpose them, each row is a subset")
        subsets = unpacked(opened, images)
        empty = np.flatnonzero(~subsets.any(axis=1))
        if len(empty):
            raise PatchtraceError(f"subset {empty[0]} has no image: a model cannot be trained on it")
    except PatchtraceError as error:
        raise PatchtraceError(f"the subsets in {str(path)!r}: {error}") from error
    return subsets


def numbers(count: int) -> tuple[str, ...]:
    """Ids for things without names."""
    return tuple(map(str, range(count)))


def named_by_numbers(ids: tuple[str, ...]) -> bool:
    """Whether ids only give the order."""
    return ids == numbers(len(ids))


def _check_ids(ids: tuple[str, ...], count: int, what: str) -> None:
    if len(ids) != count:
        raise PatchtraceError(f"{len(ids)} ids do not match {count} {what}: give one for each")


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        found = read_arrays(path, ("subsets", "losses", "train_ids", "query_ids", "facts"))
    except PatchtraceError as error:
        raise PatchtraceError(f"there is no readable truth in {str(path)!r}: {error}") from error
    if SINGLE in found:
        raise PatchtraceError(f"{str(path)!r} is a single array: use an npz with arrays subsets and losses")
    for name in ("subsets", "losses"):
        if name not in found:
            raise PatchtraceError(f"{str(path)!r} holds no array {name!r}, only {', '.join(found)}: add it")
    return found


def _ids(array: NDArray[Any] | None) -> tuple[str, ...] | None:
    if array is None:
        return None
    if array.ndim != 1 or not array.size or array.dtype.kind not in "Uiu":
        raise PatchtraceError(f"its ids are {array.dtype} of shape {array.shape}: use a row of text or whole numbers")
    return tuple(map(str, array.tolist()))


def _facts(text: str) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PatchtraceError(f"its facts are not JSON: {error}") from error
    if not isinstance(facts, dict):
        raise PatchtraceError("its facts are not a JSON object")
    return facts
