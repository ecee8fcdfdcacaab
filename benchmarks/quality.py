"""Recipes judged by the truth at 32 x 32 of truth.py: which patch sizes predict retraining, and for what time.

    make quality                                         # an hour on two cores; resumes where it was stopped
    .venv/bin/python benchmarks/quality.py grid          # one level and one scale at a time
    .venv/bin/python benchmarks/quality.py chosen        # whole recipes, on the half that chooses
    .venv/bin/python benchmarks/quality.py reported      # the promising ones, on the other half
    .venv/bin/python benchmarks/quality.py times         # seconds of a query, all recipes in one run

A recipe is chosen on half of the queries and every second subset, and reported on the others. Parts of scores are kept
in benchmarks/runs/truth32/parts, tables in benchmarks/results/truth32/.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from truth import SETS, TRUTHS

from patchtrace.compute import Compute
from patchtrace.evaluate import GroundTruth
from patchtrace.evaluate.lds import LDSComparison, compare
from patchtrace.evaluate.partial_scores import PartialScores
from patchtrace.evaluate.truth import split
from patchtrace.images import ImageSet
from patchtrace.nda import NDA
from patchtrace.recipe import TIMESTEPS, Level, Recipe, Scale

TRUTH = TRUTHS["truth32"]
WORK = TRUTH.benchmarks[SETS[0]].directory
#: Queries for the overlap of two seeds.
FEW = 10
#: Patch and pool of the grid.
GRID = [(3, 1), (5, 1), (7, 1), (9, 1), (13, 1), (21, 1), (4, 2), (8, 2), (12, 2), (20, 2), (8, 4), (16, 4)]

Rows = NDArray[np.intp]


def full(*patches: int, pool: int = 1) -> Recipe:
    """One scale at each of the paper's levels, from the lowest on."""
    return Recipe(tuple(Level(t, (Scale(patch, pool),)) for t, patch in zip(TIMESTEPS, patches, strict=False)))


def with_pooled(*patches: tuple[int, int]) -> Recipe:
    """Two scales at each of the paper's levels, weighted as in the paper."""
    return Recipe(
        tuple(
            Level(t, (Scale(patch, weight=0.75), Scale(pooled, 2, weight=0.25)))
            for t, (patch, pooled) in zip(TIMESTEPS, patches, strict=False)
        )
    )


PRESET, DEFAULT = Recipe.preset("cifar"), Recipe.preset("patchtrace")
#: What is chosen from, all with one draw; only those that were promising are then reported.
CANDIDATES = {
    "`cifar`": PRESET,
    "3, 5, 5, 7, 9": DEFAULT,
    "3, 5, 7, 7, 9": full(3, 5, 7, 7, 9),
    "3, 3, 5, 7, 7": full(3, 3, 5, 7, 7),
    "3, 5, 5, 7 (up to t 400)": full(3, 5, 5, 7),
    "3, 5, 5 (up to t 300)": full(3, 5, 5),
    "3, 5 (up to t 200)": full(3, 5),
    "5, 7, 9, 9, 13": full(5, 7, 9, 9, 13),
    "5, 7, 9, 21, 21: `cifar` without the pooled scale": full(5, 7, 9, 21, 21),
    "3 everywhere": full(3, 3, 3, 3, 3),
    "5 everywhere": full(5, 5, 5, 5, 5),
    "3, 5, 5, 7, 9 and pooled 4, 4, 8, 8, 12": with_pooled((3, 4), (5, 4), (5, 8), (7, 8), (9, 12)),
}
REPORTED = {
    "`cifar`": PRESET,
    "`cifar`, 4 draws": replace(PRESET, draws=4),
    "5, 7, 9, 11, 13": full(5, 7, 9, 11, 13),
    "**3, 5, 5, 7, 9** (default)": DEFAULT,
    "3, 5, 5, 7, 9, 4 draws": replace(DEFAULT, draws=4),
}


class Half:
    """Half of the queries of both sets, and every second subset."""

    def __init__(self, number: int) -> None:
        self.queries = [split(len(TRUTH.benchmarks[name].queries))[number] for name in SETS]
        self.number = number

    @cached_property
    def truths(self) -> list[GroundTruth]:
        """What is known about each set, by the first seed."""
        found = []
        for name, rows in zip(SETS, self.queries, strict=True):
            truth = TRUTH.truths(name)[0].select(rows)
            mine = np.array(TRUTH.truths(name)[0].facts["subsets"]) % 2 == self.number
            found.append(replace(truth, subsets=truth.subsets[mine], losses=truth.losses[mine]))
        return found

    @property
    def rows(self) -> Rows:
        """Their numbers among all queries, one set after the other."""
        return np.concatenate([self.queries[0], len(TRUTH.benchmarks[SETS[0]].queries) + self.queries[1]])

    def judge(self, recipes: dict[str, Recipe]) -> list[LDSComparison]:
        """The recipes on each set of queries."""
        scores = {name: store().scores(recipe, self.rows) for name, recipe in recipes.items()}
        cut, found = len(self.queries[0]), []
        for truth, part in zip(self.truths, (slice(cut), slice(cut, None)), strict=True):
            of_set = {name: values[part] for name, values in scores.items()}
            found.append(compare(of_set, truth.subsets, truth.losses, resamples=500))
        return found


def store() -> PartialScores:
    """Parts of scores for the queries of both sets together."""
    pictures = [np.moveaxis(TRUTH.benchmarks[name].queries.pixels[:], 1, -1) for name in SETS]
    train, queries = TRUTH.benchmarks[SETS[0]].train, ImageSet.open(np.concatenate(pictures))
    return PartialScores(train, queries, directory=WORK / "parts", compute=Compute(threads=2))


def grid() -> None:
    """LDS of one level and one scale at a time, on the half that chooses."""
    half, found = Half(0), {}
    for patch, pool in GRID:
        named = {str(t): Recipe((Level(t, (Scale(patch, pool),)),)) for t in TIMESTEPS}
        both = half.judge(named)
        found[f"{patch}/{pool}"] = [[100 * of_set.results[t].mean for of_set in both] for t in named]
        print(patch, pool, found[f"{patch}/{pool}"], flush=True)
    print("| patch | " + " | ".join(f"t {t}" for t in TIMESTEPS) + " |\n|---" + "|---" * len(TIMESTEPS) + "|")
    for name, row in found.items():
        patch, pool = name.split("/")
        label = patch if pool == "1" else f"{patch}, pooled by {pool}"
        print(f"| {label} | " + " | ".join(f"{one:.1f} / {other:.1f}" for one, other in row) + " |")
    keep("grid", found)


def chosen() -> None:
    """LDS of whole recipes, on the half that chooses."""
    judged(Half(0), CANDIDATES)


def reported() -> None:
    """LDS of promising recipes on the other half, and how much of a list two seeds share."""
    judged(Half(1), REPORTED)
    print()
    rows = Half(1).rows[:: len(Half(1).rows) // FEW]
    for name in ("`cifar`", "**3, 5, 5, 7, 9** (default)"):
        tops = [np.argsort(-store().scores(replace(REPORTED[name], seed=seed), rows))[:, :10] for seed in (0, 1)]
        shared = [len(np.intersect1d(*pair)) for pair in zip(*tops, strict=True)]
        print(f"{name}: two seeds share {np.mean(shared):.1f} of their first 10 after one draw")


def judged(half: Half, named: dict[str, Recipe]) -> None:
    """A table of recipes on both sets of queries."""
    both, kept = half.judge(named), {}
    print(f"\n{len(half.rows)} queries and {len(half.truths[0].losses)} models\n")
    print("| recipe | validation | minus `cifar` | generated | minus `cifar` |\n|---|---|---|---|---|")
    for name in named:
        cells = []
        for of_set in both:
            result, gain = of_set.results[name], of_set.difference(name, "`cifar`")
            low, high = (100 * end for end in gain.interval)
            cells += [f"{100 * result.mean:.1f}", f"{100 * gain.mean:+.1f} ({low:+.1f} to {high:+.1f})"]
        kept[name] = cells
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    keep(f"recipes-{'reported' if half.number else 'chosen'}", kept)


def times() -> None:
    """Seconds of one query for each recipe, in turns, the best of three."""
    train, query = TRUTH.benchmarks[SETS[0]].train, TRUTH.benchmarks[SETS[0]].queries.subset([0])
    best = dict.fromkeys(REPORTED, np.inf)
    for _ in range(3):
        for name, recipe in REPORTED.items():
            method = NDA(recipe, compute=Compute(threads=2)).fit(train)
            begin = time.perf_counter()
            method.attribute(query)
            best[name] = min(best[name], time.perf_counter() - begin)
    for name, seconds in best.items():
        print(f"{name}: {seconds:.2f} s, {seconds / best['`cifar`']:.2f} of `cifar`")
    keep("times", best)


def keep(name: str, found: object) -> None:
    """Write a table for later."""
    (TRUTH.kept / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


SECTIONS = {section.__name__: section for section in (grid, chosen, reported, times)}

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()
