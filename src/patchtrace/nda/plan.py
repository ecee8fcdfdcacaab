"""A recipe as work: the one walk over levels, scales and draws that scoring, explanations and evaluation share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Comparison, NoisyQuery
from patchtrace.images import ImageSet
from patchtrace.nda_details import Part
from patchtrace.recipe import Recipe

#: Limit of draws of a level that are compared at once.
TOGETHER = 16
#: What a query patch costs besides its pairs, in pairs: at 32 x 32 a draw at P 21 takes half the time of one at P 5.
WORK_OF_A_PATCH = 300
#: Limits of patches within the picture for a patchwork, by their side: its tables grow with the square of their number.
#: Smaller patches are sampled in pairs where there are many, which is as good for them (docs/stability.md).
PATCHWORK_PATCHES = {1: 256, 7: 700}


def cost_of(comparison: Comparison, size: tuple[int, int]) -> int:
    """The work of one draw for one training image, with all its views."""
    patches = comparison.patches(*size) * len(comparison.crops(*size))
    return comparison.pairs(*size) + WORK_OF_A_PATCH * patches


def recipe_for_images(images: ImageSet) -> Recipe:
    """The recipe for these images: for pictures by their size, for latents also by the noise of their models."""
    height, width = images.usual_size
    if images.autoencoder is None:
        return whole_patches(Recipe.for_size(height, width), images)
    return whole_patches(Recipe.for_latents(height, width, images.autoencoder.schedule), images)


def whole_patches(recipe: Recipe, images: ImageSet) -> Recipe:
    """The recipe, and of images with shapes of their own one that leaves out patches over the border.

    Such patches pair by their place along the border, which pictures of two shapes do not share.
    """
    return recipe if images.extents is None else replace(recipe, border="valid")


class ScaleStep(NamedTuple):
    """One scale at one level.

    ``weight`` is its weight in the level (the weights of a level sum to 1), ``patches`` the number of query patches,
    ``cost`` the work of a draw for one training image.
    """

    part: Part
    comparison: Comparison
    weight: float
    patches: int
    cost: int


@dataclass(frozen=True)
class Draws:
    """Draws ``first`` to ``last`` of the noise at one level, and everything that decides them.

    Without a patchwork they come in pairs, a noise and its negative: what one overstates the other tends to understate.
    """

    t: int
    signal: float
    sigma: float
    seed: int
    patchwork: bool
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def noise(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        """The noises, (draws, *shape)."""
        size = 1 if self.patchwork else 2
        noises = [
            np.random.default_rng((self.seed, self.t, draw // size)).standard_normal(shape) * (-1) ** (draw % size)
            for draw in range(self.first, self.last)
        ]
        return np.stack(noises).astype(np.float32)

    def on(self, clean: NDArray[np.float32], given: NDArray[np.float32] | None = None) -> NoisyQuery:
        """A clean query (channels, height, width) under these draws, or under those of ``given`` (all draws, ...)."""
        if given is not None:
            return NoisyQuery.of(clean, given[self.first : self.last], self.signal, self.sigma)
        return NoisyQuery.of(clean, self.noise(clean.shape), self.signal, self.sigma, patchwork=self.patchwork)


@dataclass(frozen=True)
class LevelPlan:
    """One noise level: its scales, which share their noise, and whether each patch has a noise of its own."""

    t: int
    signal: float
    sigma: float
    steps: tuple[ScaleStep, ...]
    patchwork: bool

    @property
    def cost(self) -> int:
        """The work of a draw for one training image."""
        return sum(step.cost for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """What is compared for pictures of one size under a recipe.

    Examples
    --------
    >>> plan = Plan.of(Recipe.preset("cifar"), (32, 32))
    >>> [step.part.patch for step in plan.levels[0].steps], plan.levels[0].steps[0].patches
    ([5, 8], 1024)
    >>> [(number, draws.t, draws.first, draws.last) for number, draws in plan.walk([[(0, 2)], [(4, 6)], [], [], []])]
    [(0, 100, 0, 2), (1, 200, 4, 6)]
    """

    recipe: Recipe
    levels: tuple[LevelPlan, ...]

    @classmethod
    def of(cls, recipe: Recipe, size: tuple[int, int], *, shapes: bool = False) -> Plan:
        """The plan for pictures of this height and width. A single draw is as in the paper, never a patchwork.

        With ``shapes`` they are the query's, beside images with shapes of their own. A patchwork would have another
        noise beside each of these, so there is none.
        """
        levels = []
        for level in recipe.levels:
            steps = []
            for scale, weight in level.weighted_scales():
                comparison = Comparison.of(scale, recipe)
                part = Part(level.t, scale.patch, scale.pool)
                steps.append(ScaleStep(part, comparison, weight, comparison.patches(*size), cost_of(comparison, size)))
            few = all(_few_enough(step.comparison, size) for step in steps)
            patchwork = recipe.draws != 1 and few and not shapes
            levels.append(LevelPlan(level.t, *recipe.noise_at(level.t), tuple(steps), patchwork))
        return cls(recipe, tuple(levels))

    @property
    def patches(self) -> float:
        """What scores are divided by to give shares: the number of query patches.

        One divisor for all images, so that shares rank as scores do. Where scales differ in the number of patches, it
        is their mean with the weights that they have in the scores.
        """
        return sum(step.weight * step.patches for step in self.steps) / len(self.levels)

    @property
    def steps(self) -> list[ScaleStep]:
        """All scales of all levels, in order."""
        return [step for level in self.levels for step in level.steps]

    def walk(self, ranges: Iterable[Iterable[tuple[int, int]]]) -> Iterator[tuple[int, Draws]]:
        """The draws of each level, with its number, in pieces: ``ranges`` has (first, last) pairs for each level."""
        for number, (level, pieces) in enumerate(zip(self.levels, ranges, strict=True)):
            for first, last in pieces:
                noise = level.t, level.signal, level.sigma, self.recipe.seed, level.patchwork
                yield number, Draws(*noise, first, last)


def _few_enough(comparison: Comparison, size: tuple[int, int]) -> bool:
    """Whether a patchwork is the better way to sample patches of this size in pictures of that one."""
    inside = math.prod(len(comparison.inside(side)) for side in size)
    return inside <= max(most for taps, most in PATCHWORK_PATCHES.items() if comparison.taps >= taps)
