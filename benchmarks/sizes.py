"""32 or 64 pixels? What is found at each size, and what the size of patches has to do with it: prints a table.

    .venv/bin/python benchmarks/sizes.py    # three core minutes; resumes; keeps benchmarks/results/sizes.json

A collection of 100 photographs. Ten of them are each changed in three ways: a quarter pasted into a photograph outside
the collection, a crop of 60 % of the sides, and a blend, half and half, with another member. Settings are the size and
how large patches are: the default's 5 to 13 pixels at 32 and at 64, those at 64 doubled (as large a part of the picture
as at 32), those at 32 halved (as small a part as at 64). No views, one draw.

A row says at which place the source is (of a blend, the better of the two), and how much contrast the first five other
images have: their mean place in the collection, 0 for the flattest image and 1 for that with most contrast.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from pictures import CHANGES, opened, photographs
from PIL import Image, ImageOps
from tqdm import tqdm

from patchtrace import NDA, ImageSet, Level, Recipe, Scale

RESULTS = Path(__file__).resolve().parent / "results" / "sizes.json"
COLLECTION, SOURCES, LONGEST = 100, 10, 384
KINDS = ("quarter pasted elsewhere", "cropped to 60 %", "half and half")


def with_patches(recipe: Recipe, factor: float) -> Recipe:
    """The recipe with patches this many times as large, to the next odd number."""
    levels = tuple(
        Level(level.t, tuple(Scale(2 * round((factor * scale.patch - 1) / 2) + 1) for scale in level.scales))
        for level in recipe.levels
    )
    return replace(recipe, levels=levels)


DEFAULT = replace(Recipe.for_size(32, 32), views=(), draws=1)
SETTINGS = {
    "32": (32, DEFAULT),
    "32, patches halved": (32, with_patches(DEFAULT, 0.5)),
    "64": (64, DEFAULT),
    "64, patches doubled": (64, with_patches(DEFAULT, 2)),
}


def shrunk(path: Path) -> Image.Image:
    """A photograph, as large as it has to be here."""
    picture = opened(path)
    picture.thumbnail((LONGEST, LONGEST))
    return picture


def contrast(pixels: np.ndarray) -> np.ndarray:
    """The mean difference of neighbouring pixels, for each image."""
    values = pixels.astype(np.float64)
    return sum(np.abs(np.diff(values, axis=axis)).mean(axis=(1, 2, 3)) for axis in (2, 3))


def main() -> None:
    files = photographs()
    chosen = [files[place] for place in np.linspace(0, len(files) - 1, COLLECTION + SOURCES).astype(int)]
    hosts = chosen[:: COLLECTION // SOURCES + 1][:SOURCES]
    members = [path for path in chosen if path not in hosts]
    places = np.linspace(0, COLLECTION - 1, SOURCES).astype(int)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {(row["setting"], row["kind"], row["source"]) for row in rows}
    collections: dict[int, ImageSet] = {}
    tasks = [(number, kind, name) for number in range(SOURCES) for kind in KINDS for name in SETTINGS]
    for number, kind, name in tqdm(tasks, disable=None):
        side, recipe = SETTINGS[name]
        source = int(places[number])
        other = (source + COLLECTION // 2) % COLLECTION  # clothes of another kind
        if (name, kind, source) in done:
            continue
        if side not in collections:
            pictures = [ImageOps.fit(shrunk(path), (side, side), Image.Resampling.LANCZOS) for path in members]
            collections[side] = ImageSet.open(pictures, size=side)
        train = collections[side]
        beside = members[other] if kind == "half and half" else hosts[number]
        changed = CHANGES[kind](shrunk(members[source]), shrunk(beside))
        query = ImageOps.fit(changed, (side, side), Image.Resampling.LANCZOS)
        scores = NDA(recipe).fit(train).attribute([query]).scores[0]
        order = np.argsort(-scores, kind="stable")
        sources = [source, other] if kind == "half and half" else [source]
        rich = contrast(train.pixels[:]).argsort().argsort() / (COLLECTION - 1)
        place = 1 + min(int(np.flatnonzero(order == one)[0]) for one in sources)
        first = order[~np.isin(order, sources)][:5]
        rows.append(
            {"setting": name, "kind": kind, "source": source, "place": place, "contrast": round(rich[first].mean(), 3)}
        )
        lines = ",\n".join(json.dumps(row) for row in rows)
        RESULTS.write_text(f"[\n{lines}\n]\n")
    table(rows)


def table(rows: list[dict[str, object]]) -> None:
    print("| | " + " | ".join(KINDS) + " | contrast of the first images for blends |\n|---" + "|---" * 4 + "|")
    for name in SETTINGS:
        cells = []
        for kind in KINDS:
            found = sorted(row["place"] for row in rows if (row["setting"], row["kind"]) == (name, kind))
            cells.append(f"{sum(p == 1 for p in found)} / {sum(p <= 10 for p in found)}, {np.median(found):g}")
        blends = [row["contrast"] for row in rows if (row["setting"], row["kind"]) == (name, "half and half")]
        print(f"| {name} | " + " | ".join(cells) + f" | {np.mean(blends):.2f} |")


if __name__ == "__main__":
    main()
