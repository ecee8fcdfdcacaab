"""How long a draw would take on this machine, tried on a few made-up images."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Compute
from patchtrace.engines import Job, LocalWork, get_engine
from patchtrace.images import ImageSet
from patchtrace.nda.pace import Clock, Pace
from patchtrace.nda.plan import Plan
from patchtrace.recipe import Recipe

#: Images of the trial (fixed costs of a draw would count too much with fewer); seconds after which no level is begun.
IMAGES, SECONDS = 256, 2.0


def seconds_of_an_image(
    recipe: Recipe, size: tuple[int, int], compute: Compute | None = None, channels: int = 3
) -> float:
    """Seconds that one draw of one image of this height, width and number of channels takes at all levels, about.

    Levels are tried one after the other, the one with the least work first. If that takes too long, the others are
    estimated by their number of pairs.

    >>> seconds_of_an_image(Recipe.for_size(8, 8), (8, 8)) > 0
    True
    """
    compute = compute or Compute()
    plan = Plan.of(recipe, size)
    costs = [level.cost for level in plan.levels]
    few = IMAGES if sum(costs) < 10**8 else 1
    images = ImageSet.open(_smooth_pictures(few, size, channels), layout="NHWC")
    engine = get_engine(compute, few * sum(costs))
    work, clean = LocalWork(engine, images, compute.budget), images.block(0, 1)[0]
    pace = Pace(costs)
    time_levels(plan, clean, work, pace, draws=2, seconds=SECONDS)
    return pace.image()


def time_levels(
    plan: Plan, clean: NDArray[np.float32], work: LocalWork, pace: Pace, *, draws: int, seconds: float | None = None
) -> None:
    """Compare so many draws of a query at each level, the cheapest first, and add the time of each to the pace.

    After so many seconds no level is begun.
    """
    clock = Clock(seconds)
    pieces = plan.walk([[(0, draws)]] * len(plan.levels))
    for number, some in sorted(pieces, key=lambda piece: plan.levels[piece[0]].cost):
        if clock.left <= 0:
            return
        before, query = clock.elapsed, some.on(clean)
        for _ in work.masses(Job(query, step.comparison) for step in plan.levels[number].steps):
            pass
        pace.add(number, len(some) * len(work.train), clock.elapsed - before)


def _smooth_pictures(count: int, size: tuple[int, int], channels: int) -> NDArray[np.uint8]:
    """Random colours that change slowly, as in photographs: patches of pure noise take longer to compare."""
    rows, columns = (-(-side // 8) for side in size)
    coarse = np.random.default_rng(0).integers(0, 256, (count, rows, columns, channels), dtype=np.uint8)
    return coarse.repeat(8, axis=1).repeat(8, axis=2)[:, : size[0], : size[1]]
