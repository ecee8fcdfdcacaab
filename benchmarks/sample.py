"""How well a sample of images stands for all others in the normaliser: the table of docs/stability.md, five minutes.

    .venv/bin/python benchmarks/sample.py

2,000 images of CIFAR-2; the images with the largest masses in two draws of all images are compared once more in two
other draws, with a sample of the others, several times: the sum of their masses, in units of the exact sum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from answer import collection, query_of

from patchtrace.compute import Compute
from patchtrace.engines import Job, LocalWork, get_engine, sampled_masses
from patchtrace.nda.plan import Plan
from patchtrace.nda.sample import chances_of, rest_of
from patchtrace.recipe import Recipe

IMAGES, QUERIES, TIMES = 2_000, (0, 2), 2
#: Contenders and sampled images.
SIZES = ((60, 125), (60, 250), (60, 500), (60, 1000))


def ratios(recipe: Recipe, level: int) -> np.ndarray:
    """Sampled by exact sum of masses at a level, full scale: (queries x times x draws, sizes)."""
    train, compute = collection(IMAGES), Compute(threads=2)
    plan = Plan.of(replace(recipe, draws=4), train.shape[1:])
    step = plan.levels[level].steps[0]
    work = LocalWork(get_engine(compute, IMAGES * step.cost), train, compute.budget)
    [(_, draws)] = plan.walk([[(0, 4)] if number == level else [] for number in range(len(plan.levels))])
    found = []
    for number in QUERIES:
        query = draws.on(query_of(number).block(0, 1)[0])
        exact = next(work.masses([Job(query, step.comparison)]))
        seen = exact[:2].mean(axis=0)
        for time in range(TIMES):
            row = []
            for contenders, sampled in SIZES:
                listed = np.sort(np.argsort(-seen)[:contenders])
                others = np.setdiff1d(np.arange(IMAGES), listed)
                chances = chances_of(seen[others], sampled)
                rests = [rest_of(train, others, chances, np.random.default_rng((time, draw)))[1] for draw in (2, 3)]
                some = work._replace(train=train.subset(listed))
                masses = sampled_masses(some, Job(query.part(2, 4), step.comparison), rests).masses
                row.append(masses.sum(axis=1) / exact[2:, listed].sum(axis=1))
            found.append(np.stack(row, axis=-1))
    return np.concatenate(found)


def main() -> None:
    print("| t | patch | " + " | ".join(f"{some:,} + {others:,}" for some, others in SIZES) + " |")
    print("|---|---|" + "---|" * len(SIZES))
    recipe = Recipe.preset("patchtrace")
    for number, level in enumerate(recipe.levels):
        cells = [f"{one.mean():.3f} ± {one.std():.3f}" for one in ratios(recipe, number).T]
        print(f"| {level.t} | {level.scales[0].patch} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
