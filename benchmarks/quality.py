"""Recipes judged by the truth at 32 x 32 of truth.py: which patch sizes predict retraining, and for what time.

    make quality                                         # an hour on two cores; resumes where it was stopped
    .venv/bin/python benchmarks/quality.py grid          # one level and one scale at a time
    .venv/bin/python benchmarks/quality.py figures       # grid and ablations as figures of the docs
    .venv/bin/python benchmarks/quality.py chosen        # whole recipes, on the half that chooses
    .venv/bin/python benchmarks/quality.py reported      # the promising ones, on the other half
    .venv/bin/python benchmarks/quality.py soft          # patches whose pixels count by their Wiener weight
    .venv/bin/python benchmarks/quality.py ablations     # the preset with another gamma, k or largest t
    .venv/bin/python benchmarks/quality.py methods       # every method on the other half; trains a model of all images
    .venv/bin/python benchmarks/quality.py ceiling       # how well one seed of the models predicts another
    .venv/bin/python benchmarks/quality.py elsewhere     # the default on other truths
    .venv/bin/python benchmarks/quality.py costs         # seconds of a query, and what two seeds share, for all recipes
    .venv/bin/python benchmarks/quality.py first_draw    # the same for the first draw of a run without options

A recipe is chosen on a quarter of the queries and every second subset, and reported on another quarter and the other
subsets: subsets, not queries, limit the precision.
Parts of scores are kept in benchmarks/runs/truth32/parts, tables in benchmarks/results/truth32/.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import KEPT, halved
from scipy.stats import rankdata, spearmanr
from truth import HERE, SETS, TRUTHS, cifar2

from patchtrace.compute import Compute
from patchtrace.engines import Job, LocalWork, NoisyQuery, get_engine
from patchtrace.evaluate import GroundTruth
from patchtrace.evaluate.axes import ALL_LEVELS, Axes
from patchtrace.evaluate.lds import LDSComparison, compare
from patchtrace.evaluate.partial_scores import PartialScores, terms_of
from patchtrace.evaluate.scoring import score_queries
from patchtrace.evaluate.truth import split
from patchtrace.images import ImageSet
from patchtrace.methods.base import METHODS, Resources
from patchtrace.nda import NDA
from patchtrace.nda.plan import Draws, Plan
from patchtrace.recipe import TIMESTEPS, Level, Recipe, Scale

TRUTH = TRUTHS["truth32"]
WORK = TRUTH.benchmarks[SETS[0]].directory
#: Queries for the overlap of two seeds.
FEW = 10
#: Draws of machine-influence, a quarter of its default: it takes longest.
INFLUENCE_DRAWS = 1
#: Patch and pool of the grid.
GRID = [(3, 1), (5, 1), (7, 1), (9, 1), (13, 1), (21, 1), (4, 2), (8, 2), (12, 2), (20, 2), (8, 4), (16, 4)]

Rows = NDArray[np.intp]
Scores = NDArray[np.float64]
#: Scores of these queries, by a way that is not a recipe of the package.
Way = Callable[[Rows], Scores]


def full(*patches: int, pool: int = 1) -> Recipe:
    """One scale at each of the paper's levels, from the lowest on."""
    return Recipe(tuple(Level(t, (Scale(patch, pool),)) for t, patch in zip(TIMESTEPS, patches, strict=False)))


def with_pooled(*patches: tuple[int, ...]) -> Recipe:
    """Two scales or three at each of the paper's levels, pooled by 1, 2, 4; the full one has weight 0.75."""
    levels = []
    for t, (patch, *pooled) in zip(TIMESTEPS, patches, strict=False):
        low = (Scale(one, pool, weight=0.25 / len(pooled)) for one, pool in zip(pooled, (2, 4), strict=False))
        levels.append(Level(t, (Scale(patch, weight=0.75), *low)))
    return Recipe(tuple(levels))


@dataclass(frozen=True)
class Warm(Draws):
    """Draws whose logits are divided by a temperature; the noise stays as it is."""

    temperature: float = 1.0

    def on(self, clean: NDArray[np.float32], given: NDArray[np.float32] | None = None) -> NoisyQuery:
        found = super().on(clean, given)
        return replace(found, variance=found.variance * self.temperature)


def warm(recipe: Recipe, temperature: float, rows: Rows) -> Scores:
    """Scores of a recipe, by a softmax of another temperature."""
    total, parts = 0, store()
    for term, weight in terms_of(recipe, parts.train.shape[1:]):
        warmer = replace(term, draws=Warm(**vars(term.draws), temperature=temperature))
        parts.make([warmer], rows)
        total = total + weight * parts.masses(warmer, rows)
    return np.asarray(total)


def without_hubs(recipe: Recipe, part: float, rows: Rows) -> Scores:
    """Scores of a recipe, less a part of each image's mean over the queries."""
    scores = store().scores(recipe, rows)
    return np.asarray(scores - part * scores.mean(axis=0))


def with_embedding(recipe: Recipe, rows: Rows) -> Scores:
    """The mean of an image's ranks by a recipe and by the cosine of embeddings."""
    embedded = score_queries("embedding", Resources(train=store().train), store().queries, directory=WORK).variants[""]
    return np.asarray(sum(rankdata(scores, axis=1) for scores in (store().scores(recipe, rows), embedded[rows])))


PRESET = Recipe.preset("cifar")
#: Without mirrored images, which the recipes that it is compared with do not have either.
DEFAULT = replace(Recipe.preset("patchtrace"), views=())
SMALL = full(3, 5, 5, 7, 9)
#: Twice as many levels, with the patches of the default between them.
NINE = Recipe(tuple(Level(t, (Scale(3 + 2 * (t // 100)),)) for t in range(100, 501, 50)))
#: What is chosen from, all with one draw; only those that were promising are then reported.
CANDIDATES: dict[str, Recipe | Way] = {
    "`cifar`": PRESET,
    "3, 5, 5, 7, 9": SMALL,
    "3, 5, 7, 7, 9": full(3, 5, 7, 7, 9),
    "3, 3, 5, 7, 7": full(3, 3, 5, 7, 7),
    "5, 7, 9, 11, 13": DEFAULT,
    "3, 5, 5, 7 (up to t 400)": full(3, 5, 5, 7),
    "3, 5, 5 (up to t 300)": full(3, 5, 5),
    "3, 5 (up to t 200)": full(3, 5),
    "5, 7, 9, 9, 13": full(5, 7, 9, 9, 13),
    "5, 7, 9, 21, 21: `cifar` without the pooled scale": full(5, 7, 9, 21, 21),
    "3 everywhere": full(3, 3, 3, 3, 3),
    "5 everywhere": full(5, 5, 5, 5, 5),
    "3, 5, 5, 7, 9 and pooled 4, 4, 8, 8, 12": with_pooled((3, 4), (5, 4), (5, 8), (7, 8), (9, 12)),
    "5, 7, 9, 11, 13, pooled by 2 too, and by 4": with_pooled(
        (5, 8, 8), (7, 8, 12), (9, 12, 16), (11, 12, 16), (13, 16, 20)
    ),
    "5, 7, 9, 11, 13 at nine levels, each with half of the weight": NINE,
    "5, 7, 9, 11, 13, temperature 0.5": partial(warm, DEFAULT, 0.5),
    "5, 7, 9, 11, 13, temperature 2": partial(warm, DEFAULT, 2.0),
    "5, 7, 9, 11, 13 less half of the image's mean over queries": partial(without_hubs, DEFAULT, 0.5),
    "5, 7, 9, 11, 13 less the image's mean over queries": partial(without_hubs, DEFAULT, 1.0),
    "5, 7, 9, 11, 13, ranks averaged with an embedding's": partial(with_embedding, DEFAULT),
}
REPORTED: dict[str, Recipe | Way] = {
    "`cifar`": PRESET,
    "`cifar`, 4 draws": replace(PRESET, draws=4),
    "3, 5, 5, 7, 9": SMALL,
    "**5, 7, 9, 11, 13** (default)": DEFAULT,
}
#: The default as it is now: with mirrored images.
WITH_MIRRORS = {
    f"the default, mirrored too, {draws} draws": replace(Recipe.preset("patchtrace"), draws=draws) for draws in (1, 4)
}


class Half:
    """Every second query of half of both sets, and every second subset."""

    def __init__(self, number: int) -> None:
        self.queries = [split(len(TRUTH.benchmarks[name].queries))[number][::2] for name in SETS]
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

    def judge(self, ways: dict[str, Recipe | Way]) -> list[LDSComparison]:
        """Recipes and other ways on each set of queries."""
        scores = {
            name: store().scores(way, self.rows) if isinstance(way, Recipe) else way(self.rows)
            for name, way in ways.items()
        }
        cut, found = len(self.queries[0]), []
        for truth, part in zip(self.truths, (slice(cut), slice(cut, None)), strict=True):
            of_set = {name: values[part] for name, values in scores.items()}
            found.append(compare(of_set, truth.subsets, truth.losses, resamples=500))
        return found


def store() -> PartialScores:
    """Parts of scores for the queries of both sets together."""
    pictures = [np.moveaxis(TRUTH.benchmarks[name].queries.pixels[:], 1, -1) for name in SETS]
    train, queries = TRUTH.benchmarks[SETS[0]].train, ImageSet.open(np.concatenate(pictures))
    return PartialScores(train, queries, directory=WORK / "parts", compute=Compute())


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


def figures() -> None:
    """What `grid`, `ablations` and `methods` found, as docs/results-32-*.png."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    found = json.loads((TRUTH.kept / "grid.json").read_text(encoding="utf-8"))
    labels = [name.removesuffix("/1").replace("/", ", pooled by ") for name in found]
    values = np.array(list(found.values()))  # patches, timesteps, sets
    sheet, panels = plt.subplots(1, 2, figsize=(9, 4.6), sharey=True, constrained_layout=True)
    for number, (panel, name) in enumerate(zip(panels, SETS, strict=True)):
        panel.imshow(values[..., number], cmap="viridis", aspect="auto")
        best = values[..., number].argmax(axis=0)
        for (row, column), value in np.ndenumerate(values[..., number]):
            strong = "bold" if best[column] == row else "normal"
            dark = value < values[..., number].mean()
            colour = "white" if dark else "black"
            panel.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, weight=strong, color=colour)
        panel.set(title=f"LDS %, {name} queries", xlabel="timestep")
        panel.set_xticks(range(len(TIMESTEPS)), TIMESTEPS)
        panel.set_yticks(range(len(labels)), labels)
    panels[0].set_ylabel("patch")
    sheet.savefig(HERE.parent / "docs" / "results-32-grid.png", dpi=130)
    varied = json.loads((TRUTH.kept / "ablations.json").read_text(encoding="utf-8"))
    sheet, panels = plt.subplots(1, 3, figsize=(10, 3.4), sharey=True, constrained_layout=True)
    labels = {
        "gamma": "weight of the full scale (gamma)",
        "k": "patches that count (k)",
        "largest-t": "largest timestep",
    }
    for panel, (axis, rows) in zip(panels, varied.items(), strict=True):
        places = np.arange(len(rows))
        for number, (name, colour) in enumerate(zip(SETS, ("#1f5fa8", "#c2571a"), strict=True)):
            lds, gain, low, high = np.array([row[number] for row in rows.values()]).T
            panel.plot(places, lds, "o-", color=colour, label=f"{name} queries", markersize=4)
            panel.fill_between(places, lds - gain + low, lds - gain + high, color=colour, alpha=0.15, linewidth=0)
        panel.set_xticks(places, list(rows))
        panel.set_xlabel(labels[axis])
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("LDS %")
    panels[0].set_ylim(0, None)
    panels[0].legend(frameon=False, loc="lower left")
    sheet.savefig(HERE.parent / "docs" / "results-32-ablations.png", dpi=130)
    judged_methods = json.loads((TRUTH.kept / "methods.json").read_text(encoding="utf-8"))
    names = [row["method"] for row in sorted(judged_methods[SETS[0]], key=lambda row: row["lds"])]
    sheet, panels = plt.subplots(1, 2, figsize=(9, 5), sharey=True, constrained_layout=True)
    for panel, name in zip(panels, SETS, strict=True):
        rows = {row["method"]: row for row in judged_methods[name]}
        lds, low, high = (100 * np.array([rows[one][key] for one in names]) for key in ("lds", "low", "high"))
        places = np.arange(len(names))
        colours = ["#c2571a" if one.startswith("nda") else "#1f5fa8" for one in names]
        panel.hlines(places, low, high, colors=colours, alpha=0.4, linewidth=3)
        panel.scatter(lds, places, c=colours, zorder=3, s=28)
        panel.axvline(0, color="0.6", linewidth=1)
        panel.set(title=f"{name} queries", xlabel="LDS %")
        panel.set_yticks(places, [one.replace("**", "").replace("`", "") for one in names])
        panel.grid(axis="x", alpha=0.25)
    sheet.savefig(HERE.parent / "docs" / "results-32-methods.png", dpi=130)


def chosen() -> None:
    """LDS of whole recipes, on the half that chooses."""
    judged(Half(0), CANDIDATES, "chosen")


def reported() -> None:
    """LDS of promising recipes on the other half."""
    judged(Half(1), REPORTED, "reported")


def mirrored() -> None:
    """The same of the default as it is now."""
    judged(Half(1), {"`cifar`": PRESET} | WITH_MIRRORS, "mirrored")


def methods() -> None:
    """LDS of every method on the half that reports; lambda is chosen on the other half."""
    choosing, reporting = Half(0), Half(1)
    nda = {f"nda, {name}": store().scores(recipe, reporting.rows) for name, recipe in REPORTED.items()}
    model, kept = TRUTH.benchmarks[SETS[0]].retraining.with_checkpoints(), {}
    starts = 0, len(reporting.queries[0])
    for number, name in enumerate(SETS):
        benchmark, start = TRUTH.benchmarks[name], starts[number]
        resources = Resources(
            train=benchmark.train,
            compute=Compute(),
            model=model,
            cache=WORK / "gradients",
            draws=INFLUENCE_DRAWS,
        )
        rows = {half: half.queries[number] for half in (choosing, reporting)}
        scores = {label: values[start : start + len(rows[reporting])] for label, values in nda.items()}
        facts = {}
        for method in METHODS:
            if method.startswith("nda"):
                continue
            both = np.sort(np.concatenate([rows[reporting], rows[choosing]]))
            if method == "machine-influence":  # has nothing to choose, and takes long
                both = rows[reporting]
            found = score_queries(method, resources, benchmark.queries.subset(both), directory=WORK)
            places = {half: np.searchsorted(both, of_half) for half, of_half in rows.items()}
            best = ""
            if len(found.variants) > 1:
                here = replace(found, variants={key: all_[places[choosing]] for key, all_ in found.variants.items()})
                best = here.chosen(choosing.truths[number], np.arange(len(rows[choosing])))
            scores[method] = found.variants[best][places[reporting]]
            facts[method] = {"requires": found.requires, "seconds": found.seconds, "queries": len(both), "lambda": best}
            print(name, method, f"{found.seconds:.0f} s", flush=True)
        truth = reporting.truths[number]
        compared = compare(scores, truth.subsets, truth.losses, resamples=2000)
        kept[name] = [row | facts.get(row["method"], {}) for row in compared.rows("nda, `cifar`")]
        gain = compared.difference("nda, **5, 7, 9, 11, 13** (default)", "dtrak")
        low, high = (100 * end for end in gain.interval)
        print(f"{name}: default minus dtrak {100 * gain.mean:+.1f} ({low:+.1f} to {high:+.1f})")
    keep("methods", kept)
    print("\n| method | validation | minus `cifar` | generated | minus `cifar` | requires |\n|---|---|---|---|---|---|")
    second = {row["method"]: row for row in kept[SETS[1]]}
    for row in sorted(kept[SETS[0]], key=lambda row: -row["lds"]):
        cells = [cell for of_set in (row, second[row["method"]]) for cell in cells_of(of_set)]
        print(f"| {row['method']} | {' | '.join(cells)} | {row.get('requires', 'nothing')} |")


def cells_of(row: dict[str, Any]) -> list[str]:
    """LDS and paired difference of a method, in percent."""
    lds, low, high = (100 * row[key] for key in ("lds", "low", "high"))
    cells = [f"{lds:.1f} ({low:.1f} to {high:.1f})", ""]
    if row.get("difference") is not None:
        gain, low, high = (100 * row[key] for key in ("difference", "difference_low", "difference_high"))
        cells[1] = f"{gain:+.1f} ({low:+.1f} to {high:+.1f})"
    return cells


def judged(half: Half, named: dict[str, Recipe | Way], table: str) -> None:
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
    keep(f"recipes-{table}", kept)


def ablations() -> None:
    """The preset, one draw, with another gamma, k or largest t, on the queries of the choosing half and all models."""
    half = Half(0)
    half.truths = [TRUTH.truths(name)[0].select(rows) for name, rows in zip(SETS, half.queries, strict=True)]
    axes = Axes(PRESET, (32, 32), {"k": (1, 10, 100, 1000), "timestep": (*TIMESTEPS, 700)})
    kept: dict[str, dict[str, list[list[float]]]] = {}
    for axis in ("gamma", "k", "largest-t"):
        named = {str(one.value): one.recipe for one in axes.of(axis) if one.series == ALL_LEVELS}
        both = half.judge({"base": PRESET, **named})
        kept[axis] = {}
        for value in named:
            gains = [of_set.difference(value, "base") for of_set in both]
            kept[axis][value] = [
                [100 * of_set.results[value].mean, 100 * gain.mean, *(100 * end for end in gain.interval)]
                for of_set, gain in zip(both, gains, strict=True)
            ]
            cells = [
                f"{lds:.1f}, {gain:+.1f} ({low:+.1f} to {high:+.1f})" for lds, gain, low, high in kept[axis][value]
            ]
            print(f"| {axis} {value} | {' | '.join(cells)} |", flush=True)
    keep("ablations", kept)


#: Of the comparison of soft patches: the window of all of them, and levels with the sides of their hard patches.
WINDOW = 13
SOFT = {200: (5, 7), 400: (7, 11)}


def soft() -> None:
    """Hard and soft patches, one level at a time, of windows inside the picture; half of the choosing queries.

    A prototype: all pairs of windows by matrix products, without a cut at k.
    """
    half, found = Half(0), {}
    half.queries = [rows[::2] for rows in half.queries]
    train, queries = store().train, store().queries
    pixels = train.block(0, len(train))
    for t, sides in SOFT.items():
        signal, sigma = PRESET.noise_at(t)
        middle = np.abs(np.arange(WINDOW) - WINDOW // 2)
        reach = np.maximum(middle[:, None], middle)
        weights = {f"patch {side}": (reach <= side // 2).astype(np.float32) for side in sides}
        weights["soft"] = wiener(pixels, signal, sigma)
        noise = np.random.default_rng((0, t)).standard_normal(pixels.shape[1:]).astype(np.float32)
        noisy = [signal * queries.block(row, row + 1)[0] + sigma * noise for row in half.rows]
        named = {
            f"t {t}, {name}": weighted_shares(np.stack(noisy), signal * pixels, of_pixel, sigma)
            for name, of_pixel in weights.items()
        }
        both = half.judge({name: lambda _, scores=scores: scores for name, scores in named.items()})
        for name in named:
            gains = [of_set.difference(name, f"t {t}, patch {sides[0]}") for of_set in both]
            cells = [
                f"{100 * of_set.results[name].mean:.1f}, {100 * gain.mean:+.1f} "
                f"({100 * gain.interval[0]:+.1f} to {100 * gain.interval[1]:+.1f})"
                for of_set, gain in zip(both, gains, strict=True)
            ]
            found[name] = cells
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    keep("soft", found)


def wiener(pixels: NDArray[np.float32], signal: float, sigma: float) -> NDArray[np.float32]:
    """How much each pixel of a window matters for denoising its middle, by the statistics of a collection."""
    half, centre = WINDOW // 2, pixels.shape[2] // 2
    window = slice(centre - half, centre + half + 1)
    data = pixels[:, :, window, window].transpose(0, 2, 3, 1).reshape(len(pixels), -1).astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(data.T))
    gains = signal**2 * values / (sigma**2 + signal**2 * values)
    matrix = ((vectors * gains) @ vectors.T).reshape(WINDOW**2, pixels.shape[1], WINDOW**2, pixels.shape[1])
    rows = np.abs(np.einsum("icjc->ij", matrix)[WINDOW**2 // 2]).reshape(WINDOW, WINDOW)
    return (rows / rows.max()).astype(np.float32)


def weighted_shares(queries: Scores, train: Scores, weights: NDArray[np.float32], sigma: float) -> Scores:
    """Scores by windows inside the picture whose pixels count by their weight: (queries, train)."""
    used = np.flatnonzero(weights)
    scale = np.sqrt(weights.ravel()[used]).astype(np.float32)

    def windows(image: NDArray[np.float32]) -> NDArray[np.float32]:
        views = np.lib.stride_tricks.sliding_window_view(image, (WINDOW, WINDOW), axis=(1, 2))
        flat = views.transpose(1, 2, 0, 3, 4).reshape(-1, len(image), WINDOW**2)[..., used] * scale
        return np.ascontiguousarray(flat.reshape(len(flat), -1), dtype=np.float32)

    asked = np.concatenate([windows(image) for image in queries.astype(np.float32)])
    logs = np.empty((len(queries), len(train), len(asked) // len(queries)), np.float32)
    for number, image in enumerate(train.astype(np.float32)):
        others = windows(image)
        logits = asked @ (others.T / np.float32(sigma**2)) - (others**2).sum(axis=1) / np.float32(2 * sigma**2)
        most = logits.max(axis=1, keepdims=True)
        sums = np.exp(np.subtract(logits, most, out=logits), out=logits).sum(axis=1)
        logs[:, number] = (most[:, 0] + np.log(sums)).reshape(len(queries), -1)
    logs -= logs.max(axis=1, keepdims=True)
    shares = np.exp(logs)
    return np.asarray((shares / shares.sum(axis=1, keepdims=True)).sum(axis=2), np.float64)


def ceiling() -> None:
    """How well the losses of one seed predict those of another: an LDS that only the true losses would have."""
    kept = {}
    for name in SETS:
        one, other = TRUTH.truths(name)
        numbers = [truth.facts["subsets"] for truth in (one, other)]
        both = np.intersect1d(*numbers)
        losses = [
            truth.losses[np.searchsorted(of_truth, both)] for truth, of_truth in zip((one, other), numbers, strict=True)
        ]
        found = [spearmanr(*pair).statistic for pair in zip(*(rows.T for rows in losses), strict=True)]
        low, high = bootstrap(losses)
        kept[name] = {"subsets": len(both), "ceiling": float(np.mean(found)), "interval": [low, high]}
        print(f"{name}: {100 * np.mean(found):.1f} ({100 * low:.1f} to {100 * high:.1f}), {len(both)} subsets")
    keep("ceiling", kept)


def bootstrap(losses: list[NDArray[np.float64]], times: int = 500) -> tuple[float, float]:
    """A 95 % interval of that over the choice of subsets."""
    rng, means = np.random.default_rng(0), []
    for _ in range(times):
        rows = rng.integers(len(losses[0]), size=len(losses[0]))
        ranks = [rankdata(one[rows], axis=0) for one in losses]
        ranks = [one - one.mean(axis=0) for one in ranks]
        norms = np.sqrt((ranks[0] ** 2).sum(axis=0) * (ranks[1] ** 2).sum(axis=0))
        means.append(((ranks[0] * ranks[1]).sum(axis=0) / np.maximum(norms, 1e-12)).mean())
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


def elsewhere() -> None:
    """The default, with nothing chosen again, against the preset scaled with the side, on the other truths."""
    kept = {}
    for name, (train, queries, truth) in others().items():
        side = train.shape[1]
        default = Recipe.for_size(side, side)
        base = {"`cifar`, scaled": scaled(side), "its patches": replace(default, views=()), "default": default}
        named = {
            f"{label}, {draws} draws": replace(recipe, draws=draws)
            for label, recipe in base.items()
            for draws in (1, 4)
        }
        parts = PartialScores(train, queries, directory=WORK.parent / name / "parts", compute=Compute())
        scores = {label: parts.scores(recipe) for label, recipe in named.items()}
        found = compare(scores, truth.subsets, truth.losses, resamples=500)
        print(f"\n{name}: {len(queries)} queries, {len(truth.losses)} models\n")
        for draws in (1, 4):
            first, *rest = (f"{label}, {draws} draws" for label in base)
            row = [f"{100 * found.results[first].mean:.1f}"]
            for label in rest:
                gain = found.difference(label, first)
                low, high = (100 * end for end in gain.interval)
                row += [f"{100 * found.results[label].mean:.1f}", f"{100 * gain.mean:+.1f} ({low:+.1f} to {high:+.1f})"]
            kept[f"{name}, {draws} draws"] = row
            print(f"| {name} | {draws} | {' | '.join(row)} |", flush=True)
    keep("elsewhere", kept)


def others() -> dict[str, tuple[ImageSet, ImageSet, GroundTruth]]:
    """Collection, queries and truth: 16 x 16 of results.py, and grey pictures at 28 x 28 as far as they are there."""
    train, _, validation = cifar2()
    halves = [ImageSet.open(halved(pixels)) for pixels in (train, validation)]
    found = {"CIFAR-2 at 16 x 16, validation": (*halves, GroundTruth.load(KEPT / "validation" / "truth.npz"))}
    grey = TRUTHS["fashion28"]
    if (grey.kept / "generated.npz").is_file():
        for name in SETS:
            benchmark = grey.benchmarks[name]
            found[f"Fashion-MNIST, {name}"] = (benchmark.train, benchmark.queries, grey.truths(name)[0])
    return found


def scaled(side: int) -> Recipe:
    """The preset with patches in proportion to the side: odd ones, and pooled ones of two blocks or more."""
    levels = []
    for level in PRESET.levels:
        patch, pooled = (scale.patch * side / 32 for scale in level.scales)
        sizes = max(3, 2 * int(patch / 2) + 1), max(4, 2 * round(pooled / 2))
        levels.append(Level(level.t, (Scale(sizes[0], weight=0.75), Scale(sizes[1], 2, weight=0.25))))
    return Recipe(tuple(levels))


def costs() -> None:
    """Of each recipe: seconds of one query, in turns, the best of three; and what two seeds share after one draw."""
    train, query = store().train, store().queries.subset([0])
    recipes = {name: way for name, way in (CANDIDATES | REPORTED).items() if isinstance(way, Recipe)}
    seconds = dict.fromkeys(recipes, np.inf)
    for _ in range(3):
        for name, recipe in recipes.items():
            method = NDA(recipe, compute=Compute()).fit(train)
            begin = time.perf_counter()
            method.attribute(query)
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    rows, kept = Half(0).rows[:: len(Half(0).rows) // FEW], {}
    print("| recipe | seconds of `cifar` | two seeds share of 10 |\n|---|---|---|")
    for name, recipe in recipes.items():
        shared = in_common(*(store().scores(replace(recipe, seed=seed), rows) for seed in (0, 1)))
        kept[name] = [seconds[name], seconds[name] / seconds["`cifar`"], shared]
        print(f"| {name} | {kept[name][1]:.2f} | {shared:.1f} |", flush=True)
    keep("costs", kept)


def first_draw() -> None:
    """The same for the first draw of a run without options, in which patches have a noise of their own."""
    rows = Half(0).rows[:: len(Half(0).rows) // FEW]
    kept = {}
    for name, recipe in (("default", DEFAULT), ("`cifar`", PRESET)):
        begin = time.process_time()
        plain = in_common(*(one_draw(replace(recipe, seed=seed), rows) for seed in (0, 1)))
        middle = time.process_time()
        works = in_common(*(one_draw(replace(recipe, draws="auto", seed=seed), rows) for seed in (0, 1)))
        cost = (time.process_time() - middle) / (middle - begin)
        kept[name] = {"plain": plain, "own noise": works, "time": cost}
        print(f"{name}: {plain:.1f} of 10, {works:.1f} with own noise in {cost:.2f} of the time", flush=True)
    keep("first-draw", kept)


def one_draw(recipe: Recipe, rows: Rows) -> Scores:
    """Scores by the first draw of each level."""
    train, queries = store().train, store().queries
    plan, compute = Plan.of(recipe, train.shape[1:]), Compute()
    work = LocalWork(get_engine(compute, len(train) * plan.steps[0].cost), train, compute.budget)
    found = np.zeros((len(rows), len(train)))
    for place, row in enumerate(rows):
        for number, draws in plan.walk([[(0, 1)]] * len(plan.levels)):
            query, steps = draws.on(queries.block(row, row + 1)[0]), plan.levels[number].steps
            masses = work.masses(Job(query, step.comparison) for step in steps)
            found[place] += sum(step.weight * mass[0] for step, mass in zip(steps, masses, strict=True))
    return found


def in_common(one: Scores, other: Scores) -> float:
    """How many of the first ten images two seeds share, in the mean over queries."""
    tops = [np.argsort(-scores)[:, :10] for scores in (one, other)]
    return float(np.mean([len(np.intersect1d(*pair)) for pair in zip(*tops, strict=True)]))


def keep(name: str, found: object) -> None:
    """Write a table for later."""
    (TRUTH.kept / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


SECTIONS = {
    section.__name__: section
    for section in (
        grid,
        chosen,
        reported,
        mirrored,
        soft,
        ablations,
        methods,
        figures,
        ceiling,
        elsewhere,
        costs,
        first_draw,
    )
}

if __name__ == "__main__":
    for name in sys.argv[1:] or SECTIONS:
        SECTIONS[name]()
