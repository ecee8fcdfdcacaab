"""Verdicts on pairs of photographs of which it is known what they have to do with each other: a confusion table.

    .venv/bin/python benchmarks/copies.py            # all pairs, some minutes on one core, and the tables
    .venv/bin/python benchmarks/copies.py table      # the tables of what was measured
    .venv/bin/python benchmarks/copies.py patches    # where points find a part, and where patches at 32 pixels do

Each source is changed at its full size, and compared with what it was, at 256 pixels, and as collections without files
have it, at 32. Thresholds were chosen on the first sources with even numbers ("chosen"); single results of those with
odd numbers were looked at while the method changed ("looked at"); the others, which lie between them, were added when
nothing changed any more ("unseen"). Results stay in benchmarks/results/copies.json; a run does what is missing there.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pictures import PHOTOS, compressed, cropped, opened, pasted, recoloured
from PIL import Image
from tqdm import tqdm

from patchtrace.copies.points import Points, points_of
from patchtrace.copies.sight import Sight, judged
from patchtrace.copies.transform import candidates
from patchtrace.copies.verdict import Kind
from patchtrace.files import write_text

RESULTS = Path(__file__).resolve().parent / "results" / "copies.json"
#: Every so many-th photograph is a source: so many of them, which the limits were set with, and those between them.
STEP, FIRST = 24, 23
SIDES = (256, 32)

Change = Callable[[Image.Image, Image.Image, Image.Image], Image.Image]


def of_source(change: Callable[[Image.Image, Image.Image], Image.Image]) -> Change:
    return lambda source, _, other: change(source, other)


#: How a query is made of a source, a picture of the same class and a picture of another class; and the right verdict.
CHANGES: dict[str, tuple[Change, Kind]] = {
    "another class": (lambda source, same, other: other, Kind.RESEMBLES),
    "the same class": (lambda source, same, other: same, Kind.RESEMBLES),
    "the same picture": (lambda source, same, other: source, Kind.SAME),
    "compressed, JPEG 30": (of_source(compressed), Kind.CHANGED),
    "recoloured": (of_source(recoloured), Kind.CHANGED),
    "mirrored": (lambda source, same, other: source.transpose(Image.Transpose.FLIP_LEFT_RIGHT), Kind.CHANGED),
    "turned by 10 degrees": (
        lambda source, same, other: source.rotate(10, Image.Resampling.BICUBIC, fillcolor=(128, 128, 128)),
        Kind.CHANGED,
    ),
    "cropped to 80 %": (of_source(cropped(0.8)), Kind.CHANGED),
    "cropped to 60 %": (of_source(cropped(0.6)), Kind.CHANGED),
    "cropped to 40 %": (of_source(cropped(0.4)), Kind.CHANGED),
    "quarter pasted at its place": (of_source(pasted((0.5, 0.5))), Kind.PART),
    "quarter pasted elsewhere": (of_source(pasted((0.3, 0.65))), Kind.PART),
    "quarter pasted, 1.5 times larger": (of_source(pasted((0.5, 0.5), 1.5)), Kind.PART),
    "quarter pasted elsewhere, 0.7 times": (of_source(pasted((0.3, 0.65), 0.7)), Kind.PART),
}


def photographs() -> list[Path]:
    files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        sys.exit("the photographs are not at hand: photos/ has to lie in shared/data beside the checkout")
    return files


def sources(files: list[Path]) -> list[int]:
    """Places of all sources: those that the limits were set with, and the unseen ones."""
    return [*range(0, len(files), STEP)[:FIRST], *range(STEP // 2, len(files), STEP)]


def half(number: int) -> str:
    """What a source was used for."""
    return "unseen" if number >= FIRST else ("chosen", "looked at")[number % 2]


def related(files: list[Path], place: int, number: int) -> list[Image.Image]:
    """A source, a picture of its class and one of another class."""
    source = files[place]
    same = next(file for file in files[place + 1 :] + files if file.parent == source.parent and file != source)
    others = [file for file in files if file.parent != source.parent]
    return [opened(path) for path in (source, same, others[7 * number % len(others)])]


def measure() -> None:
    files, done = photographs(), known()
    for number, place in enumerate(tqdm(sources(files), disable=None)):
        pictures = related(files, place, number)
        for side in SIDES:
            rows = done.setdefault(f"{side} pixels", {})
            for name, (change, _) in CHANGES.items():
                if str(number) not in rows.setdefault(name, {}):
                    rows[name][str(number)] = row(small(change(*pictures), side), small(pictures[0], side))
        write_text(RESULTS, in_lines(done))


#: Changes with the place of the middle of the common part in the query and in the image, and its scale.
PLACES: dict[str, tuple[complex, complex, float]] = {
    "turned by 10 degrees": (0.5 + 0.5j, 0.5 + 0.5j, 1.0),
    "cropped to 80 %": (0.5 + 0.5j, 0.5 + 0.5j, 0.8),
    "cropped to 60 %": (0.5 + 0.5j, 0.5 + 0.5j, 0.6),
    "cropped to 40 %": (0.5 + 0.5j, 0.5 + 0.5j, 0.4),
    "quarter pasted elsewhere": (0.3 + 0.65j, 0.5 + 0.5j, 1.0),
}
#: Side of a patch at 32 pixels, and how far off a place (of the side) and a scale may be.
PATCH, OFF, SCALE_OFF = 7, 0.04, 0.08


def patches_of(picture: Image.Image) -> Points:
    """All patches as points: what the comparison for shares matches, without its noise."""
    pixels = np.asarray(picture, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(pixels, (PATCH, PATCH), axis=(0, 1))
    values = windows.reshape(-1, 3 * PATCH * PATCH)
    values = values - values.mean(axis=1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True) + 1e-6
    places = np.indices(windows.shape[:2]).reshape(2, -1).T + PATCH // 2
    return Points(places.astype(np.float32), np.ones(len(places), np.float32), values)


def found_at(query: Points, image: Points, side: int, truth: tuple[complex, complex, float]) -> bool:
    """Whether most points agree on the right place and scale."""
    best = max(candidates(query, image, False), key=lambda one: len(one.seen))
    middle = side * truth[0] - 0.5 - 0.5j
    right_place = abs((best.at(middle) + 0.5 + 0.5j) / side - truth[1]) < OFF
    return right_place and abs(best.scale / truth[2] - 1) < SCALE_OFF


def compare_with_patches() -> None:
    files = photographs()
    print("| query | points of the files | patches at 32 pixels |\n|---|---:|---:|")
    for name, truth in PLACES.items():
        counts = np.zeros(2, int)
        places = range(0, len(files), 2 * STEP)
        for number, place in enumerate(places):
            pictures = related(files, place, number)
            query = CHANGES[name][0](*pictures)
            for way, (side, look) in enumerate(((256, points_at), (32, patches_of))):
                both = (look(small(query, side)), look(small(pictures[0], side)))
                counts[way] += found_at(*both, side, truth)
        print(f"| {name} | " + " | ".join(f"{count} of {len(places)}" for count in counts) + " |")


def points_at(picture: Image.Image) -> Points:
    return points_of(np.asarray(picture, np.float32) / np.float32(255))


def small(picture: Image.Image, side: int) -> Image.Image:
    return picture.resize((side, side), Image.Resampling.BICUBIC)


def row(query: Image.Image, image: Image.Image) -> list[Any]:
    """What the verdict rests on, and the seconds of the processor."""
    begin = time.process_time()
    found, sizes = Sight(query).best(image)
    verdict = judged(found, *sizes)
    seconds = time.process_time() - begin
    numbers = (found.area, found.of_overlap, 255 * found.residual, 255 * found.colours, seconds)
    transform = found.transform
    geometry = [len(found.confirmed), int(transform.mirrored), round(transform.scale, 3), round(transform.turn, 1)]
    return [verdict.kind.value, *(round(value, 3) for value in numbers), *geometry]


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def in_lines(done: dict[str, Any]) -> str:
    """JSON with one pair a line."""
    text = json.dumps(done, indent=1)
    return re.sub(r"\[[^\[\]]*\]", lambda found: " ".join(found.group().split()), text) + "\n"


def table() -> None:
    kinds = list(Kind)
    for side, of_side in known().items():
        for name in ("unseen", "looked at", "chosen"):
            pairs = right = 0
            print(f"\n{side}, {name}\n")
            print("| query | pairs | " + " | ".join(kinds) + " |\n|---" + "|---:" * (len(kinds) + 1) + "|")
            for change, rows in of_side.items():
                found = Counter(row[0] for number, row in rows.items() if half(int(number)) == name)
                count = sum(found.values())
                cells = [
                    f"**{found[kind]}**" if kind is CHANGES[change][1] else str(found[kind] or "") for kind in kinds
                ]
                print(f"| {change} | {count} | " + " | ".join(cells) + " |")
                pairs, right = pairs + count, right + found[CHANGES[change][1]]
            print(f"| right | {pairs} | {right} ({100 * right / max(1, pairs):.1f} %) |" + " |" * (len(kinds) - 1))
        seconds = [row[5] for rows in of_side.values() for row in rows.values()]
        print(f"\nseconds of one core for a pair: {np.mean(seconds):.2f} in the mean, {max(seconds):.2f} at most")


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["table"], ["patches"]):
        sys.exit("use no argument, table or patches")
    if sys.argv[1:] == ["patches"]:
        compare_with_patches()
    else:
        if not sys.argv[1:]:
            measure()
        table()
