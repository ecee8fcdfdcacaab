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

from patchtrace import NDA, Attribution, ImageSet, Recipe
from patchtrace.nda.coarse import coarse_factor, coarse_recipe
from patchtrace.nda.query_run import CLOSER

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
WORK = HERE / "runs" / "scale"
RESULTS = HERE / "results" / "scale.json"
SIDE = 32
#: Queries of the recall, images of its collection, and draws of its reference.
RECALL = {"queries": 8, "images": 5000, "draws": 6}
#: Kills of each kind.
KILLS = 100
#: Shortlists whose recall is measured, as a part of the collection.
PARTS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


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


def recall() -> None:
    """How many of the best of a many-draw exact reference are in shortlists of any length."""
    train, queries = _recall_images()
    best = _reference(train, queries)
    recipe, factor = replace(Recipe.preset("patchtrace"), views=()), coarse_factor(train.shape[1:])

    def looked_at(images: ImageSet, query: ImageSet, factor: int) -> np.ndarray:
        found = NDA(coarse_recipe(recipe, factor)).fit(images.smaller(factor)).attribute(query.smaller(factor))
        return np.argsort(-found.scores[0])

    def coarse(query: ImageSet, count: int) -> np.ndarray:
        some = np.sort(first_looks[query.ids[0]][: CLOSER * count])
        return some[looked_at(train.subset(some), query, factor // 2)][:count]

    each = [queries.subset([number]) for number in range(len(queries))]
    first_looks = {query.ids[0]: looked_at(train, query, factor) for query in each}
    draw = np.argsort(-NDA(replace(recipe, seed=1)).fit(train).attribute(queries).scores, axis=1)
    order = np.random.default_rng(0).permuted(np.tile(np.arange(len(train)), (len(queries), 1)), axis=1)
    ways = {
        "coarse pass": coarse,
        "coarse pass, one look": lambda query, count: first_looks[query.ids[0]][:count],
        "one exact draw": lambda query, count: draw[int(query.ids[0])][:count],
        "chance": lambda query, count: order[int(query.ids[0])][:count],
    }
    curves: dict[str, dict[str, list[float]]] = {name: {} for name in ways}
    for name, way in ways.items():
        for part in PARTS:
            lists = [way(query, int(part * len(train))) for query in each]
            curves[name][str(part)] = [_found(best, lists, top) for top in (10, 100)]
        print(name, curves[name], flush=True)
    keep({"recall": {**RECALL, **curves}})
    _draw(curves)


def _recall_images() -> tuple[ImageSet, ImageSet]:
    with np.load(PICTURES) as archive:
        train, queries = archive["train"][: RECALL["images"]], archive["val"][100 : 100 + RECALL["queries"]]
    return ImageSet.open(train), ImageSet.open(queries)


def _reference(train: ImageSet, queries: ImageSet) -> np.ndarray:
    """Scores of many exact draws; kept, some queries at a time, for they take long."""
    recipe = replace(Recipe.preset("patchtrace"), views=(), draws=RECALL["draws"])
    method = NDA(recipe, checkpoint=WORK / "reference-unfinished").fit(train)
    scores = []
    for first in range(0, len(queries), 4):
        kept = WORK / f"reference-{RECALL['draws']}-draws-{first}"
        if not (kept / "attribution.json").exists():
            some = queries.subset(range(first, min(first + 4, len(queries))))
            with tqdm(total=1, desc=f"reference {first}", disable=None) as bar:
                method.attribute(some, progress=_on(bar)).save(kept)
        scores.append(Attribution.load(kept).scores)
    return np.concatenate(scores)


def _found(best: np.ndarray, lists: list[np.ndarray], top: int) -> float:
    """The part of the best that the lists have."""
    wanted = np.argsort(-best, axis=1)[:, :top]
    return round(float(np.mean([np.isin(row, some).mean() for row, some in zip(wanted, lists, strict=True)])), 4)


def _draw(curves: dict[str, dict[str, list[float]]]) -> None:
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


def _on(bar: Any) -> Any:
    def tell(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    return tell


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
    each.__name__: each for each in (exact, cluster, recall, faster, kill_index, kill_attribute, memory, million, model)
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
