"""The null of a collection: how pictures that have nothing to do with its images agree with them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import digest
from patchtrace.checks import choice
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing, write_json
from patchtrace.images import ImageSet
from patchtrace.likelihood import Likelihood
from patchtrace.null.agreement import WAYS, agreement
from patchtrace.null.groups import numbered
from patchtrace.null_details import CALLED, Kind, NullDetails, p_value
from patchtrace.short import short_repr

MANIFEST, FILE_VERSION = "null.json", 2
#: Fields that are plain data as they are.
PLAIN = ("kind", "train_ids", "control_ids", "fingerprint", "shape")
ARRAYS = ("rows", "digests")
STATISTIC = "largest z"
#: How many pictures the spread of all images counts as, in that of each.
PRIOR = 4
#: A collection of which more than this part is new has to be calibrated again.
MOST_NEW = 0.5

Float32 = NDArray[np.float32]
Values = NDArray[np.float64]


class Change(NamedTuple):
    """How far a collection has gone from the one of a null: numbers of images."""

    added: int
    removed: int

    def sentence(self) -> str:
        """What that means for results."""
        if not any(self):
            return ""
        left = f"{self.removed} of its images are gone and left out" if self.removed else ""
        new = f"{self.added} images are new and not tested: run `patchtrace calibrate` again" if self.added else ""
        return "the null is stale: " + "; ".join(filter(None, (left, new)))


class Hub(NamedTuple):
    """An image that is near many pictures that have nothing to do with it.

    ``first`` is the number of controls that it agrees with more than any other image, ``habit`` its mean agreement with
    controls, in spreads of those of all images; both in the way in which that is more.
    """

    index: int  # type: ignore[assignment]  # it hides tuple.index, which is not used here
    id: str
    first: int
    habit: float


@dataclass(frozen=True, eq=False)
class Null:
    """How pictures that have nothing to do with the images of a collection agree with them. Made by ``calibrate``.

    Parameters
    ----------
    rows : float32 (controls, 2, train)
        Agreement of each control with each image, anywhere and in place; NaN for a member with itself and its
        near-duplicates.
    kind : {"controls", "members"}
        Whether the controls are other pictures, or members of the collection.
    train_ids, control_ids : tuple of str
        Names of columns and rows.
    digests : uint64 (train,)
        Hashes of the pixels of the images, to see what has changed.
    fingerprint : str
        That of the collection.
    shape : (int, int, int)
        Channels, height and width of the images.
    likelihood : Likelihood, optional
        How a largest z becomes a likelihood ratio.

    Examples
    --------
    >>> import patchtrace as pt
    >>> from patchtrace.demo import postcards
    >>> cards = postcards(40, size=16)
    >>> null = pt.calibrate(cards, count=9)
    >>> mirrored = pt.ImageSet.open(cards.pixels[4:5, :, :, ::-1])
    >>> null.judge(mirrored, cards, rate=0.1).sentence(0)
    'none of 9 pictures of the collection, each without itself, had a largest z as large (p 0.1): it stands out at 10 %'
    """

    rows: Float32
    kind: Kind
    train_ids: tuple[str, ...]
    control_ids: tuple[str, ...]
    digests: NDArray[np.uint64]
    fingerprint: str
    shape: tuple[int, int, int]
    likelihood: Likelihood | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        choice("kind", self.kind, CALLED)
        if not all(isinstance(name, str) for name in (*self.train_ids, *self.control_ids)):
            raise PatchtraceError("some names of images or controls are not text")
        if self.rows.dtype.kind != "f" or self.rows.shape != (len(self.control_ids), len(WAYS), len(self.train_ids)):
            raise PatchtraceError(
                f"rows {self.rows.shape} of {self.rows.dtype} do not match the ids of controls and images"
            )
        if len(self.digests) != len(self.train_ids) or self.digests.dtype != np.uint64:
            raise PatchtraceError(f"there are {len(self.digests)} digests for {len(self.train_ids)} images")
        if not len(self.rows) or np.isinf(self.rows).any() or (self.rows < 0).any():
            raise PatchtraceError("a null needs at least one control, and agreements that are finite and not negative")
        unknown = np.isnan(self.rows)
        if unknown.all(axis=(1, 2)).any() or (self.kind == "controls" and unknown.any()):
            raise PatchtraceError("agreements are unknown (NaN) that are known of every control")

    def __len__(self) -> int:
        return len(self.rows)

    def judge(
        self, queries: ImageSet, train: ImageSet, *, rate: float = 0.01, labels: Sequence[str] = ()
    ) -> NullDetails:
        """How unusual queries are, and each image for them.

        Mean and spread of each image are taken over the controls and the query together, so that a query and a control
        are treated alike: if they are exchangeable, the p-value is exact.

        Parameters
        ----------
        queries, train : ImageSet
            The queries, and the collection as it is now. Images that are new are not tested (z 0), nor are decoys
            (they have the least z).
        rate : float, default 0.01
            From which p-value something stands out.
        labels : sequence of str, optional
            The group of each image of the collection: then each group has p-values too.

        Returns
        -------
        NullDetails
        """
        if not isinstance(rate, float) or not 0 < rate < 1:
            raise PatchtraceError(f"rate is {rate!r}: use a number between 0 and 1, such as 0.01")
        decoys, train = train.decoys, train.collection
        if train.shape != self.shape:
            raise PatchtraceError(
                f"the null is of pictures of shape {self.shape}, and the collection has {train.shape}: use --size, or "
                "run `patchtrace calibrate` again"
            )
        known, places, change = self._common(train)
        if change.added > MOST_NEW * len(train):
            raise PatchtraceError(
                f"the null is of another collection: {change.added} of {len(train)} images are new, {change.removed} "
                "are gone; run `patchtrace calibrate` again"
            )
        rows = self.rows[..., known]
        whole = len(places) == len(train)
        found = agreement(queries, train if whole else train.subset(places))
        z = np.zeros((len(queries), len(train)), dtype=np.float32)
        tops = np.empty((len(queries), len(rows)), dtype=np.float32)
        groups: dict[str, list[float]] = {}
        for number, row in enumerate(found):
            standard = standardised(np.concatenate([rows, row[None]]))
            z[number, places], tops[number] = standard[-1], np.nanmax(standard[:-1], axis=1)
            for name, p in _of_groups(standard, [labels[n] for n in places] if len(labels) else []).items():
                groups.setdefault(name, []).append(p)
        values = z[:, places].max(axis=1)
        z = np.pad(z, ((0, 0), (0, decoys)), mode="minimum")
        return NullDetails(
            STATISTIC,
            self.kind,
            rate,
            list(map(float, values)),
            [int((top >= value).sum()) for top, value in zip(tops, values, strict=True)],
            z,
            tops,
            change.sentence(),
            groups,
            # it is of the collection as it was, and shown only if it says more than nothing
            self.likelihood if self.likelihood and self.likelihood.earned and not any(change) else None,
        )

    def change(self, train: ImageSet) -> Change:
        """How far a collection has gone from the one that was calibrated."""
        return self._common(train)[2]

    def _common(self, train: ImageSet) -> tuple[NDArray[np.intp], NDArray[np.intp], Change]:
        """Columns of the null whose images are still there, and where these are now."""
        everything = np.arange(len(self.train_ids))
        if train.fingerprint() == self.fingerprint:
            return everything, everything, Change(0, 0)
        where = {key: place for place, key in enumerate(zip(train.ids, digests_of(train).tolist(), strict=True))}
        now = [where.get(key, -1) for key in zip(self.train_ids, self.digests.tolist(), strict=True)]
        places = np.array(now, dtype=np.intp)
        known = np.flatnonzero(places >= 0)
        return known, places[known], Change(len(train) - len(known), len(self.train_ids) - len(known))

    def hubs(self, least: float = 3.0) -> list[Hub]:
        """Images that agree with many controls: their habit is above the mean of all by so many spreads.

        Those that are the best match of most controls come first.
        """
        # agreement anywhere is larger than in place: both in units of what is usual
        rows = (self.rows / np.nanmean(self.rows, axis=(0, 2), keepdims=True).clip(1e-9)).max(axis=1)
        known = np.isfinite(rows)
        sums, counts = np.where(known, rows, 0.0).sum(axis=0, dtype=np.float64), known.sum(axis=0)
        habits = np.divide(sums, counts, out=np.full(len(sums), sums.sum() / counts.sum()), where=counts > 0)
        spread = habits.std()
        habits = (habits - habits.mean()) / spread if spread > 0 else np.zeros_like(habits)
        first = np.bincount(np.nanargmax(rows, axis=1), minlength=len(habits))
        order = np.lexsort((-habits, -first))
        return [
            Hub(int(n), self.train_ids[n], int(first[n]), float(habits[n]))
            for n in order
            if habits[n] >= least or first[n] > max(1, len(self) / 20)
        ]

    def unusual_members(self, rate: float = 0.01) -> list[tuple[str, str]]:
        """Members that another image resembles more than is usual: possible near-duplicates that were not found.

        By their own p-value among the others, without a correction for their number; pairs of ids.
        """
        if self.kind != "members":
            return []
        z = standardised(self.rows)
        tops = np.nanmax(z, axis=1)
        ranks = [(tops >= top).sum() / len(tops) for top in tops]
        # far beyond the others, and not only first among them
        limit = np.median(tops) + 6 * np.median(np.abs(tops - np.median(tops)))
        return [
            (self.control_ids[n], self.train_ids[int(np.nanargmax(z[n]))])
            for n in range(len(tops))
            if tops[n] > limit and ranks[n] <= max(rate, 0.1)
        ]

    # -- files ------------------------------------------------------------------------------------------

    @cached_property
    def _record(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in PLAIN}
        lists = {name: list(fields[name]) for name in ("train_ids", "control_ids", "shape")}
        return {**fields, **lists, "likelihood": self.likelihood and self.likelihood.record()}

    def save(self, directory: str | Path) -> Path:
        """Write the null to a directory: arrays, and last a manifest with checksums."""
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        checksums = {}
        for name in ARRAYS:
            path = directory / f"{name}.npy"
            with replacing(path) as temporary, temporary.open("wb") as stream:
                np.save(stream, getattr(self, name), allow_pickle=False)
            checksums[path.name] = _sha256(path)
        manifest = {"patchtrace": "null", "file_version": FILE_VERSION, **self._record, "sha256": checksums}
        write_json(directory / MANIFEST, {**manifest, "manifest_sha256": digest(manifest)})
        return directory

    @classmethod
    def load(cls, directory: str | Path) -> Null:
        """Read a saved null, and check that nothing in it was damaged."""
        directory = Path(directory)
        try:
            manifest = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
            if manifest["patchtrace"] != "null" or manifest["file_version"] > FILE_VERSION:
                raise PatchtraceError(f"{str(directory)!r} was written by a later version of patchtrace: update it")
            if manifest["file_version"] < FILE_VERSION:
                raise ValueError("an earlier version compared pictures in another way")
            if manifest.pop("manifest_sha256") != digest(manifest):
                raise ValueError(f"{MANIFEST} does not match its checksum")
            arrays = {}
            for name in ARRAYS:
                path = directory / f"{name}.npy"
                if _sha256(path) != manifest["sha256"][path.name]:
                    raise ValueError(f"{path.name} does not match its checksum")
                arrays[name] = np.load(path, allow_pickle=False)
            plain = {name: manifest[name] for name in PLAIN}
            plain |= {name: tuple(plain[name]) for name in ("train_ids", "control_ids", "shape")}
            return cls(**arrays, **plain, likelihood=Likelihood.from_record(manifest.get("likelihood")))
        except PatchtraceError:
            raise
        except Exception as error:  # a file that was tampered with can raise nearly anything
            reason = str(error) or type(error).__name__
            raise PatchtraceError(
                f"there is no readable null in {str(directory)!r}: {reason}; run `patchtrace calibrate` again"
            ) from error


def standardised(rows: Float32) -> Values:
    """Each image's agreements in its own spreads above its own mean, in the way where that is more: (rows, train).

    ``rows`` are (rows, ways, train); NaN stays NaN. The spread of an image is shrunk toward that of all: a hundred
    pictures say little about one image.
    """
    values = rows.astype(np.float64)
    variances = np.nanvar(values, axis=0)
    count = len(values)
    spread = np.sqrt((count * variances + PRIOR * np.nanmean(variances, axis=-1, keepdims=True)) / (count + PRIOR))
    return np.asarray(((values - np.nanmean(values, axis=0)) / np.maximum(spread, 1e-12)).max(axis=1))


def _of_groups(standard: Values, labels: Sequence[str]) -> dict[str, float]:
    """For each group the p-value of its largest z: that of the last row among those of the others."""
    if not labels:
        return {}
    names, which = numbered(labels)
    order = np.argsort(which, kind="stable")
    starts = np.searchsorted(which[order], np.arange(len(names)))
    tops = np.maximum.reduceat(np.where(np.isnan(standard), -np.inf, standard)[:, order], starts, axis=1)
    found = {}
    for name, (*others, own) in zip(names, tops.T.tolist(), strict=True):
        known = [top for top in others if math.isfinite(top)]  # a member that is all of a group has nothing in it
        found[name] = p_value(sum(top >= own for top in known), len(known))
    return found


def beside(rows: Float32, query: Float32) -> tuple[Values, Values]:
    """The z of each image for a query (train,), and the largest z of each control (controls,).

    Mean and spread are over the controls and the query together, so that all of them are treated alike.
    """
    z = standardised(np.concatenate([rows, query[None]]))
    return z[-1], np.nanmax(z[:-1], axis=1)


def likelihood_of(controls: Float32, planted: Float32) -> Likelihood:
    """How a largest z becomes a likelihood ratio: from rows of controls, and of pictures that have sources."""
    sources = [np.nanmax(beside(controls, row)[0]) for row in planted]
    return Likelihood.fitted(np.array(sources), np.nanmax(standardised(controls), axis=1))


def digests_of(images: ImageSet) -> NDArray[np.uint64]:
    """A hash of the pixels of each image: uint64 (images,)."""
    found = np.empty(len(images), dtype=np.uint64)
    for start in range(0, len(images), 1024):
        pixels = np.ascontiguousarray(images.pixels[start : start + 1024])
        for number, one in enumerate(pixels, start=start):
            found[number] = int.from_bytes(hashlib.sha256(one.tobytes()).digest()[:8], "little")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def ids_of(images: ImageSet, places: Sequence[int] | NDArray[np.intp]) -> tuple[str, ...]:
    """Names of some images."""
    return tuple(images.ids[int(place)] for place in places)
