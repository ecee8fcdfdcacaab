"""Attribution where the truth is known: queries painted by the score machine, and the machine's own retraining.

    make provenance                                    # everything, about 20 minutes on two cores
    .venv/bin/python benchmarks/provenance.py recall   # one section again

Prints the tables of docs/provenance.md and draws its pictures. Results of finished sections stay in
results/provenance.json, so that an interrupted run goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from tqdm import tqdm

from patchtrace import (
    NDA,
    Attribution,
    ImageSet,
    MachineInfluence,
    PixelSimilarity,
    RandomScores,
    Recipe,
    ScoreMachine,
)
from patchtrace.demo import painted_from, postcards
from patchtrace.drawing.sheet import contact_sheet

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
RESULTS = HERE / "results" / "provenance.json"
DOCS = HERE.parent / "docs"
#: An image counts as a source of a picture if the machine took at least this part of the picture from it.
SOURCE = 0.05
SEED = 7


def collections() -> dict[str, tuple[ImageSet, ImageSet]]:
    """For each collection its images, and others that are not in it."""
    cards = postcards(700)
    found = {"postcards": (cards.subset(range(600)), cards.subset(range(600, 700)))}
    if PICTURES.exists():
        with np.load(PICTURES) as archive:
            found["CIFAR-2"] = ImageSet.open(archive["train"][:1000]), ImageSet.open(archive["val"][:100])
    else:
        print("CIFAR-2 is not at hand: postcards only")
    return found


def methods() -> dict[str, Any]:
    """One draw for both: ten comparisons of each image for NDA, and ten for influence."""
    return {
        "NDA": NDA(Recipe.preset("cifar")),
        "MachineInfluence": MachineInfluence(draws=1),
        "pixel": PixelSimilarity(),
        "random": RandomScores(),
    }


def scores(method: Any, train: ImageSet, queries: ImageSet) -> np.ndarray:
    with tqdm(total=1, desc=method.name, disable=None, leave=False) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        result: Attribution = method.fit(train).attribute(queries, progress=progress)
    return result.scores


# --- sections ---


def recall() -> dict[str, Any]:
    """Queries painted from a handful: how many of their sources are among the first ten of all images?"""
    table = {}
    for name, (train, _) in collections().items():
        rng = np.random.default_rng(SEED)
        handfuls = [rng.choice(len(train), 5, replace=False).tolist() for _ in range(16)]
        queries, provenance = painted_from(train, handfuls)
        sources = provenance.shares >= SOURCE
        rows = {}
        for title, method in methods().items():
            ranks = np.argsort(np.argsort(-scores(method, train, queries), axis=1), axis=1)
            found = (sources & (ranks < 10)).sum(axis=1) / sources.sum(axis=1)
            first = np.take_along_axis(ranks, provenance.shares.argmax(axis=1)[:, None], axis=1) < 10
            rows[title] = {
                "recall": found.mean(),
                "error": found.std(ddof=1) / np.sqrt(len(found)),
                "main source": first.mean(),
            }
        table[name] = {
            "images": len(train),
            "queries": len(queries),
            "sources": sources.sum(axis=1).mean(),
            "rows": rows,
        }
    return table


def agreement() -> dict[str, Any]:
    """Pictures painted from all images: do methods rank the images as the machine's own account does?"""
    table = {}
    for name, (train, _) in collections().items():
        train = train.subset(range(200))
        samples = ScoreMachine(train).sample(16, seed=SEED)
        queries = ImageSet(samples.images, tuple(str(i) for i in range(16)))
        rows = {}
        for title, method in methods().items():
            found = scores(method, train, queries)
            each = [spearmanr(a, b).statistic for a, b in zip(found, samples.shares, strict=True)]
            rows[title] = {"correlation": float(np.mean(each)), "least": float(np.min(each))}
        table[name] = {"images": len(train), "queries": len(queries), "rows": rows}
    return table


def retraining() -> dict[str, Any]:
    """Linear datamodeling score against the machine itself: 64 machines with half of the images each."""
    table = {}
    for name, (train, others) in collections().items():
        train, queries = train.subset(range(400)), others.subset(range(12))
        rng = np.random.default_rng(SEED)
        masks = np.zeros((64, len(train)), dtype=bool)
        for mask in masks:
            mask[rng.choice(len(train), len(train) // 2, replace=False)] = True
        begin = time.perf_counter()
        losses = ScoreMachine(train).loss(queries, draws=2, seed=100, weights=masks)
        seconds = time.perf_counter() - begin
        rows = {}
        candidates = {
            **methods(),
            "NDA, 4 draws": NDA(replace(Recipe.preset("cifar"), draws=4)),
            "MachineInfluence, 4 draws": MachineInfluence(draws=4),
            "MachineInfluence, the loss's own noise": MachineInfluence(draws=2, seed=100),
        }
        for title, method in candidates.items():
            predicted = scores(method, train, queries).astype(float) @ masks.T  # (queries, machines)
            each = [spearmanr(-p, loss).statistic for p, loss in zip(predicted, losses.T, strict=True)]
            rows[title] = {"lds": float(np.mean(each)), "error": float(np.std(each, ddof=1) / np.sqrt(len(each)))}
        table[name] = {"images": len(train), "queries": len(queries), "machines": 64, "seconds": seconds, "rows": rows}
    return table


def planted() -> dict[str, Any]:
    """A square of one image pasted into a picture that is not in the set: is the image found, and the place?"""
    table = {}
    side = 14
    for name, (train, others) in collections().items():
        rng = np.random.default_rng(SEED)
        count = 12
        chosen = rng.choice(len(train), count, replace=False)
        pixels = others.pixels[:count].copy()
        places = rng.integers(0, 32 - side, (count, 2))
        inside = np.zeros((count, 32, 32), dtype=bool)
        for number, (index, (top, left)) in enumerate(zip(chosen, places, strict=True)):
            square = np.s_[top : top + side, left : left + side]
            pixels[number][:, *square] = train.pixels[index][:, *square]
            inside[number][square] = True
        queries = ImageSet(pixels, tuple(str(i) for i in range(count)))
        rows = {}
        for title, method in methods().items():
            ranks = (
                np.argsort(np.argsort(-scores(method, train, queries), axis=1), axis=1)[np.arange(count), chosen] + 1
            )
            rows[title] = {"first": float((ranks == 1).mean()), "first ten": float((ranks <= 10).mean())}
        first = ScoreMachine(train).trace(queries, timesteps=[10, 30, 50]).sources[:, :, :, 0] == chosen[:, None, None]
        table[name] = {
            "images": len(train),
            "queries": count,
            "side": side,
            "rows": rows,
            "pixels inside": float(first[inside].mean()),
            "pixels outside": float(first[~inside].mean()),
        }
    return table


def derivative() -> dict[str, Any]:
    """Influence against central differences of the loss."""
    table = {}
    for name, (train, others) in collections().items():
        train, queries, step = train.subset(range(40)), others.subset(range(4)), 0.01
        machine = ScoreMachine(train)
        found = machine.influence(queries)
        weights = 1 + np.concatenate([np.eye(40), -np.eye(40)]) * step
        losses = machine.loss(queries, weights=weights)
        differences = (losses[:40] - losses[40:]).T / (2 * step)
        table[name] = float((np.abs(found - differences).max(axis=1) / np.abs(found).max(axis=1)).max())
    return table


def pictures() -> dict[str, Any]:
    """The picture of the docs."""
    cards = postcards(24)
    samples = ScoreMachine(cards).sample(6, seed=SEED)
    painted = ImageSet(samples.images, tuple(f"painted-{i}" for i in range(6)))
    result = Attribution(samples.shares, samples.shares, painted.ids, cards.ids, "score-machine")
    sheet = contact_sheet(result, painted, cards, 5, samples.provenance, ("painted", "from"))
    sheet.save(DOCS / "painted.png", optimize=True)
    return {}


SECTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "derivative": derivative,
    "pictures": pictures,
    "agreement": agreement,
    "planted": planted,
    "recall": recall,
    "retraining": retraining,
}


# --- tables ---


def print_tables(results: dict[str, Any]) -> None:
    columns = {
        "recall": [
            ("recall in the first 10", lambda r: f"{r['recall']:.2f} ± {r['error']:.2f}"),
            ("main source among them", lambda r: f"{r['main source']:.2f}"),
        ],
        "agreement": [
            ("rank correlation", lambda r: f"{r['correlation']:.2f}"),
            ("least", lambda r: f"{r['least']:.2f}"),
        ],
        "planted": [
            ("first", lambda r: f"{r['first']:.2f}"),
            ("in the first 10", lambda r: f"{r['first ten']:.2f}"),
        ],
        "retraining": [("LDS", lambda r: f"{100 * r['lds']:.1f} ± {100 * r['error']:.1f}")],
    }
    for section, shown in columns.items():
        table = results.get(section, {})
        if not table:
            continue
        facts = {name: {k: v for k, v in part.items() if k != "rows"} for name, part in table.items()}
        print(f"\n{section}: {facts}\n")
        names = list(table)
        print("| | " + " | ".join(f"{name}: {title}" for name in names for title, _ in shown) + " |")
        print("|---" * (1 + len(names) * len(shown)) + "|")
        for method in table[names[0]]["rows"]:
            cells = [text(table[name]["rows"][method]) for name in names for _, text in shown]
            print(f"| {method} | " + " | ".join(cells) + " |")
    if "derivative" in results:
        print(f"\nlargest difference between influence and finite differences: {results['derivative']}")


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    asked = sys.argv[1:]
    for name in asked or SECTIONS:
        if name not in SECTIONS:
            sys.exit(f"no section is called {name!r}: use {', '.join(SECTIONS)}")
        if name in results and not asked:
            continue
        begin = time.perf_counter()
        results[name] = SECTIONS[name]()
        print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1))
    print_tables(results)


if __name__ == "__main__":
    main()
