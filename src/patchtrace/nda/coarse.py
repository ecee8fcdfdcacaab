"""A coarse pass over all images: the same recipe on small pictures, a first answer in a small part of the time."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Job, Work
from patchtrace.images import ImageSet
from patchtrace.nda.pace import Clock, Pace
from patchtrace.nda.plan import Plan
from patchtrace.nda_details import Recall
from patchtrace.progress import Counter, Watch
from patchtrace.recipe import Level, Recipe, Scale

#: The shorter side of its pictures, about.
COARSE_SIDE = 8
#: Collections of at most this size have two draws: the second finds half of what the first would miss.
TWICE = 200_000
#: Its part of a time limit, if there is one.
COARSE_TIME = 0.6
#: Fraction of the best 10 and the best 100 of an exact reference that a shortlist of this part of a collection holds.
#: Measured by `benchmarks/recall.py`, with 5,000 photographs of 32 x 32 and the default recipe.
MEASURED_RECALL = {
    0.01: (0.7667, 0.3867),
    0.02: (0.8667, 0.6),
    0.05: (0.9667, 0.8733),
    0.1: (0.9667, 0.9667),
    0.2: (0.9667, 0.9867),
    0.3: (1.0, 0.9967),
    0.5: (1.0, 1.0),
}


def coarse_draws(images: int) -> int:
    """Draws of a coarse pass over so many images."""
    return 2 if images <= TWICE else 1


def coarse_recipe(recipe: Recipe, factor: int, draws: int = 1, train: ImageSet | None = None) -> Recipe:
    """A recipe as it looks in pictures that are ``factor`` times smaller, with few draws.

    The mean of a square of pixels has ``factor`` times less noise than each of them, so every level becomes the one
    with so much less noise, and patches become as many times smaller. Where images of the collection, ``train``, have
    shapes of their own, no patch is larger than the shortest side of one.

    >>> coarse_recipe(Recipe.preset("patchtrace"), 4).summary()
    'k 100, border match, views flips; t 22: 1; t 52: 1; t 91: 3; t 147: 3; t 230: 3'
    """
    scales: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    most = math.inf if train is None or train.extents is None else train.shortest_side // factor
    for level in recipe.levels:
        for scale, weight in level.weighted_scales():
            patch = 2 * (scale.patch // (2 * factor)) + 1 if factor > 1 else scale.patch
            scales[_quieter(recipe, level.t, factor)][int(min(patch, most))] += weight
    levels = tuple(
        Level(t, tuple(Scale(patch, weight=weight) for patch, weight in of_level.items()))
        for t, of_level in scales.items()
    )
    return replace(recipe, levels=levels, draws=draws, exponent=1.0, note="coarse pass")


def _quieter(recipe: Recipe, t: int, factor: int) -> int:
    """The timestep whose noise, relative to the picture, is nearest to that at ``t`` divided by ``factor``."""
    noises = np.array([sigma / signal for signal, sigma in map(recipe.noise_at, range(t + 1))])
    return int(np.abs(np.log(np.maximum(noises, 1e-9) * factor / noises[-1])).argmin())


def coarse_factor(side: int) -> int:
    """How many times smaller the pictures of the coarse pass are, by their shorter side."""
    return max(1, side // COARSE_SIDE)


class Coarse:
    """The coarse pass of a collection.

    Parameters
    ----------
    recipe : Recipe
        See :func:`coarse_recipe`.
    small : ImageSet
        The collection, ``factor`` times smaller.
    work : Work
        Compares with it.
    factor : int
    """

    def __init__(self, recipe: Recipe, small: ImageSet, work: Work, factor: int) -> None:
        self.recipe, self.plan = recipe, Plan.of(recipe, small.shape[1:], shapes=small.extents is not None)
        self.small, self.work, self.factor = small, work, factor
        self.times = recipe.draws if isinstance(recipe.draws, int) else 1
        self.pace = Pace([level.cost for level in self.plan.levels])
        self.cut = False

    def shares(self, query: ImageSet, watch: Watch, seconds: float = np.inf) -> NDArray[np.float64]:
        """A coarse share of each image: (train,).

        Of a time limit it takes not much more than its part: no further level is begun then, and ``cut`` says so.
        """
        clean = query.smaller(self.factor).one(0)
        times = self.times
        count, clock = Counter(watch, times * len(self.small) * len(self.plan.steps)), Clock(COARSE_TIME * seconds)
        found, levels, self.cut = np.zeros(len(self.small)), 0, False
        # the large patches first: without the small ones much is found, but not without them
        for number, draws in reversed(list(self.plan.walk([[(0, times)]] * len(self.plan.levels)))):
            if levels and clock.left <= 0:
                self.cut = True
                break
            before, noisy = clock.elapsed, draws.on(clean)
            steps = self.plan.levels[number].steps
            masses = self.work.masses(Job(noisy, step.comparison, count.per_image(1)) for step in steps)
            for step, mass in zip(steps, masses, strict=True):
                found += step.weight * mass.mean(axis=0)
            levels += 1
            self.pace.add(number, times * len(self.small), clock.elapsed - before)
        divisor = self.plan.patches
        if self.small.extents is not None:
            divisor = Plan.of(self.recipe, (clean.shape[1], clean.shape[2]), shapes=True).patches
        return found / levels / divisor


def measured_recall(part: float) -> Recall | None:
    """Recall of the longest measured list that is not longer than this; None if all measured lists are longer.

    >>> measured_recall(0.12)
    Recall(part=0.1, best_10=0.9667, best_100=0.9667)
    """
    shorter = [each for each in MEASURED_RECALL if each <= part]
    return Recall(max(shorter), *MEASURED_RECALL[max(shorter)]) if shorter else None
