"""What ablation and tuning share: pictures, the truth about them, a base recipe and parts of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from patchtrace.compute import Compute
from patchtrace.evaluate.axes import Axes
from patchtrace.evaluate.partial_scores import PartialScores
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.images import ImageSet
from patchtrace.recipe import Recipe


@dataclass(eq=False)
class RecipeStudy:
    """Pictures, the truth about them, and a base recipe.

    Parameters
    ----------
    train, queries : ImageSet, path, array, ...
        Anything that ``ImageSet.open`` takes: the collection and the queries that the truth is about, in its order.
    truth : GroundTruth
        Subsets, and the losses of models trained on them.
    base : Recipe, optional
        The starting point; by default the recipe for the size of the images, with one draw.
    cache : path, optional
        Directory in which parts of scores are kept for the next run; each takes 4 bytes for every query and image.
    values : mapping of str to numbers, optional
        Values to try instead of ``patchtrace.evaluate.axes.VALUES``, such as ``{"k": [10, 100]}``.
    resamples : int, default 1000
        Resamples of the subsets, for the intervals.
    compute : Compute, optional
        Engine, device, threads and memory.
    """

    train: Any
    queries: Any
    truth: GroundTruth
    _: KW_ONLY
    base: Recipe | None = None
    cache: str | Path | None = None
    values: Mapping[str, Sequence[float]] | None = None
    resamples: int = 1000
    compute: Compute | None = None

    @cached_property
    def store(self) -> PartialScores:
        """Pictures that fit the truth, and the parts of their scores."""
        train = ImageSet.open(self.train)
        queries = train.open_like(self.queries)
        self.truth.check_pictures(train, queries)
        directory = None if self.cache is None else Path(self.cache)
        return PartialScores(train, queries, directory=directory, compute=self.compute)

    @cached_property
    def axes(self) -> Axes:
        """What there is to vary, around the base recipe in use."""
        size = self.store.train.shape[1:]
        return Axes(self.base or Recipe.for_size(*size), size, self.values)
