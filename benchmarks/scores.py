"""The scores of every method on the truth at 32 x 32, as files that `patchtrace compare` takes.

    .venv/bin/python benchmarks/scores.py                # an hour on two cores; does what is missing
    .venv/bin/python benchmarks/scores.py pixel dtrak    # some of them
    patchtrace compare benchmarks/results/truth32/validation-0.npz benchmarks/results/truth32/scores/validation/*.npz

All 200 validation queries and all 100 generated ones, each with 1000 images; a file holds float16 scores, each row
divided by its largest absolute value, which no rank correlation sees, and the method, its settings and the checksums of
the pictures as facts. Lambda of TRAK and D-TRAK is the one that `quality.py methods` chose, on a quarter of the queries
and half of the subsets: these flatter the two a little. Methods on gradients look into a model of all images, which is
trained first.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from quality import DEFAULT, INFLUENCE_DRAWS, PRESET, SMALL, TRUTH, WORK, Half, store
from truth import SETS

from patchtrace.attribution import facts_of_set
from patchtrace.compute import Compute
from patchtrace.evaluate.scoring import requires_model, score_queries
from patchtrace.files import replacing
from patchtrace.methods.base import METHODS, Resources
from patchtrace.recipe import Recipe

QUICK = ("pixel", "pixel-dot", "embedding", "embedding-dot")
#: NDA by the names of their files; with flips the default is what `patchtrace attribute` compares.
RECIPES = {
    "nda-default": DEFAULT,
    "nda-default-4-draws": replace(DEFAULT, draws=4),
    "nda-default-flips-4-draws": replace(Recipe.preset("patchtrace"), draws=4),
    "nda-3-5-5-7-9": SMALL,
    "nda-cifar": PRESET,
    "nda-cifar-4-draws": replace(PRESET, draws=4),
}
OTHERS = [name for name in METHODS if not name.startswith("nda") and name != "random"]
#: What is quick, or asked for most, comes first.
ORDER = sorted([*RECIPES, *OTHERS], key=lambda label: ("draws" in label, label in OTHERS and label not in QUICK))


def nda(recipe: Recipe, name: str) -> tuple[NDArray[np.float64], dict[str, Any]]:
    """Scores of a recipe on a set of queries, with facts."""
    counts = [len(TRUTH.benchmarks[each].queries) for each in SETS]
    rows = np.split(np.arange(sum(counts)), counts[:1])[SETS.index(name)]
    return store().scores(recipe, rows), {
        "method": "nda",
        "settings": {"recipe": recipe.to_dict()},
        "requires": "nothing",
    }


def other(method: str, name: str) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """The same of any other method."""
    benchmark = TRUTH.benchmarks[name]
    resources = Resources(
        train=benchmark.train,
        compute=Compute(),
        model=benchmark.retraining.with_checkpoints() if requires_model(method) else None,
        cache=WORK / "gradients",
        draws=INFLUENCE_DRAWS,
    )
    found = score_queries(method, resources, benchmark.queries, directory=WORK)
    facts = {"method": method, "settings": dict(found.settings), "requires": found.requires}
    best = ""
    if len(found.variants) > 1:
        choosing, number = Half(0), SETS.index(name)
        rows = choosing.queries[number]
        here = replace(found, variants={key: scores[rows] for key, scores in found.variants.items()})
        best = here.chosen(choosing.truths[number], np.arange(len(rows)))
        facts |= {"lambda": best, "chosen on": rows.tolist()}
    return found.variants[best], facts


def keep(label: str, name: str, scores: NDArray[Any], facts: dict[str, Any]) -> None:
    """Write the scores of a set of queries."""
    benchmark = TRUTH.benchmarks[name]
    largest = np.abs(scores).max(axis=1, keepdims=True)
    facts |= {role: facts_of_set(getattr(benchmark, role)) for role in ("train", "queries")}
    facts |= {"rows": "divided by the largest absolute value of each"}
    path = place(label, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = {
        role: np.array(getattr(benchmark, of).ids) for role, of in (("train_ids", "train"), ("query_ids", "queries"))
    }
    rows = np.divide(scores, largest, out=np.zeros_like(scores), where=largest > 0).astype(np.float16)
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, scores=rows, **ids, facts=np.array(json.dumps(facts)))
    print(f"{path.relative_to(TRUTH.kept)}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def place(label: str, name: str) -> Path:
    """Where scores are kept."""
    return TRUTH.kept / "scores" / name / f"{label}.npz"


def main() -> None:
    labels = sys.argv[1:] or ORDER
    unknown = set(labels) - set(ORDER)
    if unknown:
        sys.exit(f"there is no {', '.join(sorted(unknown))}: use some of {', '.join(ORDER)}")
    for name in reversed(SETS):  # the generated ones are half as many
        for label in labels:
            if not place(label, name).is_file():
                keep(label, name, *(nda(RECIPES[label], name) if label in RECIPES else other(label, name)))


if __name__ == "__main__":
    main()
