"""The levels of a recipe as work: what is compared at each, what that costs, and the noise of each draw."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Part
from patchtrace.engines import Comparison
from patchtrace.recipe import Recipe

#: Draws of a level that are compared in one go, at the most.
TOGETHER = 16
#: What a query patch costs besides its pairs, in pairs: at 32 x 32 a draw at P 21 takes half the time of one at P 5.
WORK_OF_A_PATCH = 300
#: Up to so many patches within the picture what a patchwork keeps of an image stays in the cache. Pictures with more
#: are sampled in pairs; they have so many patches that chance matters less.
PATCHWORK_PATCHES = 256


def together(images: int) -> int:
    """Draws of a level that are compared in one go with so many images: all of them are held at once."""
    return max(2, min(TOGETHER, 3_000_000 // images // 2 * 2))


class StepWork(NamedTuple):
    """One scale at one level, with its weight in the level and the work of a draw for one training image."""

    name: Part
    comparison: Comparison
    weight: float
    patches: int
    cost: int


class LevelWork(NamedTuple):
    """One level: its scales, which share their noise, the work of a draw, and whether it is a patchwork."""

    t: int
    steps: tuple[StepWork, ...]
    cost: int
    patchwork: bool


def levels_of(recipe: Recipe, size: tuple[int, int]) -> list[LevelWork]:
    """The levels of a recipe for pictures of this size. A single draw is made as the paper does, never a patchwork."""
    levels = []
    for level in recipe.levels:
        steps = []
        for scale, weight in level.weighted_scales():
            comparison = Comparison.of(scale, recipe)
            name = Part(level.t, scale.patch, scale.pool)
            patches = comparison.patches(*size)
            cost = comparison.pairs(*size) + WORK_OF_A_PATCH * patches
            steps.append(StepWork(name, comparison, weight, patches, cost))
        inside = [math.prod(len(step.comparison.inside(side)) for side in size) for step in steps]
        patchwork = recipe.draws != 1 and all(count <= PATCHWORK_PATCHES for count in inside)
        levels.append(LevelWork(level.t, tuple(steps), sum(step.cost for step in steps), patchwork))
    return levels


def drawn(level: LevelWork, seed: int, first: int, last: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Noises first to last of a level: one for each draw, or, without a patchwork, pairs of one and its negative."""
    size = 1 if level.patchwork else 2
    noises = [
        np.random.default_rng((seed, level.t, draw // size)).standard_normal(shape) * (-1) ** (draw % size)
        for draw in range(first, last)
    ]
    return np.stack(noises).astype(np.float32)
