"""A coarse pass over all images: small pictures, small patches, a first answer in a small part of the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Job, Work
from patchtrace.images import ImageSet
from patchtrace.nda.pace import Clock, Pace
from patchtrace.nda.plan import Plan
from patchtrace.nda_details import Recall
from patchtrace.progress import Watch
from patchtrace.recipe import Level, Recipe, Scale

#: The coarse pass: the shorter side of its pictures, about, its levels, and its draws of each. Found by trying many
#: (`benchmarks/scale.py recall` measures what it finds): small patches at low noise tell what larger pictures resemble,
#: for a small part of the work.
COARSE_SIDE, COARSE_DRAWS = 8, 4
COARSE_LEVELS = (
    Level(50, (Scale(5),)),
    Level(100, (Scale(3), Scale(7))),
    Level(200, (Scale(5),)),
)
#: The part of a time limit that the coarse pass may take, beyond its first draw.
COARSE_PART = 0.3
#: Fraction of the best 10 and the best 100 of an exact reference that a shortlist of this part of a collection holds.
#: Measured by `benchmarks/scale.py recall`, with 5,000 photographs of 32 x 32.
MEASURED_RECALL = {
    0.01: (0.7667, 0.3275),
    0.02: (0.9, 0.5258),
    0.05: (0.975, 0.8008),
    0.1: (0.9917, 0.9383),
    0.2: (1.0, 0.9858),
    0.3: (1.0, 0.9967),
    0.5: (1.0, 0.9983),
}


def coarse_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the coarse pass beside this one."""
    return replace(recipe, levels=COARSE_LEVELS, draws=COARSE_DRAWS, exponent=1.0, note="coarse pass")


def coarse_factor(size: tuple[int, int]) -> int:
    """How many times smaller the pictures of the coarse pass are."""
    return max(1, min(size) // COARSE_SIDE)


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
        self.recipe, self.plan = recipe, Plan.of(recipe, small.shape[1:])
        self.small, self.work, self.factor = small, work, factor
        self.pace = Pace([level.cost for level in self.plan.levels])

    def shares(self, query: ImageSet, clock: Clock, watch: Watch) -> NDArray[np.float64]:
        """A coarse share of each image: (train,). With little time it has fewer draws, but one at the least."""
        clean = query.smaller(self.factor).block(0, 1)[0]
        total = len(self.small) * COARSE_DRAWS
        self._done = 0

        def report(images: int) -> None:
            self._done += images
            watch(self._done, total * len(self.plan.steps))

        found = self._draws(clean, 0, 1, report)
        fits = COARSE_PART * clock.limit / (len(self.small) * self.pace.image())
        more = int(min(COARSE_DRAWS - 1, fits - 1)) if fits > 1 else 0
        if more:
            found = (found + self._draws(clean, 1, 1 + more, report)) / (1 + more)
        return found / self.plan.patches

    def _draws(
        self, clean: NDArray[np.float32], first: int, last: int, report: Callable[[int], None]
    ) -> NDArray[np.float64]:
        """The sum of draws ``first`` to ``last``, in the mean over levels."""
        found = np.zeros(len(self.small))
        clock = Clock()
        for number, draws in self.plan.walk([[(first, last)]] * len(self.plan.levels)):
            before, query = clock.elapsed, draws.on(clean)
            steps = self.plan.levels[number].steps
            masses = self.work.masses(Job(query, step.comparison, report) for step in steps)
            for step, mass in zip(steps, masses, strict=True):
                found += step.weight * mass.sum(axis=0) / len(self.plan.levels)
            self.pace.add(number, len(self.small) * len(draws), clock.elapsed - before)
        return found


def measured_recall(part: float) -> Recall | None:
    """Recall of the longest measured list that is not longer than this; None if all measured lists are longer.

    >>> measured_recall(0.12)
    Recall(part=0.1, best_10=0.9917, best_100=0.9383)
    """
    shorter = [each for each in MEASURED_RECALL if each <= part]
    return Recall(max(shorter), *MEASURED_RECALL[max(shorter)]) if shorter else None
