"""How much of a list stays with other noise, and what that costs.

    make stability                                     # N = 1000 and 5000, hours; goes on where it was stopped
    .venv/bin/python benchmarks/stability.py 1000      # one of them
    .venv/bin/python benchmarks/stability.py rotations # what draws turned into each other have in common

Draws of the noise are made once, for each level, query and collection, and kept in results/stability/ (not part of the
project): plain ones, with one noise for all patches of the query, and those that patchtrace makes (pairs of a noise and
its negative at levels with small patches, patchworks at those with large ones). Everything else is computed from them.
Writes results/stability.json, prints the tables of docs/stability.md and draws its figure.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from patchtrace import Compute, ImageSet, Recipe
from patchtrace.engines import Engine, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.nda.draws import Moments, chance_of_top, estimate, next_pairs
from patchtrace.nda.plan import Draws, LevelPlan, Plan
from patchtrace.nda.query_run import GROWTH

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
KEPT = HERE / "results" / "stability"
RESULTS = HERE / "results" / "stability.json"
FIGURE = HERE.parent / "docs" / "stability.png"
QUERIES = 8
RECIPE = Recipe.preset("cifar-stable")


class Counts(NamedTuple):
    """Draws for each of the two runs: plain ones, and ours at levels with small and with large patches."""

    plain: int
    small: int
    large: int


COUNTS = {1000: Counts(16, 16, 64), 5000: Counts(2, 2, 12)}
TOP = 10
TOGETHER = 4


class Drawn(NamedTuple):
    """Values [query][level] (runs, draws, images), and the seconds that a draw takes at each level."""

    values: list[list[np.ndarray]]
    seconds: list[float]
    sizes: list[int]  # draws in a sample


def collected(images: int, kind: str) -> Drawn:
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:images]), ImageSet.open(archive["val"][:QUERIES])
    levels = Plan.of(RECIPE, train.shape[1:]).levels
    engine = get_engine(Compute(engine="native"))
    KEPT.mkdir(parents=True, exist_ok=True)
    seconds_path = KEPT / f"seconds-{kind}-{images}.json"
    seconds: dict[str, float] = json.loads(seconds_path.read_text()) if seconds_path.exists() else {}
    plain = kind == "plain"
    counts = [
        COUNTS[images].plain if plain else COUNTS[images].large if level.patchwork else COUNTS[images].small
        for level in levels
    ]
    values: list[list[np.ndarray]] = []
    with tqdm(total=QUERIES * 2 * sum(counts), disable=None, desc=f"{kind}, {images}") as bar:
        for q in range(QUERIES):
            clean = queries.block(q, q + 1)[0]
            values.append([])
            for level, count in zip(levels, counts, strict=True):
                path = KEPT / f"{kind}-{images}-{q}-{level.t}.npy"
                if not path.exists():
                    found = np.empty((2, count, images), dtype=np.float32)
                    for run, first in itertools.product(range(2), range(0, count, TOGETHER)):
                        last = min(count, first + TOGETHER)
                        if plain:
                            noise = np.random.default_rng((run, level.t, first, 1)).standard_normal(
                                (last - first, *train.shape), dtype=np.float32
                            )
                            noisy = NoisyQuery.of(clean, noise, level.signal, level.sigma)
                        else:
                            some = Draws(level.t, level.signal, level.sigma, run, level.patchwork, first, last)
                            noisy = some.on(clean)
                        begin = time.perf_counter()
                        found[run, first:last] = masses(engine, train, level, noisy)
                        # the best of all: other programs only ever make it slower
                        each = (time.perf_counter() - begin) / (last - first)
                        seconds[str(level.t)] = min(each, seconds.get(str(level.t), np.inf))
                        bar.update(last - first)
                    np.save(path, found)
                    seconds_path.write_text(json.dumps(seconds))
                else:
                    bar.update(2 * count)
                values[-1].append(np.load(path))
    sizes = [1 if plain or level.patchwork else 2 for level in levels]
    return Drawn(values, [seconds[str(level.t)] for level in levels], sizes)


def masses(engine: Engine, train: ImageSet, level: LevelPlan, noisy: NoisyQuery) -> np.ndarray:
    """The scores of all images at a level: (draws, images)."""
    found = LocalWork(engine, train, Compute().budget).masses(Job(noisy, step.comparison) for step in level.steps)
    return sum(step.weight * one for step, one in zip(level.steps, found, strict=True))


# --- two runs compared ---


def compared(one: np.ndarray, two: np.ndarray) -> tuple[float, float, float, float]:
    """Overlap of the first 10 and 50, correlation, and the error of a share in one run, over the first 50 images."""
    overlaps = [len(set(np.argsort(-one)[:n]) & set(np.argsort(-two)[:n])) / n for n in (10, 50)]
    first = np.argsort(-(one + two))[:50]
    error = np.sqrt(((one - two)[first] ** 2).mean() / 2) / (one + two)[first].mean() * 2
    return overlaps[0], overlaps[1], float(np.corrcoef(one, two)[0, 1]), float(error)


def plain(values: list[np.ndarray], run: int, draws: int) -> np.ndarray:
    """Independent draws, as many at every level."""
    return np.mean([level[run, :draws].mean(axis=0, dtype=float) for level in values], axis=0)


def adaptive(ours: Drawn, query: int, run: int, most: float) -> dict[str, Any]:
    """What ``draws="auto"`` does, until the list is settled or so many seconds are spent."""
    values = ours.values[query]
    moments = [Moments.of(level.shape[-1]) for level in values]
    costs = [level.cost for level in Plan.of(RECIPE, (32, 32)).levels]
    wanted = [2] * len(values)
    while True:
        for level, found, size, draws in zip(values, moments, ours.sizes, wanted, strict=True):
            for first in range(found.most, draws, size):
                found.add(level[run, first : first + size].astype(float))
        spent = sum(found.most * cost for found, cost in zip(moments, ours.seconds, strict=True))
        result = estimate(moments)
        sure = float(np.sort(chance_of_top(result, TOP))[::-1][:TOP].mean())
        work = GROWTH * sum(found.most * cost for found, cost in zip(moments, costs, strict=True))
        best = np.argsort(-result.mean, kind="stable")[: 2 * TOP]
        added = next_pairs(moments, best, costs, work, 2**20)
        wanted = [found.most + 2 * pairs for found, pairs in zip(moments, added, strict=True)]
        over = any(draws > level.shape[1] for draws, level in zip(wanted, values, strict=True))
        if sure >= 0.95 or over or spent >= most:
            return {"mean": result.mean, "seconds": spent, "sure": sure, "draws": [m.most for m in moments]}


def measured(images: int) -> dict[str, Any]:
    ours, ordinary = collected(images, "ours"), collected(images, "plain")
    whole = sum(ordinary.seconds)
    rows = []

    def row(name: str, results: list[tuple[np.ndarray, np.ndarray]], seconds: float, **more: Any) -> None:
        each = np.array([compared(*two) for two in results])
        rows.append(
            {"name": name, "seconds": seconds, "top 10": each[:, 0].mean(), "top 50": each[:, 1].mean(),
             "correlation": each[:, 2].mean(), "error": np.sqrt((each[:, 3] ** 2).mean()), **more}
        )  # fmt: skip

    for draws in (1, 2, 4, 8, 16):
        if draws <= COUNTS[images].plain:
            two_runs = [tuple(plain(v, run, draws) for run in (0, 1)) for v in ordinary.values]
            row(f"plain, {draws}", two_runs, draws * whole)
    for most in (1, 3, 4, 5, 6, 8, 12, 16, 24):
        runs = [[adaptive(ours, q, run, most * whole) for run in (0, 1)] for q in range(QUERIES)]
        seconds = float(np.mean([one["seconds"] for two in runs for one in two]))
        if seconds == rows[-1]["seconds"]:  # no run could go on any more
            break
        row(
            "auto, least" if most == 1 else f"auto, up to {most}",
            [(a["mean"], b["mean"]) for a, b in runs],
            seconds,
            settled=float(np.mean([one["sure"] >= 0.95 for two in runs for one in two])),
            settled_overlap=_mean(
                [compared(a["mean"], b["mean"])[0] for a, b in runs if min(a["sure"], b["sure"]) >= 0.95]
            ),
            sure=float(np.mean([one["sure"] for two in runs for one in two])),
            draws=np.mean([one["draws"] for two in runs for one in two], axis=0).round(1).tolist(),
        )
    return {
        "images": images,
        "seconds of a plain draw": ordinary.seconds,
        "seconds of a draw": ours.seconds,
        "rows": rows,
        "variance": where(ordinary),
        "gains": gains(ours, ordinary),
        "needed": needed(ours),
        "coverage": coverage(ours),
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def first_images(level: np.ndarray, count: int = 50) -> np.ndarray:
    """Those with the largest mean over all draws (runs, draws, images)."""
    return np.argsort(-level.mean(axis=(0, 1), dtype=float))[:count]


def variance(level: np.ndarray, images: np.ndarray, size: int) -> float:
    """Of one sample, the mean of so many draws, summed over images."""
    samples = level[..., images].reshape(-1, size, len(images)).mean(axis=1, dtype=float)
    return float(samples.var(axis=0, ddof=1).sum())


def where(ordinary: Drawn) -> list[float]:
    """The part of each level in the variance of one plain draw, over the first 50 images of each query."""
    parts = []
    for of_query in ordinary.values:
        first = first_images(np.mean(of_query, axis=0))
        parts.append([variance(level, first, 1) for level in of_query])
    shares = np.array(parts) / np.sum(parts, axis=1, keepdims=True)
    return [float(x) for x in shares.mean(axis=0)]


def gains(ours: Drawn, ordinary: Drawn) -> list[float]:
    """For each level how many plain draws one of ours is worth, over the first 50 images of the level."""
    found = []
    for number, size in enumerate(ours.sizes):
        sums = np.zeros(2)
        for q in range(QUERIES):
            first = first_images(ours.values[q][number])
            sums += variance(ordinary.values[q][number], first, 1), variance(ours.values[q][number], first, size) * size
        found.append(float(sums[0] / sums[1]))
    return found


def needed(ours: Drawn) -> list[float]:
    """For each level the part of the images that together hold 98 % of the weight, in the mean over draws."""
    found = []
    for number in range(len(ours.sizes)):
        each = []
        for of_query in ours.values:
            weights = np.sort(of_query[number].mean(axis=(0, 1), dtype=float))[::-1]
            each.append((np.searchsorted(weights.cumsum() / weights.sum(), 0.98) + 1) / len(weights))
        found.append(float(np.mean(each)))
    return found


def rotations() -> None:
    """Correlation of scores under e with those under cos(a) e + sin(a) f: 300 images, 3 queries, 40 noises."""
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:300]), ImageSet.open(archive["val"][:3])
    engine = get_engine(Compute(engine="native"))
    for level in Plan.of(RECIPE, train.shape[1:]).levels[3:]:
        e, f = np.random.default_rng(level.t).standard_normal((2, 40, *train.shape))
        scores = {}
        for angle in (0, 30, 45, 60, 72, 90, 120, 135, 180):
            noise = (np.cos(np.deg2rad(angle)) * e + np.sin(np.deg2rad(angle)) * f).astype(np.float32)
            scores[angle] = [
                masses(engine, train, level, noisy)
                for q in range(3)
                for noisy in [NoisyQuery.of(queries.block(q, q + 1)[0], noise, *RECIPE.noise_at(level.t))]
            ]
        for angle, turned in scores.items():
            each = []
            for first, second in zip(scores[0], turned, strict=True):
                top = np.argsort(-first.mean(axis=0))[:20]
                a, b = (one[:, top] - one[:, top].mean(axis=0) for one in (first, second))
                each.append((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
            print(f"t {level.t}, {angle} degrees: {', '.join(f'{x:.2f}' for x in each)}")


def coverage(ours: Drawn) -> dict[str, tuple[float, float]]:
    """How often 95 % intervals from so many draws at each level hold the mean of all others: first 50 images, all."""
    found = {}
    rng = np.random.default_rng(0)
    for draws in (2, 4):
        if any(2 * level.shape[1] < draws + 2 * size for level, size in zip(ours.values[0], ours.sizes, strict=True)):
            continue  # too few others to compare with
        first, everywhere = [], []
        for repeat in range(40):
            moments, rest, rest_variance = [], [], []
            for level, size in zip(ours.values[repeat % QUERIES], ours.sizes, strict=True):
                samples = level.reshape(-1, size, level.shape[-1])
                order = rng.permutation(len(samples))
                moments.append(Moments.of(level.shape[-1]))
                for sample in order[: draws // size]:
                    moments[-1].add(samples[sample].astype(float))
                others = samples[np.sort(order[draws // size :])].mean(axis=1, dtype=float)
                rest.append(others.mean(axis=0))
                rest_variance.append(others.var(axis=0, ddof=1) / len(others))
            reference = np.mean(rest, axis=0)
            few = estimate(moments)
            width = 1.96 * np.sqrt(few.inflated() ** 2 + np.sum(rest_variance, axis=0) / len(rest) ** 2)
            inside = np.abs(few.mean - reference) < width
            first.append(inside[np.argsort(-reference)[:50]].mean())
            everywhere.append(inside.mean())
        found[str(draws)] = (float(np.mean(first)), float(np.mean(everywhere)))
    return found


# --- tables and figure ---


def print_tables(results: dict[str, Any]) -> None:
    levels = [level.t for level in RECIPE.levels]
    for images, part in results.items():
        print(f"\nN = {images}, {QUERIES} queries\n")
        print("| draws | seconds | top 10 in common | top 50 | correlation | error | settled |\n" + "|---" * 7 + "|")
        for row in part["rows"]:
            settled = f"{row['settled']:.2f}" if "settled" in row else ""
            print(
                f"| {row['name']} | {row['seconds']:.1f} | {row['top 10']:.2f} | {row['top 50']:.2f} | "
                f"{row['correlation']:.2f} | {100 * row['error']:.0f} % | {settled} |"
            )
        print("\n| | " + " | ".join(f"t {t}" for t in levels) + " |\n" + "|---" * (len(levels) + 1) + "|")
        costs, ours = (np.array(part[f"seconds of a {kind}draw"]) for kind in ("plain ", ""))
        for name, numbers, digits in (
            ("part of the variance of a plain draw", part["variance"], 3),
            ("part of its time", costs / costs.sum(), 2),
            ("a draw of ours is worth", part["gains"], 1),
            ("and takes", ours / costs, 2),
            ("images that hold 98 % of the weight", part["needed"], 2),
        ):
            print(f"| {name} | " + " | ".join(f"{x:.{digits}f}" for x in numbers) + " |")
        if part["coverage"]:
            print("\n| draws at each level | first 50 images | all images |\n|---|---|---|")
        for draws, (first, everywhere) in part["coverage"].items():
            print(f"| {draws} | {first:.3f} | {everywhere:.3f} |")


def plot(results: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results) + 1, figsize=(4.4 * (len(results) + 1), 3.6), layout="constrained")
    for axis, (images, part) in zip(axes, results.items(), strict=False):
        for kind, colour in (("plain", "#6a737d"), ("auto", "#0072b2")):
            rows = [row for row in part["rows"] if row["name"].startswith(kind)]
            axis.plot([r["seconds"] for r in rows], [r["top 10"] for r in rows], "o-", color=colour, label=kind)
        axis.set(xscale="log", ylim=(0, 1), title=f"{images} images", xlabel="seconds for a query",
                 ylabel="of the top 10, in both of two runs")  # fmt: skip
        ticks = [1, 2, 5, 10, 20, 50, 100, 200, 500]
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xticks([], minor=True)
        axis.set_xlim(0.8 * part["rows"][0]["seconds"], 1.3 * max(row["seconds"] for row in part["rows"]))
        axis.grid(alpha=0.3)
        axis.legend()
    part = next(iter(results.values()))
    names = [f"t {level.t}\nP {level.scales[0].patch}" for level in RECIPE.levels]
    places = np.arange(len(names))
    costs = np.array(part["seconds of a plain draw"])
    axes[-1].bar(places - 0.2, part["variance"], 0.4, color="#d55e00", label="of the variance")
    axes[-1].bar(places + 0.2, costs / costs.sum(), 0.4, color="#56b4e9", label="of the time")
    axes[-1].set(xticks=places, xticklabels=names, ylabel="part", title="where the variance is")
    axes[-1].legend()
    figure.savefig(FIGURE, dpi=110)


def main() -> None:
    if sys.argv[1:] == ["rotations"]:
        rotations()
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for images in sys.argv[1:] or ["1000", "5000"]:
        results[images] = measured(int(images))
        RESULTS.write_text(json.dumps(results, indent=1))
    print_tables(results)
    plot(results)


if __name__ == "__main__":
    main()
