"""What the coarse pass misses: the part of an exact reference's best images that shortlists of any length have.

    make answer                              # first: its references are used here
    .venv/bin/python benchmarks/recall.py    # minutes

The figures go to benchmarks/results/recall.json and docs/scale-recall.png; src/patchtrace/nda/coarse.py quotes them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from answer import PLANS, RECIPE, collection, query_of, reference_of, references

from patchtrace import NDA, ImageSet
from patchtrace.nda.choice import CLOSER
from patchtrace.nda.coarse import coarse_draws, coarse_factor, coarse_recipe

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "recall.json"
IMAGES = 5_000
#: Shortlists whose recall is measured, as a part of the collection.
PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def recall() -> dict[str, dict[str, list[float]]]:
    """For each way to choose a shortlist and each length: the part of the best 10 and 100 that it has."""
    references(IMAGES)
    train, factor = collection(IMAGES), coarse_factor(32)
    queries = [query_of(number) for number in range(PLANS[IMAGES].references)]
    best = [reference_of(IMAGES, number).ranking(0) for number in range(len(queries))]

    def looked_at(images: ImageSet, query: ImageSet, factor: int, draws: int) -> np.ndarray:
        method = NDA(coarse_recipe(RECIPE, factor, draws)).fit(images.smaller(factor))
        return np.argsort(-method.attribute(query.smaller(factor)).scores[0])

    def coarse(number: int, count: int) -> np.ndarray:
        some = np.sort(first_looks[number][: CLOSER * count])
        return some[looked_at(train.subset(some), queries[number], factor // 2, 1)]

    def drawn(query: ImageSet) -> np.ndarray:
        return np.argsort(-NDA(replace(RECIPE, draws=1, seed=1)).fit(train).attribute(query).scores[0])

    first_looks = [looked_at(train, query, factor, coarse_draws(IMAGES)) for query in queries]
    draws = [drawn(query) for query in queries]
    orders = [np.random.default_rng(number).permutation(IMAGES) for number in range(len(queries))]
    ways = {
        "coarse pass": coarse,
        "coarse pass, one look": lambda number, count: first_looks[number],
        "one exact draw": lambda number, count: draws[number],
        "chance": lambda number, count: orders[number],
    }
    curves: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for name, way in ways.items():
        for part in PARTS:
            count = int(part * IMAGES)
            lists = [way(number, count)[:count] for number in range(len(queries))]
            curves[name][str(part)] = [found(best, lists, top) for top in (10, 100)]
        print(name, curves[name], flush=True)
    return curves


def found(best: list[np.ndarray], lists: list[np.ndarray], top: int) -> float:
    """The part of the best that the lists have."""
    parts = [np.isin(row[:top], some).mean() for row, some in zip(best, lists, strict=True)]
    return round(float(np.mean(parts)), 4)


def draw(curves: dict[str, dict[str, list[float]]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, constrained_layout=True)
    for place, (axis, top) in enumerate(zip(axes, (10, 100), strict=True)):
        for name, curve in curves.items():
            style = {"coarse pass": "o-", "one exact draw": "s--", "chance": "k:"}.get(name, ".-")
            axis.plot(
                [100 * float(part) for part in curve], [found[place] for found in curve.values()], style, label=name
            )
        axis.set(
            xscale="log", xlabel="shortlist, % of the collection", title=f"best {top} of the reference", ylim=(0, 1.03)
        )
        axis.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set(ylim=(0, 1.03), ylabel="part of them in the shortlist")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 0.47), frameon=False)
    figure.savefig(HERE.parent / "docs" / "scale-recall.png", dpi=130)


def main() -> None:
    curves = recall()
    RESULTS.write_text(json.dumps(curves, indent=1) + "\n")
    draw(curves)


if __name__ == "__main__":
    main()
