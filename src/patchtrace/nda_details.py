"""What a result of NDA holds beyond scores and shares: how the noise was sampled, and how certain the list is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.checks import store, whole
from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Recipe
from patchtrace.short import short_repr

#: Arrays that are saved with a result, where they are known; the axis of the queries in each.
ARRAYS = {"errors": 0, "chances": 0, "parts": 1, "moments": 1}
#: Fields that are plain data as they are.
PLAIN = ("top", "confidence", "draws", "samples", "tolerance")
#: What version 0.1 wrote for noise from the seed.
OLD_SEED = "from the seed"


#: Shares below this part of the first need not be told apart.
SMALL = 10


def slack(
    share: NDArray[np.float64] | float, first: NDArray[np.float64] | float, tolerance: float
) -> NDArray[np.float64]:
    """By how much two shares may differ and still count as equal: a fraction of the share, or of a tenth of the first.

    >>> float(slack(0.02, first=0.05, tolerance=0.1)), float(slack(0.003, first=0.2, tolerance=0.1))
    (0.002, 0.002)
    """
    return np.asarray(tolerance * np.maximum(share, np.asarray(first) / SMALL))


def ties(shares: NDArray[np.float64] | float, with_share: float, first: float, tolerance: float) -> NDArray[np.bool_]:
    """Whether shares tie with a larger one: they are equal, or differ by less than the tolerance."""
    differences = with_share - np.asarray(shares)
    return np.asarray((differences < slack(with_share, first, tolerance)) | ((differences == 0) & (with_share > 0)))


def tied_ranks(shares: NDArray[np.float64], tolerance: float) -> list[tuple[int, bool]]:
    """The rank of each share, largest first, and whether others have the same.

    Shares tie with the first of their rank: all of them differ from it by less than the tolerance.

    >>> tied_ranks(np.array([0.30, 0.20, 0.19, 0.185, 0.15]), 0.1)
    [(1, False), (2, True), (2, True), (2, True), (5, False)]
    """
    leaders: list[int] = []
    for place, share in enumerate(shares):
        leader = leaders[-1] if leaders else place
        same = bool(ties(share, shares[leader], shares[0], tolerance))
        leaders.append(leader if same else place)
    return [(leader + 1, leaders.count(leader) > 1) for leader in leaders]


class Ended(StrEnum):
    """Why a query has no more draws."""

    FIXED = "fixed"
    SETTLED = "settled"
    DRAWS = "draws"
    TIME = "time"
    PROVISIONAL = "provisional"


SENTENCES = {
    Ended.FIXED: "the number of draws was given",
    Ended.SETTLED: "the list is settled",
    Ended.DRAWS: "not settled: draw limit reached",
    Ended.TIME: "not settled: time limit reached",
    Ended.PROVISIONAL: "provisional",
}


class NoiseOrigin(StrEnum):
    """Where the noise of a result comes from. Only noise from a seed can be drawn again."""

    SEED = "seed"
    CALLER = "caller"


class Part(NamedTuple):
    """Which level and scale a part of the scores comes from."""

    t: int
    patch: int
    pool: int


class Recall(NamedTuple):
    """Fraction of the best 10 and 100 images of an exact run that a shortlist of ``part`` of a collection holds."""

    part: float
    best_10: float
    best_100: float


@dataclass(frozen=True)
class ShortlistFacts:
    """How an approximate result was made.

    Parameters
    ----------
    images, of : int
        Images that the coarse pass chose to be compared, and images in the collection.
    sampled : int
        Images outside of the shortlist that stand for all others in the normaliser.
    coarse : Recipe
        What the coarse pass compared that chose the shortlist.
    recall : Recall, optional
        Recall measured for shortlists of this length; None if only longer ones were measured.
    added : int, default 0
        Images that were compared too, because samples showed that they may belong to the list.
    """

    images: int
    of: int
    sampled: int
    coarse: Recipe
    recall: Recall | None
    added: int = 0

    def sentences(self) -> list[str]:
        """How the result was made, and the measured recall of such results."""
        if not self.images:
            return [f"approximate: the coarse pass over {self.of:,} images, no share is known exactly"]
        words = f"approximate: a coarse pass chose {self.images:,} of the {self.of:,} images"
        if self.added:
            words += f", samples of the others added {self.added:,}"
        if self.recall is None:
            return [f"{words}; the recall of so short a list was not measured"]
        part, ten, hundred = (100 * value for value in self.recall)
        measured = f"{ten:.0f} % of the best 10 and {hundred:.0f} % of the best 100"
        return [
            f"{words};",
            f"in benchmarks with the default recipe, a list of {part:g} % of the images had {measured}",
        ]

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "coarse": self.coarse.to_dict(), "recall": self.recall and self.recall._asdict()}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> ShortlistFacts:
        """What :meth:`record` wrote."""
        coarse, recall = Recipe.from_dict(record["coarse"]), record["recall"] and Recall(**record["recall"])
        return cls(**{**record, "coarse": coarse, "recall": recall})


@dataclass(frozen=True, eq=False)
class NDADetails:
    """The part of an :class:`patchtrace.Attribution` that only NDA has, as ``result.nda``.

    Parameters
    ----------
    recipe : Recipe
        What was compared.
    noise : NoiseOrigin
        Whether the noise can be drawn again.
    top : int
        Length of the list that ``chances`` are about.
    confidence : float
        Chance from which an image counts as settled.
    draws, samples : list of list of int
        For each query, for each level: draws of the noise, and independent samples in them. Images of a shortlist that
        could not reach the list have fewer.
    ended : list of Ended
        For each query, why there are no more draws.
    tolerance : float, default 0
        Shares that differ by less count as equal: see :class:`patchtrace.recipe.Stopping`.
    errors : float32 (queries, train), optional
        Standard error of each share over the draws; None where there are too few draws to know it.
    chances : float32 (queries, train), optional
        Probability that an image belongs to the first ``top`` of the list.
    moments : float64 (5, queries, levels, train), optional
        What is needed to add draws later: see :mod:`patchtrace.nda.draws`.
    parts : float32 (parts, queries, train), optional
        What each level and scale adds to the scores, before the exponent; they sum to the scores.
    part_names : tuple of Part
        Level and scale of each part.
    shortlists : list of ShortlistFacts or None
        For each query, how an approximate result was made; None for an exact one, as by default.
    normalisers : list of float64 (draws, patches of all steps) or None
        For each query the log normalisers of its first draws, with which single images can be explained; None where
        they are not known. They are not saved.

    Examples
    --------
    >>> import patchtrace as pt
    >>> photos = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8)
    >>> recipe = pt.Recipe((pt.Level(100, (pt.Scale(patch=3),)),), draws=4)
    >>> details = pt.NDA(recipe).fit(photos).attribute(photos[:1]).nda
    >>> details.draws, details.ended[0].value, details.errors.shape
    ([[4]], 'fixed', (1, 9))
    """

    recipe: Recipe
    noise: NoiseOrigin
    top: int
    confidence: float
    draws: list[list[int]]
    samples: list[list[int]]
    ended: list[Ended]
    tolerance: float = 0.0
    errors: NDArray[np.float32] | None = None
    chances: NDArray[np.float32] | None = None
    moments: NDArray[np.float64] | None = None
    parts: NDArray[np.float32] | None = None
    part_names: tuple[Part, ...] = ()
    shortlists: list[ShortlistFacts | None] = field(default_factory=list)
    normalisers: Sequence[NDArray[np.float64] | None] = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        store(self, shortlists=self.shortlists or [None] * len(self.ended))

    def check(self, shape: tuple[int, int]) -> None:
        """Raise a PatchtraceError if this is not about so many (queries, train), or holds what no run comes to."""
        queries, levels = shape[0], len(self.recipe.levels)
        whole("top", self.top, 1)
        if not 0 < self.confidence < 1 or not 0 <= self.tolerance < 1:
            raise PatchtraceError(f"confidence {self.confidence} or tolerance {self.tolerance} is not from 0 to 1")
        for name in ("draws", "samples", "ended", "shortlists"):
            if len(getattr(self, name)) != queries:
                raise PatchtraceError(f"there are {len(getattr(self, name))} {name} for {queries} queries")
        for counts in (*self.draws, *self.samples):
            if len(counts) != levels or not all(isinstance(count, int) and count >= 0 for count in counts):
                raise PatchtraceError(f"{counts} are not numbers of draws of {levels} levels")
        if self.moments is not None:
            if self.moments.shape != (5, queries, levels, shape[1]):
                raise PatchtraceError(f"moments of shape {self.moments.shape} do not match {shape} queries and images")
            if not (np.isfinite(self.moments) & (self.moments >= 0)).all():
                raise PatchtraceError("moments are not finite, or negative")
        for name, array in (("errors", self.errors), ("chances", self.chances)):
            if array is not None and array.shape != shape:
                raise PatchtraceError(f"{name} of shape {array.shape} do not match {shape} queries and images")
        if self.parts is not None and self.parts.shape != (len(self.part_names), *shape):
            raise PatchtraceError(f"parts of shape {self.parts.shape} do not match {len(self.part_names)} names")

    @property
    def shortlist(self) -> ShortlistFacts | None:
        """How the first approximate query was made; None if all are exact."""
        return next(filter(None, self.shortlists), None)

    @property
    def can_continue(self) -> bool:
        """Whether draws can be added later."""
        return self.moments is not None and self.noise is NoiseOrigin.SEED

    def remarks(self, query: int, shares: NDArray[np.float64], ranking: NDArray[np.intp]) -> list[str]:
        """What the list of a query means, in sentences; ``shares`` (train,) are the query's."""
        ordered = shares[ranking]
        ranks = tied_ranks(ordered[: self.top], self.tolerance)
        found = []
        if self.chances is not None and np.isfinite(self.chances[query]).all():
            listed = self.chances[query, ranking[: self.top]]
            sure = int((listed >= self.confidence).sum())
            others = int(ties(ordered[self.top :], ordered[len(listed) - 1], ordered[0], self.tolerance).sum())
            tie = " or tie with its last" if self.tolerance or others else ""
            found.append(
                f"as far as noise goes, {sure} of these {len(listed)} belong to the list{tie} at "
                f"{100 * self.confidence:g} %; {SENTENCES[self.ended[query]]}"
            )
            if self.ended[query] in (Ended.DRAWS, Ended.TIME) and sure == len(listed):
                found[0] += ", shares are less precise than asked for"
            if others:
                images = f"{others:,} images that are" if others > 1 else "an image that is"
                found.append(f"{images} not in the list {'tie' if others > 1 else 'ties'} with its last")
            if any(tied for _, tied in ranks):
                less = f"that differ by less than {100 * self.tolerance:g} %" if self.tolerance else "that are equal"
                found.append(f"=: shares {less} share a rank")
        elif self.ended[query] in (Ended.PROVISIONAL, Ended.TIME):
            found.append(SENTENCES[self.ended[query]])
        if (listed := self.shortlists[query]) is not None:
            found += listed.sentences()
        return found

    def known(self, query: int, index: int) -> list[float | None]:
        """Error and chance of one image; None where they are not known."""
        values = (np.nan if array is None else array[query, index] for array in (self.errors, self.chances))
        return [float(value) if np.isfinite(value) else None for value in values]

    @classmethod
    def joined(cls, parts: Sequence[NDADetails]) -> NDADetails:
        """The details of single queries as those of all."""
        whole: dict[str, Any] = {}
        for name, axis in ARRAYS.items():
            rows = [getattr(one, name) for one in parts]
            whole[name] = None if any(row is None for row in rows) else np.concatenate(rows, axis=axis)
        for name in ("draws", "samples", "ended", "shortlists", "normalisers"):
            whole[name] = [value for one in parts for value in getattr(one, name)]
        return replace(parts[0], **whole)

    # -- files ------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """Everything as plain data, except the arrays and the recipe, which is in the settings."""
        record = {name: getattr(self, name) for name in PLAIN}
        record |= {"noise": self.noise.value, "ended": [ended.value for ended in self.ended]}
        record |= {"part_names": list(map(list, self.part_names))}
        return record | {"shortlists": [one and one.record() for one in self.shortlists]}

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], recipe: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> NDADetails:
        """What :meth:`record` wrote, with its recipe and arrays; earlier versions wrote less."""
        fields = {name: record[name] for name in PLAIN if name in record} | {name: arrays.get(name) for name in ARRAYS}
        if fields["moments"] is not None and len(fields["moments"]) == 3:  # all images had the same number of draws
            shape = fields["moments"][0].shape
            counts = [np.broadcast_to(np.array(record[name])[..., None], shape) for name in ("samples", "draws")]
            fields["moments"] = np.concatenate([fields["moments"], counts])
        fields["noise"] = NoiseOrigin(record["noise"])
        fields["ended"] = list(map(Ended, record["ended"]))
        fields["part_names"] = tuple(Part(*name) for name in record["part_names"])
        # all queries had the same one once
        listed = record["shortlists"] if "shortlists" in record else [record["shortlist"]] * len(fields["ended"])
        fields["shortlists"] = [None if one is None else ShortlistFacts.from_record(one) for one in listed]
        return cls(Recipe.from_dict(recipe), **fields)


def record_of_old_run(manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """What :meth:`NDADetails.record` would be, from the manifest of a result that version 0.1 saved."""
    settings, sampling = manifest["settings"], manifest.get("sampling", {})
    if "recipe" not in settings:
        return None
    levels, queries = len(settings["recipe"]["levels"]), len(manifest["query_ids"])
    fixed = settings["recipe"].get("draws", 1)  # the first results did not record their draws
    known = sampling.get("draws") or [[1 if fixed == "auto" else fixed] * levels] * queries
    shortlist = None
    if listed := settings.get("shortlist"):
        recall = listed.get("measured recall")
        recall = recall and {"part": recall["part"], "best_10": recall["best 10"], "best_100": recall["best 100"]}
        shortlist = {name: listed[name] for name in ("images", "of", "sampled")}
        shortlist |= {"coarse": listed["coarse recipe"], "recall": recall}
    return {
        "noise": "seed" if settings.get("noise", OLD_SEED) == OLD_SEED else "caller",
        "top": sampling.get("top", 10),
        "confidence": sampling.get("confidence", 0.95),
        "draws": known,
        "samples": sampling.get("samples", known),
        "ended": sampling.get("ended", ["fixed"] * queries),
        "part_names": manifest.get("part_names", []),
        "shortlist": shortlist,
    }
