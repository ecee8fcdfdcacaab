"""What a result of NDA holds beyond scores and shares: how the noise was sampled, and how certain the list is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Recipe

#: Arrays that are saved with a result, where they are known; the axis of the queries in each.
ARRAYS = {"errors": 0, "chances": 0, "parts": 1, "moments": 1}
#: Fields that are plain data as they are.
PLAIN = ("top", "confidence", "draws", "samples")
#: What version 0.1 wrote for noise from the seed.
OLD_SEED = "from the seed"


class Ended(StrEnum):
    """Why a query has no more draws."""

    FIXED = "fixed"
    SETTLED = "settled"
    DRAWS = "draws"
    TIME = "time"


SENTENCES = {
    Ended.FIXED: "the number of draws was given",
    Ended.SETTLED: "the list as a whole is settled",
    Ended.DRAWS: "not settled: draw limit reached",
    Ended.TIME: "not settled: time limit reached",
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
        Images that were scored exactly, and images in the collection.
    sampled : int
        Images outside of the shortlist that stand for all others in the normaliser.
    coarse : Recipe
        What the coarse pass compared.
    recall : Recall, optional
        Recall measured for shortlists of this length; None if only longer ones were measured.
    """

    images: int
    of: int
    sampled: int
    coarse: Recipe
    recall: Recall | None


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
        For each query, for each level: draws of the noise, and independent samples in them.
    ended : list of Ended
        For each query, why there are no more draws.
    errors : float32 (queries, train), optional
        Standard error of each share over the draws; None where there are too few draws to know it.
    chances : float32 (queries, train), optional
        Probability that an image belongs to the first ``top`` of the list.
    moments : float64 (3, queries, levels, train), optional
        What is needed to add draws later: see :mod:`patchtrace.nda.draws`.
    parts : float32 (parts, queries, train), optional
        What each level and scale adds to the scores, before the exponent; they sum to the scores.
    part_names : tuple of Part
        Level and scale of each part.
    shortlist : ShortlistFacts, optional
        How an approximate result was made; None for an exact one.

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
    errors: NDArray[np.float32] | None = None
    chances: NDArray[np.float32] | None = None
    moments: NDArray[np.float64] | None = None
    parts: NDArray[np.float32] | None = None
    part_names: tuple[Part, ...] = ()
    shortlist: ShortlistFacts | None = None

    def check(self, shape: tuple[int, int]) -> None:
        """Raise a PatchtraceError if arrays do not have this shape, (queries, train)."""
        for name, array in (("errors", self.errors), ("chances", self.chances)):
            if array is not None and array.shape != shape:
                raise PatchtraceError(f"{name} of shape {array.shape} do not match {shape} queries and images")
        if self.parts is not None and self.parts.shape != (len(self.part_names), *shape):
            raise PatchtraceError(f"parts of shape {self.parts.shape} do not match {len(self.part_names)} names")

    @property
    def can_continue(self) -> bool:
        """Whether draws can be added later."""
        return self.moments is not None and self.noise is NoiseOrigin.SEED

    def settled(self, query: int, ranking: NDArray[np.intp]) -> str:
        """How much of the top of the list would stay with other noise, in words; empty where that is not known."""
        if self.chances is None or not np.isfinite(self.chances[query]).all():
            return ""
        listed = self.chances[query, ranking[: self.top]]
        sure = int((listed >= self.confidence).sum())
        words = f"{sure} of these {len(listed)} are settled at {100 * self.confidence:g} %"
        return f"{words}; {SENTENCES[self.ended[query]]}"

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
        for name in ("draws", "samples", "ended"):
            whole[name] = [value for one in parts for value in getattr(one, name)]
        return replace(parts[0], **whole)

    # -- files ------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """Everything as plain data, except the arrays and the recipe, which is in the settings."""
        listed = self.shortlist
        record = {name: getattr(self, name) for name in PLAIN}
        record |= {"noise": self.noise.value, "ended": [ended.value for ended in self.ended]}
        record |= {"part_names": list(map(list, self.part_names)), "shortlist": None}
        if listed:
            recall = listed.recall and listed.recall._asdict()
            record["shortlist"] = {**vars(listed), "coarse": listed.coarse.to_dict(), "recall": recall}
        return record

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], recipe: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> NDADetails:
        """What :meth:`record` wrote, with its recipe and arrays."""
        fields = {name: record[name] for name in PLAIN} | {name: arrays.get(name) for name in ARRAYS}
        fields["noise"] = NoiseOrigin(record["noise"])
        fields["ended"] = list(map(Ended, record["ended"]))
        fields["part_names"] = tuple(Part(*name) for name in record["part_names"])
        if listed := record["shortlist"]:
            recall = listed["recall"] and Recall(**listed["recall"])
            fields["shortlist"] = ShortlistFacts(
                **{**listed, "coarse": Recipe.from_dict(listed["coarse"]), "recall": recall}
            )
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
