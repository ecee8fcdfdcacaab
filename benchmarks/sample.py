"""How well a sample of images stands for all others in the normaliser: the tables of docs/stability.md.

    .venv/bin/python benchmarks/sample.py            # 2,000 images of CIFAR-2, five minutes
    .venv/bin/python benchmarks/sample.py 50000      # the images of benchmarks/scale.py, half an hour

The images with the largest masses in two draws of all images are compared once more in two other draws, with a sample
of the others, several times: the sum of their masses, in units of the exact sum.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from answer import collection, query_of

from patchtrace.compute import Compute
from patchtrace.engines import Job, LocalWork, get_engine, sampled_masses
from patchtrace.nda.plan import Plan
from patchtrace.nda.sample import chances_of, rest_of
from patchtrace.recipe import Recipe


class Size(NamedTuple):
    """What is measured with so many images: queries, how often, at which levels, and images in a sample."""

    queries: tuple[int, ...]
    times: int
    levels: tuple[int, ...]
    sampled: tuple[int, ...]


PLANS = {
    2_000: Size((0, 2), 2, (0, 1, 2, 3, 4), (125, 250, 500, 1000)),
    50_000: Size((0,), 2, (0, 1), (1000, 2000, 3000)),
}
#: Images that are compared, and never sampled.
CONTENDERS = 60


def ratios(recipe: Recipe, images: int, level: int) -> np.ndarray:
    """Sampled by exact sum of masses at a level, full scale: (queries x times x draws, sizes)."""
    train, compute, size = collection(images), Compute(threads=2), PLANS[images]
    plan = Plan.of(replace(recipe, draws=4), train.shape[1:])
    step = plan.levels[level].steps[0]
    work = LocalWork(get_engine(compute, images * step.cost), train, compute.budget)
    [(_, draws)] = plan.walk([[(0, 4)] if number == level else [] for number in range(len(plan.levels))])
    found = []
    for number in size.queries:
        query = draws.on(query_of(number).block(0, 1)[0])
        exact = next(work.masses([Job(query, step.comparison)]))
        seen = exact[:2].mean(axis=0)
        listed = np.sort(np.argsort(-seen)[:CONTENDERS])
        others = np.setdiff1d(np.arange(images), listed)
        some = work._replace(train=train.subset(listed))
        for time in range(size.times):
            row = []
            for sampled in size.sampled:
                chances = chances_of(seen[others], sampled)
                rests = [rest_of(train, others, chances, np.random.default_rng((time, draw)))[1] for draw in (2, 3)]
                masses = sampled_masses(some, Job(query.part(2, 4), step.comparison), rests).masses
                row.append(masses.sum(axis=1) / exact[2:, listed].sum(axis=1))
            found.append(np.stack(row, axis=-1))
    return np.concatenate(found)


def main() -> None:
    images = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    if images not in PLANS:
        sys.exit(f"{images} is not one of {', '.join(map(str, PLANS))}")
    size, recipe = PLANS[images], Recipe.preset("patchtrace")
    print("| t | patch | " + " | ".join(f"{CONTENDERS} + {others:,}" for others in size.sampled) + " |")
    print("|---|---|" + "---|" * len(size.sampled))
    for number in size.levels:
        level = recipe.levels[number]
        cells = [f"{one.mean():.3f} ± {one.std():.3f}" for one in ratios(recipe, images, number).T]
        print(f"| {level.t} | {level.scales[0].patch} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
