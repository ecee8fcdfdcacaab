"""How much of a list stays with other noise, and what that costs.

    make stability                                     # N = 1000 and 5000, hours; goes on where it was stopped
    .venv/bin/python benchmarks/stability.py 1000      # one of them
    .venv/bin/python benchmarks/stability.py rotations # what draws turned into each other have in common

Draws of the noise are made once, for each level, query and collection, and kept in results/stability/ (not part of the
project). Everything else is computed from them: plain sampling, antithetic pairs, draws where the variance is. Writes
results/stability.json, prints the tables of docs/stability.md and draws its figure.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from patchtrace import ImageSet, Recipe
from patchtrace.engines import NoisyQuery, get_engine, image_masses
from patchtrace.methods.nda import levels_of
from patchtrace.sampling import Moments, Plan, chance_of_top, estimate

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
KEPT = HERE / "results" / "stability"
RESULTS = HERE / "results" / "stability.json"
FIGURE = HERE.parent / "docs" / "stability.png"
QUERIES = 8
RECIPE = Recipe.preset("cifar")
#: Pairs of draws that are made for each of the two runs: of levels with small patches, and of those with large ones.
PAIRS = {False: 4, True: 32}
TOP = 10


def large(t: int) -> bool:
    return t >= 400


def collected(images: int) -> tuple[list[list[np.ndarray]], list[float]]:
    """Values [query][level] (runs, pairs, 2, images), and the seconds that a draw takes at each level."""
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:images]), ImageSet.open(archive["val"][:QUERIES])
    levels = levels_of(RECIPE, train.shape[1:])
    engine = get_engine("native")
    KEPT.mkdir(parents=True, exist_ok=True)
    seconds_path = KEPT / f"seconds-{images}.json"
    seconds: dict[str, float] = json.loads(seconds_path.read_text()) if seconds_path.exists() else {}
    values: list[list[np.ndarray]] = []
    with tqdm(total=QUERIES * sum(2 * PAIRS[large(level.t)] for level in levels), disable=None) as bar:
        for q in range(QUERIES):
            clean = queries.block(q, q + 1)[0]
            values.append([])
            for level in levels:
                pairs = PAIRS[large(level.t)]
                path = KEPT / f"{images}-{q}-{level.t}.npy"
                if not path.exists():
                    found = np.empty((2, pairs, 2, images), dtype=np.float32)
                    begin = time.perf_counter()
                    for run in range(2):
                        for first in range(0, pairs, 4):
                            eps = [
                                np.random.default_rng((run, level.t, pair)).standard_normal(train.shape)
                                for pair in range(first, first + 4)
                            ]
                            noise = np.stack([sign * one for one in eps for sign in (1, -1)]).astype(np.float32)
                            noisy = NoisyQuery.of(clean, noise, *RECIPE.noise_at(level.t))
                            masses = sum(
                                step.weight
                                * image_masses(engine, noisy, train, step.comparison, flips=False, memory=10**9)
                                for step in level.steps
                            )
                            found[run, first : first + 4] = masses.reshape(4, 2, images)
                            bar.update(4)
                    # best of all queries: other programs only ever make it slower
                    each = (time.perf_counter() - begin) / (4 * pairs)
                    seconds[str(level.t)] = min(each, seconds.get(str(level.t), np.inf))
                    np.save(path, found)
                    seconds_path.write_text(json.dumps(seconds))
                else:
                    bar.update(2 * pairs)
                values[-1].append(np.load(path, mmap_mode="r"))
    return values, [seconds[str(level.t)] for level in levels]


# --- two runs compared ---


def compared(one: np.ndarray, two: np.ndarray) -> tuple[float, float, float]:
    """Overlap of the first 10 and of the first 50, and the correlation of the scores."""
    overlaps = [len(set(np.argsort(-one)[:n]) & set(np.argsort(-two)[:n])) / n for n in (10, 50)]
    return overlaps[0], overlaps[1], float(np.corrcoef(one, two)[0, 1])


def plain(values: list[np.ndarray], run: int, draws: int) -> np.ndarray:
    """Independent draws, as many at every level."""
    return np.mean([level[run, :draws, 0].mean(axis=0, dtype=float) for level in values], axis=0)


def antithetic(values: list[np.ndarray], run: int, draws: int) -> np.ndarray:
    return np.mean([level[run, : draws // 2].mean(axis=(0, 1), dtype=float) for level in values], axis=0)


def adaptive(values: list[np.ndarray], run: int, costs: list[float], most: float) -> dict[str, Any]:
    """What ``draws="auto"`` does, until the list is settled or so many seconds are spent."""
    moments = [Moments.of(level.shape[-1]) for level in values]
    plan = Plan(costs, 2 * PAIRS[True])
    added = [1] * len(values)
    spent = 0.0
    while True:
        for level, found, pairs in zip(values, moments, added, strict=True):
            first = found.draws // 2
            for pair in range(first, min(first + pairs, level.shape[1])):
                found.add(level[run, pair].astype(float))
        spent = sum(found.draws * cost for found, cost in zip(moments, costs, strict=True))
        result = estimate(moments)
        sure = float(np.sort(chance_of_top(result, TOP))[::-1][:TOP].mean())
        added = plan.next(moments, TOP)
        over = any(m.draws // 2 + n > level.shape[1] for m, n, level in zip(moments, added, values, strict=True))
        if sure >= 0.95 or not any(added) or over or spent >= most:
            return {"mean": result.mean, "seconds": spent, "sure": sure, "draws": [m.draws for m in moments]}


def measured(images: int) -> dict[str, Any]:
    values, costs = collected(images)
    whole = sum(costs)
    rows = []

    def row(name: str, results: list[tuple[np.ndarray, np.ndarray]], seconds: float, **more: Any) -> None:
        each = np.array([compared(*two) for two in results])
        rows.append(
            {"name": name, "seconds": seconds, "top 10": each[:, 0].mean(), "top 50": each[:, 1].mean(),
             "correlation": each[:, 2].mean(), **more}
        )  # fmt: skip

    for draws in (1, 2, 4):
        row(f"plain, {draws}", [tuple(plain(v, run, draws) for run in (0, 1)) for v in values], draws * whole)
    for draws in (2, 4, 8):
        row(f"pairs, {draws}", [tuple(antithetic(v, run, draws) for run in (0, 1)) for v in values], draws * whole)
    for most in (2, 3, 4, 6, 8, 12, 16):
        runs = [[adaptive(v, run, costs, most * whole) for run in (0, 1)] for v in values]
        row(
            f"auto, up to {most}",
            [(a["mean"], b["mean"]) for a, b in runs],
            float(np.mean([one["seconds"] for two in runs for one in two])),
            settled=float(np.mean([one["sure"] >= 0.95 for two in runs for one in two])),
            settled_overlap=_mean(
                [compared(a["mean"], b["mean"])[0] for a, b in runs if min(a["sure"], b["sure"]) >= 0.95]
            ),
            draws=np.mean([one["draws"] for two in runs for one in two], axis=0).round(1).tolist(),
        )
    return {
        "images": images,
        "seconds of a draw": costs,
        "rows": rows,
        "variance": where(values),
        "gains": gains(values),
        "needed": needed(values),
        "coverage": coverage(values),
    }


def _mean(values: list[float]) -> float | None:
    return float(np.mean(values)) if values else None


def where(values: list[list[np.ndarray]]) -> list[float]:
    """The part of each level in the variance of one draw, over the first 50 images of each query."""
    parts = []
    for of_query in values:
        means = np.mean([level[:, :, :, :].mean(axis=(0, 1, 2), dtype=float) for level in of_query], axis=0)
        first = np.argsort(-means)[:50]
        parts.append([level[:, :, 0][:, :, first].reshape(-1, 50).var(axis=0, ddof=1).sum() for level in of_query])
    shares = np.array(parts) / np.sum(parts, axis=1, keepdims=True)
    return [float(x) for x in shares.mean(axis=0)]


def gains(values: list[list[np.ndarray]]) -> list[float]:
    """For each level how many independent draws a draw in a pair is worth."""
    found = []
    for number in range(len(values[0])):
        each = []
        for of_query in values:
            level = of_query[number]
            first = np.argsort(-level.mean(axis=(0, 1, 2), dtype=float))[:50]
            draws = level[..., first].reshape(-1, 2, 50).astype(float)
            off = draws - draws.mean(axis=(0, 1))
            each.append((off**2).mean() / (off**2 + off * off[:, ::-1]).mean())
        found.append(float(np.mean(each)))
    return found


def needed(values: list[list[np.ndarray]]) -> list[float]:
    """For each level the part of the images that together hold 98 % of the weight, in the mean over draws."""
    found = []
    for number in range(len(values[0])):
        each = []
        for of_query in values:
            weights = np.sort(of_query[number].mean(axis=(0, 1, 2), dtype=float))[::-1]
            each.append((np.searchsorted(weights.cumsum() / weights.sum(), 0.98) + 1) / len(weights))
        found.append(float(np.mean(each)))
    return found


def rotations() -> None:
    """Correlation of scores under e with those under cos(a) e + sin(a) f: 300 images, 3 queries, 40 noises."""
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:300]), ImageSet.open(archive["val"][:3])
    engine = get_engine("native")
    for level in levels_of(RECIPE, train.shape[1:])[3:]:
        e, f = np.random.default_rng(level.t).standard_normal((2, 40, *train.shape))
        scores = {}
        for angle in (0, 30, 45, 60, 72, 90, 120, 135, 180):
            noise = (np.cos(np.deg2rad(angle)) * e + np.sin(np.deg2rad(angle)) * f).astype(np.float32)
            scores[angle] = [
                sum(
                    step.weight * image_masses(engine, noisy, train, step.comparison, flips=False, memory=10**9)
                    for step in level.steps
                )
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


def coverage(values: list[list[np.ndarray]]) -> dict[str, tuple[float, float]]:
    """How often 95 % intervals from so many draws at each level hold the mean of all others: first 50 images, all."""
    found = {}
    rng = np.random.default_rng(0)
    for draws in (2, 4, 8):
        first, everywhere = [], []
        for repeat in range(40):
            of_query = values[repeat % len(values)]
            moments, rest, rest_variance = [], [], []
            for level in of_query:
                pairs = level.reshape(-1, 2, level.shape[-1])
                order = rng.permutation(len(pairs))
                moments.append(Moments.of(level.shape[-1]))
                for pair in order[: draws // 2]:
                    moments[-1].add(pairs[pair].astype(float))
                others = pairs[np.sort(order[draws // 2 :])].mean(axis=1, dtype=float)
                rest.append(others.mean(axis=0))
                rest_variance.append(others.var(axis=0, ddof=1) / len(others))
            reference = np.mean(rest, axis=0)
            few = estimate(moments)
            width = 1.96 * np.sqrt(few.inflated() ** 2 + np.sum(rest_variance, axis=0) / len(of_query) ** 2)
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
        print("| draws | seconds | top 10 in common | top 50 | correlation | settled |\n|---|---|---|---|---|---|")
        for row in part["rows"]:
            settled = f"{row['settled']:.2f}" if "settled" in row else ""
            print(
                f"| {row['name']} | {row['seconds']:.1f} | {row['top 10']:.2f} | {row['top 50']:.2f} | "
                f"{row['correlation']:.2f} | {settled} |"
            )
        print("\n| | " + " | ".join(f"t {t}" for t in levels) + " |\n" + "|---" * (len(levels) + 1) + "|")
        costs = np.array(part["seconds of a draw"])
        print("| part of the variance | " + " | ".join(f"{x:.3f}" for x in part["variance"]) + " |")
        print("| part of the time | " + " | ".join(f"{x:.2f}" for x in costs / costs.sum()) + " |")
        print("| a draw in a pair is worth | " + " | ".join(f"{x:.2f}" for x in part["gains"]) + " |")
        print("| images that hold 98 % of the weight | " + " | ".join(f"{x:.2f}" for x in part["needed"]) + " |")
        print("\n| draws at each level | first 50 images | all images |\n|---|---|---|")
        for draws, (first, everywhere) in part["coverage"].items():
            print(f"| {draws} | {first:.3f} | {everywhere:.3f} |")


def plot(results: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(results) + 1, figsize=(4.4 * (len(results) + 1), 3.6), layout="constrained")
    for axis, (images, part) in zip(axes, results.items(), strict=False):
        for kind, colour in (("plain", "#6a737d"), ("pairs", "#e69f00"), ("auto", "#0072b2")):
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
    costs = np.array(part["seconds of a draw"])
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
