"""Which noise level and patch size suit latents: planted sources, and members of the collection left out.

    .venv/bin/python benchmarks/latent_levels.py           # half an hour of one core; goes on where it was stopped

200 photographs as latents of 256 x 256. Five of them are changed in the six ways that are hard to see through; the
margin is the logarithm of the source's score over that of the best other image, its mean over the worst quarter of the
queries. Ten members are compared with the collection without them: how much of their shares falls on photographs of the
same class, of ten. One level and one draw at a time, on the schedule of DDPM; `white` divides each channel by its
deviation. What was computed stays in benchmarks/runs/levels/, results in benchmarks/results/latent_levels.json.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pictures import CHANGES, PHOTOS, RUNS, WEIGHTS, opened, small
from PIL import Image, ImageOps

from patchtrace import NDA, ImageSet, Level, Recipe, Scale, Schedule
from patchtrace.latents import load_autoencoder

HERE = Path(__file__).resolve().parent
KEPT, RESULTS = RUNS / "levels", HERE / "results" / "latent_levels.json"
SIDE, SOURCES, MEMBERS = 256, 10, 10
#: The changes, by the numbers under which their latents are kept.
HARD = {1: "mirrored", 2: "cropped to 60 %", 7: "quarter pasted elsewhere", 8: "quarter pasted 1.5 times larger",
        9: "half and half", 10: "cropped to 30 %"}  # fmt: skip
#: Timestep, patch, and whether channels are brought to one deviation.
RECIPE = "t 200, patch 3 and t 400, patch 5"  # what was chosen
SETTINGS = [(100, 3, 0), (200, 3, 0), (300, 3, 0), (300, 5, 0), (400, 5, 0), (500, 7, 0), (400, 5, 1)]


def main() -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    files = sorted(PHOTOS.rglob("*.jpg"))
    inside, hosts = files[::3], files[1::3]
    places = np.linspace(0, len(inside) - 1, SOURCES).astype(int)[::2]
    train = np.stack([latents(f"t{number:03d}", path) for number, path in enumerate(inside)])
    planted = [
        latents(f"q{change:02d}-{2 * number:02d}", inside[place], name, hosts[14 * number])
        for number, place in enumerate(places)
        for change, name in HARD.items()
    ]
    queries, truth = np.stack(planted), np.repeat(places, len(HARD))
    scores = {setting: scored(setting, train, queries) for setting in SETTINGS}
    found: dict[str, Any] = {named(setting): judged(each, truth) for setting, each in scores.items()}
    plain = [setting for setting in SETTINGS if not setting[2]]
    for pair in combinations(plain, 2):
        if pair[0][0] != pair[1][0]:
            found[" and ".join(map(named, pair))] = judged(sum(scores[setting] for setting in pair), truth)
    classes = np.array([path.parent.name for path in inside])
    for setting in plain:
        found[named(setting)] |= left_out(setting, train, classes)
    found["32 x 32 pixels"] = judged(in_pixels(inside, hosts, places), truth)
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    shown = ("32 x 32 pixels", RECIPE)
    print("| first / among ten, of 5 | " + " | ".join(shown) + " |\n|---|---|---|")
    for name in HARD.values():
        print(f"| {name} | " + " | ".join("{} / {}".format(*found[key]["changes"][name]) for key in shown) + " |")
    print()
    print("| level and patch | noise share | first of 30 | among ten | margin | same class | effective sources |")
    print("|---|---|---|---|---|---|---|")
    for name, row in found.items():
        if name == shown[0]:
            continue
        cells = [row["first"], row["ten"], row["margin"], row.get("same class", ""), row.get("effective sources", "")]
        print(f"| {name} | {noise_share(name)} | " + " | ".join(map(str, cells)) + " |")


def in_pixels(inside: list[Path], hosts: list[Path], places: np.ndarray) -> np.ndarray:
    """Scores of the default recipe for pictures on the same photographs and changes, at 32 x 32."""
    path = KEPT / "scores-pixels.npy"
    if not path.exists():
        changed = [
            CHANGES[name](opened(inside[place]), opened(hosts[14 * number]))
            for number, place in enumerate(places)
            for name in HARD.values()
        ]
        train = ImageSet.open(inside, size=32)
        np.save(path, NDA().fit(train).attribute(np.stack([small(each, 32) for each in changed])).scores)
    return np.load(path)


@cache
def _autoencoder() -> Any:
    return load_autoencoder(f"taef2:{WEIGHTS}")


def latents(name: str, source: Path, change: str = "", host: Path | None = None) -> np.ndarray:
    """Latents of a photograph, or of one that was changed, from the disk if they are there."""
    path = KEPT / f"{name}.npy"
    if not path.exists():
        picture = opened(source)
        if host is not None:
            picture = CHANGES[change](picture, opened(host))
        pixels = np.asarray(ImageOps.fit(picture, (SIDE, SIDE), Image.Resampling.BICUBIC)).transpose(2, 0, 1)
        np.save(path, _autoencoder().encode(pixels[None])[0])
    return np.load(path).astype(np.float32)


def scored(setting: tuple[int, int, int], train: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Scores (queries, train) of one level and one draw, from the disk if they are there."""
    t, patch, white = setting
    path = KEPT / f"scores-{t}-{patch}-{white}.npy"
    if not path.exists():
        if white:  # with the mean deviation of all channels, so that the noise is as strong
            mean, deviation = (of(train, axis=(0, 2, 3), keepdims=True) for of in (np.mean, np.std))
            train, queries = (0.8 * (each - mean) / deviation for each in (train, queries))
        np.save(path, method(setting).fit(train).attribute(queries).scores)
    return np.load(path)


def method(setting: tuple[int, int, int]) -> NDA:
    return NDA(Recipe((Level(setting[0], (Scale(setting[1]),)),)))


def judged(scores: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    rows = np.arange(len(truth))
    own, others = scores[rows, truth], scores.copy()
    others[rows, truth] = 0
    ranks = (scores > own[:, None]).sum(axis=1)
    margins = np.sort(np.log(own / others.max(axis=1)))[: len(truth) // 4 + 1]
    each = {name: [int((ranks[n :: len(HARD)] < top).sum()) for top in (1, 10)] for n, name in enumerate(HARD.values())}
    return {
        "first": int((ranks < 1).sum()),
        "ten": int((ranks < 10).sum()),
        "margin": round(float(margins.mean()), 2),
        "changes": each,
    }


def left_out(setting: tuple[int, int, int], train: np.ndarray, classes: np.ndarray) -> dict[str, Any]:
    """Members against the others: the part of their shares on the same class, and how many images it is spread over."""
    same, spread = [], []
    for member in range(5, len(train), len(train) // MEMBERS):
        path = KEPT / f"member-{setting[0]}-{setting[1]}-{member}.npy"
        others = np.delete(np.arange(len(train)), member)
        if not path.exists():
            np.save(path, method(setting).fit(train[others]).attribute(train[member : member + 1]).scores[0])
        scores = np.load(path).astype(np.float64)
        shares = scores / scores.sum()
        same.append(shares[classes[others] == classes[member]].sum())
        spread.append(np.exp(-(shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)).sum()))
    return {"same class": round(float(np.mean(same)), 3), "effective sources": round(float(np.mean(spread)), 1)}


def named(setting: tuple[int, int, int]) -> str:
    return f"t {setting[0]}, patch {setting[1]}{', white' if setting[2] else ''}"


def noise_share(name: str) -> str:
    schedule = Schedule.named("ddpm-linear")
    return ", ".join(f"{schedule.noise_share(int(part.split()[1].strip(','))):.2f}" for part in name.split(" and "))


if __name__ == "__main__":
    main()
