"""Large collections: time, memory, clusters, the shortlist, and what a kill costs.

    make scale                                        # all; hours
    .venv/bin/python benchmarks/scale.py exact        # one section: see SECTIONS

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

from patchtrace import Attribution, ImageSet, Recipe

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
WORK = HERE / "runs" / "scale"
RESULTS = HERE / "results" / "scale.json"
SIDE = 32
#: Kills of each kind.
KILLS = 100


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
        disk = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
        keep({"index": {str(count): {**done, "disk MB": round(disk / 1e6)}}})
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
    path.write_text(recipe.to_toml())
    return path


# Sections


def exact() -> None:
    """One query, 50,000 images, preset cifar, 1 GB."""
    words = ["attribute", query_of(), "--train", store_of(50_000), "--preset", "cifar", "--memory", "1GB", "-q"]
    keep({"exact": {"50000": watched(words)}})
    images = ImageSet.open(store_of(50_000))
    begin = time.perf_counter()
    for first in range(0, len(images), 1024):
        images.block(first, min(first + 1024, len(images)))
    once = time.perf_counter() - begin
    passes = sum(len(level.scales) for level in Recipe.preset("cifar").levels)
    keep({"exact": {"reading all once": round(once, 2), "passes": passes}})


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
            most = watched([*words, "--memory", budget, "-q"])
            keep({"memory": {f"{count} {budget}": most}})


def cluster() -> None:
    """Two workers against two threads, in turns."""
    words = ["attribute", query_of(), "--train", store_of(50_000), "--preset", "cifar", "-q"]
    ratios = []
    for _ in range(2):
        here = watched([*words, "--threads", "2"])["seconds"]
        there = watched([*words, "--cluster", "local:2"])["seconds"]
        ratios.append(there / here)
        keep({"cluster": {"2 threads": here, "local:2": there, "ratios": ratios}})


def faster() -> None:
    """How much less time a shortlist takes than all images at equal draws, with 5,000 of them and with 50,000."""
    for count, draws, lists in ((5_000, 1, (50, 250, 500)), (5_000, 8, (50, 250, 500)), (50_000, 1, (500, 5_000))):
        words = ["attribute", query_of(), "--train", store_of(count), "--preset", "cifar", "--draws", draws, "-q"]
        whole = watched(words)["seconds"]
        found: dict[str, Any] = {"all": whole}
        for shortlist in lists:
            part = watched([*words, "--shortlist", shortlist])["seconds"]
            found[f"shortlist {shortlist}"] = {"seconds": part, "times faster": round(whole / part, 1)}
        keep({"faster": {f"{count} images, draws {draws}": found}})


def kill_index() -> None:
    """kill -9 at 100 random moments of indexing a folder that changes between the runs."""
    random.seed(1)
    work = _fresh("kill-index")
    photos, store = work / "photos", work / "store"
    photos.mkdir()
    for number, picture in enumerate(natural(0, 400)):
        Image.fromarray(picture).save(photos / f"{number:05d}.png")
    index = ["index", photos, "--size", SIDE, "-q", "-o", store]
    took = watched(index)["seconds"]
    stopped = unreadable = ended = wrong = number = 0
    ended_last = False
    while stopped < KILLS or not ended_last:
        if random.random() < 0.3:
            shutil.rmtree(store, ignore_errors=True)
        for place, picture in enumerate(natural(10_000 + 20 * number, 10_020 + 20 * number)):
            Image.fromarray(picture).save(photos / f"{(20 * number + place) % 500:05d}.png")
        number += 1
        seconds = _killed(index, 1.3 * took)
        ended_last = seconds is not None
        if seconds is None:
            stopped += 1
        else:
            took, ended = max(took / 2, seconds), ended + 1  # what went on where it was takes less than a whole run
            wrong += _pixels_by_id(ImageSet.open(store)) != _pixels_by_id(ImageSet.open(photos))
        if (store / "patchtrace-store.json").exists():
            verify = [sys.executable, "-m", "patchtrace", "store", "verify", str(store)]
            unreadable += subprocess.run(verify, capture_output=True, check=False).returncode != 0
    keep({"kill": {"index": {"killed": stopped, "broken stores": unreadable, "ended": ended, "wrong": wrong}}})


def kill_attribute() -> None:
    """kill -9 at 100 random moments of an attribution that goes on where it was."""
    random.seed(2)
    work = _fresh("kill-attribute")
    queries, run = work / "queries", work / "run"
    queries.mkdir()
    for number in range(4):
        shutil.copy(query_of(number), queries)
    train = ["--train", store_of(1_000), "--limit", 100]
    attribute = ["attribute", queries, *train, "--draws", 2, "-q", "-o"]
    took = watched([*attribute, work / "calm"])["seconds"]
    calm = Attribution.load(work / "calm")
    stopped = ended = wrong = 0
    ended_last = False
    while stopped < KILLS or not ended_last:
        seconds = _killed([*attribute, run], 1.3 * took)
        ended_last = seconds is not None
        if seconds is None:
            stopped += 1
            continue
        done = Attribution.load(run)
        took, ended = max(took / 2, seconds), ended + 1
        wrong += not (np.array_equal(done.scores, calm.scores) and done.query_ids == calm.query_ids)
        shutil.rmtree(run)
    keep({"kill": {"attribute": {"killed": stopped, "ended": ended, "wrong": wrong}}})


def _fresh(name: str) -> Path:
    shutil.rmtree(WORK / name, ignore_errors=True)
    (WORK / name).mkdir(parents=True)
    return WORK / name


def _killed(words: list[Any], longest: float) -> float | None:
    """Kill a command of patchtrace at some moment; if it came to its end before, the seconds that it took."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "patchtrace", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        child.wait(random.uniform(0.2, longest))
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return None
    if child.returncode:
        sys.exit(f"it ended with code {child.returncode}: patchtrace {words}")
    return time.perf_counter() - begin


def _pixels_by_id(images: ImageSet) -> dict[str, bytes]:
    return {name: images.block(place, place + 1).tobytes() for place, name in enumerate(images.ids)}


def million() -> None:
    """A shortlist out of a million."""
    words = ["attribute", query_of(), "--train", store_of(1_000_000), "--preset", "cifar", "--memory", "1GB", "-q"]
    for shortlist in (1_000, 10_000):
        keep({"million": {f"shortlist {shortlist}": watched([*words, "--shortlist", shortlist])}})


def model() -> None:
    """What larger collections would take, from what was measured."""
    known = json.loads(RESULTS.read_text())
    images = 50_000
    exact = known["exact"][str(images)]["seconds"] / images
    short, long = (known["million"][f"shortlist {count}"]["seconds"] for count in (1_000, 10_000))
    listed = (long - short) / 9_000
    coarse = (short - 1_000 * listed) / 1e6
    held = (known["memory"]["1000000 500MB"]["peak MB"] - known["memory"]["100000 500MB"]["peak MB"]) / 0.9
    indexed = known["index"]["1000000"]
    rows = {}
    for count in (10**6, 10**7, 10**8):
        rows[f"{count:.0e}"] = {
            "exact draw, hours": round(exact * count / 3600, 2),
            "shortlist 10000, hours": round((coarse * count + 10_000 * listed) / 3600, 2),
            "store, GB": round(indexed["disk MB"] / 1e9 * count, 1),
            "index, hours": round(indexed["seconds"] / 1e6 * count / 3600, 2),
            "memory beyond the budget's floor, GB": round(held / 1e9 * count, 2),
        }
    keep({"model": {**rows, "microseconds an image": {"exact draw": exact * 1e6, "coarse pass": coarse * 1e6}}})


SECTIONS = {
    each.__name__: each for each in (exact, cluster, faster, kill_index, kill_attribute, memory, million, model)
}


def main() -> None:
    asked = sys.argv[1:] or list(SECTIONS)
    unknown = set(asked) - set(SECTIONS)
    if unknown:
        sys.exit(f"no section is called {unknown.pop()!r}: use {', '.join(SECTIONS)}")
    for name in asked:
        print(f"== {name}", flush=True)
        SECTIONS[name]()


if __name__ == "__main__":
    main()
