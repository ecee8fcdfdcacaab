"""The evaluation of docs/results.md: real models, every method, ablations and counterfactuals, at a size for two cores.

    make results                                   # everything; hours on two cores, resumes where it was stopped
    .venv/bin/python benchmarks/results.py lds     # one section
    .venv/bin/python benchmarks/results.py tables  # what is there, as the docs have it

Sections run the commands that the docs name, one after the other. What they keep is in benchmarks/runs/small/ (models,
losses, scores); small tables and figures are copied to benchmarks/results/small/ and docs/.
"""

from __future__ import annotations

import csv
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from patchtrace.methods.base import METHODS

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
WORK = HERE / "runs" / "small"
KEPT = HERE / "results" / "small"
DOCS = HERE.parent / "docs"
#: What is small about it: 1000 training images at 16 x 16, 200 validation queries and 100 generated ones.
TRAIN, VALIDATION, GENERATED = 1000, 200, 100

COLLECTION = ["--train", "data.npz", "--train-key", "train"]
QUERIES = ["--queries", "data.npz", "--query-key", "val"]
TRUTH = ["--classes", "train_label", "--loss-timesteps", "20", "--loss-draws", "2", "--cache", "cache", "--jobs", "2"]
#: Every method but the approximation of NDA for huge collections.
EVERY = [argument for name in METHODS if name != "nda-shortlist" for argument in ("--method", name)]
#: Values for the ablation that two cores can do in half an hour.
VALUES = {
    "timestep": "50,100,200,300,500",
    "patch": "3,5,9,13",
    "pooled-patch": "4,8,12",
    "k": "10,100",
    "draws": "1,2",
}
BASE = ["--draws", "1", "--views", "flips", "--threads", "2"]
BASE += [word for name, values in VALUES.items() for word in ("--values", f"{name}={values}")]


def prepare() -> None:
    """CIFAR-2, brought to 16 x 16 by the mean of four pixels."""
    if (WORK / "data.npz").is_file():
        return
    if not PICTURES.is_file():
        sys.exit(f"CIFAR-2 is not at hand: {PICTURES.name} has to lie in shared/data/ beside the checkout")
    WORK.mkdir(parents=True, exist_ok=True)
    with np.load(PICTURES) as archive:
        small = {name: halved(archive[name][:count]) for name, count in (("train", TRAIN), ("val", VALIDATION))}
        np.savez_compressed(WORK / "data.npz", **small, train_label=archive["train_label"][:TRAIN])


def halved(pixels: np.ndarray) -> np.ndarray:
    count, side = len(pixels), pixels.shape[1] // 2
    means = pixels.reshape(count, side, 2, side, 2, 3).mean(axis=(2, 4), dtype=np.float64)
    return np.rint(means).astype(np.uint8)


#: For each section its commands, each a name for its output and the words after `patchtrace`.
SECTIONS: dict[str, list[list[str]]] = {
    "lds": [
        ["lds", *COLLECTION, *QUERIES, *TRUTH, *EVERY, "-o", "validation"],
        ["lds", *COLLECTION, "--generated", str(GENERATED), *TRUTH, *EVERY, "-o", "generated"],
    ],
    "ablation": [["ablate", "validation/truth.npz", *COLLECTION, *QUERIES, *BASE, "-o", "ablation"]],
    "tuning": [
        [
            *("tune", "validation/truth.npz", *COLLECTION, *QUERIES, *BASE),
            *("--cache", "ablation/parts", "-o", "tuning/recipe.toml"),
        ]
    ],
    "counterfactual": [
        [
            *("counterfactual", *COLLECTION, "--queries", "6", "--remove", "200", "--chance-models", "4"),
            *("--method", "nda", "--method", "embedding", "--method", "pixel", "--jobs", "2", "-o", "counterfactual"),
        ]
    ],
}


def main() -> None:
    asked = sys.argv[1:] or list(SECTIONS)
    if asked == ["tables"]:
        tables()
        return
    unknown = set(asked) - set(SECTIONS)
    if unknown:
        sys.exit(f"there is no section {unknown.pop()!r}: use {', '.join(SECTIONS)} or tables")
    prepare()
    for section in asked:
        for words in SECTIONS[section]:
            print(f"$ patchtrace {shlex.join(words)}", flush=True)
            begin = time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "patchtrace", *words], cwd=WORK)
            if done.returncode:
                sys.exit(done.returncode)
            print(f"({time.perf_counter() - begin:.0f} s)\n", flush=True)
    keep()
    tables()


def keep() -> None:
    """Copy what is small: tables, truths, figures."""
    for path in sorted(WORK.glob("*/*")):
        if path.parent.name in ("cache", "originals", "parts"):
            continue
        place = DOCS / f"results-{path.parent.name}-{path.name}" if path.suffix == ".png" else None
        if path.suffix in (".csv", ".npz", ".toml"):
            place = KEPT / path.parent.name / path.name
        if place:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)


def tables() -> None:
    """The tables of docs/results.md, out of the CSV files that are kept."""
    sets = {name: _rows(KEPT / name / "lds.csv") for name in ("validation", "generated")}
    if all(sets.values()):
        print("| method | validation | generated | requires | seconds |\n|---|---|---|---|---|")
        for name, row in sorted(sets["validation"].items(), key=lambda item: -float(item[1]["lds"])):
            cells = [_interval(rows[name]) for rows in sets.values()]
            seconds = float(row["seconds"])
            print(f"| {name} | {' | '.join(cells)} | {row['requires']} | {seconds:.{0 if seconds > 1 else 2}f} |")
        print()
    moved = _rows(KEPT / "counterfactual" / "summary.csv", "measure", "method")
    if moved:
        print("| removed by | L2 | minus chance | cosine | minus chance |\n|---|---|---|---|---|")
        for name in dict.fromkeys(row["method"] for row in moved.values()):
            rows = (moved[f"l2 {name}"], moved[f"cosine {name}"])
            cells = [_mean(row, column) for row in rows for column in ("", "minus_chance")]
            print(f"| {name} | {' | '.join(cells)} |")


def _rows(path: Path, *keys: str) -> dict[str, dict[str, str]]:
    """The rows of a CSV file by their first column, or by these; none where there is no such file."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as stream:
        return {" ".join(row[key] for key in keys or (next(iter(row)),)): row for row in csv.DictReader(stream)}


def _mean(row: dict[str, str], column: str) -> str:
    """A mean over queries and its interval, as the docs have it; nothing where there is none."""
    places = 2 if row["measure"] == "l2" else 3
    names = (column, f"{column}_low", f"{column}_high") if column else ("mean", "low", "high")
    if not row[names[0]]:
        return ""
    mean, low, high = (f"{float(row[name]):{'+' if column else ''}.{places}f}" for name in names)
    return f"{mean} ({low} to {high})"


def _interval(row: dict[str, str]) -> str:
    lds, low, high = (100 * float(row[name]) for name in ("lds", "low", "high"))
    return f"**{lds:.1f}** ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
