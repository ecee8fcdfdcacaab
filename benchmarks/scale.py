"""Large collections: time, memory, clusters, the shortlist, and what a kill costs.

    make scale                                        # all but the million; hours
    .venv/bin/python benchmarks/scale.py exact        # one section: exact, cluster, recall, kill, memory, million

Pictures are crops of CIFAR-2, turned over, zoomed and recoloured by chance, so that as many as wanted are natural and
no two are alike. Stores and unfinished work lie in benchmarks/runs/scale/, figures in benchmarks/results/scale.json.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image
from tqdm import tqdm

from patchtrace import NDA, Attribution, ImageSet, Recipe
from patchtrace.methods import Cascade
from patchtrace.methods.cascade import SAMPLED_PART

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
WORK = HERE / "runs" / "scale"
RESULTS = HERE / "results" / "scale.json"
SIDE = 32
#: Queries of the recall, images of its collection, and draws of its reference.
RECALL = {"queries": 8, "images": 5000, "draws": 16}


# Pictures


def natural(first: int, last: int) -> Iterator[np.ndarray]:
    """Pictures first to last of an endless collection."""
    with np.load(PICTURES) as archive:
        real = archive["train"]
    for number in range(first, last):
        rng = np.random.default_rng((7, number))
        source = Image.fromarray(real[rng.integers(len(real))])
        side = int(rng.integers(20, SIDE + 1))
        left, top = rng.integers(0, SIDE - side + 1, 2).tolist()
        pixels = np.asarray(
            source.resize((SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + side, top + side))
        )
        if rng.random() < 0.5:
            pixels = pixels[:, ::-1]
        mixed = np.eye(3)[rng.permutation(3)] * 0.85 + 0.05 + rng.normal(0, 0.08, (3, 3))
        yield np.clip(pixels @ mixed + rng.normal(0, 12, 3), 0, 255).astype(np.uint8)


def array_of(count: int) -> Path:
    """So many of them in a file."""
    path = WORK / f"{count}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".half")
        pixels = np.lib.format.open_memmap(temporary, "w+", np.uint8, (count, SIDE, SIDE, 3))
        for number, picture in enumerate(tqdm(natural(0, count), total=count, desc="pictures", disable=None)):
            pixels[number] = picture
        pixels.flush()
        temporary.replace(path)
    return path


def store_of(count: int) -> Path:
    store = WORK / f"{count}.store"
    if not store.exists():
        done = watched(["index", array_of(count), "-o", store, "-q"])
        keep({"index": {str(count): done}})
    return store


def query_of(number: int = 0) -> Path:
    """A real picture that no picture of the collection is cut from."""
    path = WORK / f"query-{number}.png"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with np.load(PICTURES) as archive:
            Image.fromarray(archive["val"][number]).save(path)
    return path


# Measuring


def watched(words: list[Any]) -> dict[str, float]:
    """Run a command of patchtrace: its seconds, and the most memory that it and its children held at once."""
    begin = time.perf_counter()
    child = psutil.Popen(
        [sys.executable, "-m", "patchtrace", *map(str, words)],
        stdout=subprocess.DEVNULL,
    )
    most = 0
    while child.poll() is None:
        most = max(most, _resident(child))
        time.sleep(0.02)
    if child.returncode:
        sys.exit(child.returncode)
    return {"seconds": round(time.perf_counter() - begin, 2), "peak MB": round(most / 1e6)}


def _resident(process: psutil.Process) -> int:
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def keep(found: dict[str, Any]) -> None:
    """Add to what is known."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for section, values in found.items():
        known[section] = {**known.get(section, {}), **values}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps(found), flush=True)


def recipe_file(recipe: Recipe, name: str) -> Path:
    path = WORK / f"{name}.toml"
    recipe.save(path)
    return path


# Sections


def exact() -> None:
    """One query, 50,000 images, preset cifar, 1 GB."""
    words = ["attribute", query_of(), "--train", store_of(50_000), "--preset", "cifar", "--memory", "1GB", "-q"]
    keep({"exact": {"50000": watched(words)}})


def memory() -> None:
    """The most that is held, for collections of all sizes: one level, so that a million can be done."""
    one_level = replace(Recipe.preset("cifar"), levels=Recipe.preset("cifar").levels[-1:])
    for count in (1_000, 10_000, 100_000, 1_000_000):
        for budget in ("500MB", "1GB"):
            words = [
                "attribute",
                query_of(),
                "--train",
                store_of(count),
                "--recipe",
                recipe_file(one_level, "one-level"),
            ]
            keep({"memory": {f"{count} {budget}": watched([*words, "--memory", budget, "-q"])}})


def cluster() -> None:
    """Two workers against two threads, in turns."""
    words = ["attribute", query_of(), "--train", store_of(10_000), "--preset", "cifar", "-q"]
    ratios = []
    for _ in range(3):
        here = watched([*words, "--threads", "2"])["seconds"]
        there = watched([*words, "--cluster", "local:2"])["seconds"]
        ratios.append(there / here)
        keep({"cluster": {"2 threads": here, "local:2": there, "ratios": ratios}})


def recall() -> None:
    """How many of the best of a many-draw exact reference are in shortlists of any length, and what they cost."""
    count, draws = RECALL["images"], RECALL["draws"]
    with np.load(PICTURES) as archive:
        train, queries = (
            ImageSet.open(archive["train"][:count]),
            ImageSet.open(archive["val"][100 : 100 + RECALL["queries"]]),
        )
    reference = NDA(replace(Recipe.preset("cifar"), draws=draws)).fit(train)
    with tqdm(total=1, desc="reference", disable=None) as bar:
        best = reference.attribute(queries, unfinished=WORK / "reference", progress=_on(bar)).scores
    cascade = Cascade(count // 10, Recipe.preset("cifar")).fit(train)
    recipe, factor = cascade.coarse()
    begin = time.perf_counter()
    coarse = NDA(recipe).fit(train.smaller(factor)).attribute(queries.smaller(factor)).scores
    seconds = (time.perf_counter() - begin) / len(queries)
    begin = time.perf_counter()
    NDA(Recipe.preset("cifar")).fit(train).attribute(queries.subset([0]))
    one_draw = time.perf_counter() - begin
    curve = {}
    for part in (0.01, 0.02, 0.05, 0.1, 0.2):
        listed = np.argsort(-coarse, axis=1)[:, : int(part * count)]
        curve[str(part)] = [
            float(
                np.mean([np.isin(np.argsort(-row)[:top], some).mean() for row, some in zip(best, listed, strict=True)])
            )
            for top in (10, 100)
        ]
    work = {str(part): part * (1 + SAMPLED_PART) * one_draw + seconds for part in (0.01, 0.02, 0.05)}
    times = {
        part: {str(d): d * one_draw / (seconds + d * (value - seconds)) for d in (1, 4, 16)}
        for part, value in work.items()
    }
    keep({"recall": {"curve": curve, "coarse seconds": seconds, "exact draw seconds": one_draw, "times faster": times}})


def _on(bar: Any) -> Any:
    def tell(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return tell


def kill() -> None:
    """kill -9 at 100 random moments of indexing and of attribution each."""
    random.seed(1)
    work = WORK / "kill"
    shutil.rmtree(work, ignore_errors=True)
    photos = work / "photos"
    photos.mkdir(parents=True)
    for number, picture in enumerate(natural(0, 3000)):
        Image.fromarray(picture).save(photos / f"{number:05d}.png")
    index = ["index", photos, "--size", str(SIDE), "-q", "-o"]
    took = watched([*index, work / "calm.store"])["seconds"]
    unreadable = _killed(
        100, took, lambda: _fresh(work / "hit.store", [*index, work / "hit.store"]), work / "hit.store"
    )
    watched([*index, work / "hit.store"])
    same = ImageSet.open(work / "hit.store").fingerprint() == ImageSet.open(work / "calm.store").fingerprint()
    attribute = ["attribute", photos / "00007.png", "--train", work / "calm.store", "--draws", "4", "-q", "-o"]
    took = watched([*attribute, work / "calm"])["seconds"]
    _killed(100, took, lambda: [*attribute, work / "hit"], None)
    watched([*attribute, work / "hit"])
    one, other = (Attribution.load(work / name) for name in ("calm", "hit"))
    equal = bool(np.array_equal(one.scores, other.scores))
    keep({"kill": {"stores that could not be read": unreadable, "same store": same, "same scores": equal}})


def _fresh(store: Path, words: list[Any]) -> list[Any]:
    """Every tenth time from the beginning: a store that is done is quickly looked through."""
    if random.random() < 0.1:
        shutil.rmtree(store, ignore_errors=True)
    return words


def _killed(times: int, took: float, command: Any, store: Path | None) -> int:
    """Kill the command so often, each time at another moment; how often the store could not be read afterwards."""
    unreadable = 0
    for _ in tqdm(range(times), desc="kills", disable=None):
        words = command()
        child = subprocess.Popen(
            [sys.executable, "-m", "patchtrace", *map(str, words)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(random.uniform(0.2, took))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if store is not None and (store / "patchtrace-store.json").exists():
            check = subprocess.run(
                [sys.executable, "-m", "patchtrace", "store", "verify", str(store)], capture_output=True, check=False
            )
            unreadable += check.returncode != 0
    return unreadable


def million() -> None:
    """A shortlist out of a million."""
    words = ["attribute", query_of(), "--train", store_of(1_000_000), "--preset", "cifar", "--memory", "1GB", "-q"]
    keep({"million": {"shortlist 5000": watched([*words, "--shortlist", "5000"])}})


SECTIONS = {each.__name__: each for each in (exact, cluster, recall, kill, memory, million)}


def main() -> None:
    asked = sys.argv[1:] or [name for name in SECTIONS if name != "million"]
    unknown = set(asked) - set(SECTIONS)
    if unknown:
        sys.exit(f"no section is called {unknown.pop()!r}: use {', '.join(SECTIONS)}")
    for name in asked:
        print(f"== {name}", flush=True)
        SECTIONS[name]()


if __name__ == "__main__":
    main()
