"""How often the source of a changed photograph is found at 32 x 32 under several recipes: how the default was chosen.

    .venv/bin/python benchmarks/pixel_recipes.py                # all; goes on where it was stopped
    .venv/bin/python benchmarks/pixel_recipes.py cifar pixel    # some only

20 of 500 photographs, changed in ten of the ways of pictures.py. Results stay in benchmarks/results/pixel_recipes.json.
pictures.py reports on other sources.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pictures import CHANGES, opened, photographs, small
from tqdm import tqdm

from patchtrace import NDA, ImageSet, PixelSimilarity, Recipe
from patchtrace.methods import EmbeddingSimilarity, Method
from patchtrace.recipe import TIMESTEPS, Level, Scale

RESULTS = Path(__file__).resolve().parent / "results" / "pixel_recipes.json"
#: Every so many-th photograph is left out of the collection: pasted parts go onto these.
LEFT_OUT, SOURCES, SIDE = 6, 20, 32
LATER = ("cropped to 30 %", "a caption over it")  # changes that were added when the recipe was chosen


def recipe(*patches: int) -> Recipe:
    return Recipe(tuple(Level(t, (Scale(patch),)) for t, patch in zip(TIMESTEPS, patches, strict=True)))


#: One draw each.
WAYS: dict[str, Callable[[], Method]] = {
    "3, 5, 5, 7, 9": lambda: NDA(recipe(3, 5, 5, 7, 9)),
    "5, 7, 9, 11, 13": lambda: NDA(recipe(5, 7, 9, 11, 13)),
    "3, 5, 7, 9, 11": lambda: NDA(recipe(3, 5, 7, 9, 11)),
    "cifar": lambda: NDA(Recipe.preset("cifar")),
    "pixel": PixelSimilarity,
    "embedding": EmbeddingSimilarity,
}


def main() -> None:
    unknown = set(sys.argv[1:]) - set(WAYS)
    if unknown:
        sys.exit(f"there is no {', '.join(unknown)}: use some of {', '.join(WAYS)}")
    files = photographs()
    inside, hosts = [path for number, path in enumerate(files) if number % LEFT_OUT], files[::LEFT_OUT]
    places = np.linspace(0, len(inside) - 1, SOURCES).astype(int)
    for name in sys.argv[1:] or WAYS:
        entry = known().get(name, {"images": len(inside), "sources": SOURCES, "found": {}})
        missing = [change for change in CHANGES if change not in entry["found"] and change not in LATER]
        if not missing:
            continue
        begin = time.process_time()
        method = WAYS[name]().fit(ImageSet.open(inside, size=SIDE))
        for change in tqdm(missing, desc=name, disable=None):
            pairs = zip(places, hosts, strict=False)
            changed = [CHANGES[change](opened(inside[place]), opened(host)) for place, host in pairs]
            scores = method.attribute(np.stack([small(picture, SIDE) for picture in changed])).scores
            ranks = (scores > scores[np.arange(SOURCES), places][:, None]).sum(axis=1)
            entry["found"][change] = [float((ranks < top).mean()) for top in (1, 10)]
        entry["seconds"] = time.process_time() - begin
        RESULTS.write_text(json.dumps(known() | {name: entry}, indent=1) + "\n")
    shown = [name for name in WAYS if name in known()]
    print("| first / among ten | " + " | ".join(shown) + " |\n|---" + "|---" * len(shown) + "|")
    for change in [change for change in CHANGES if change not in LATER]:
        cells = ["{:.2f} / {:.2f}".format(*known()[name]["found"].get(change, (np.nan, np.nan))) for name in shown]
        print(f"| {change} | " + " | ".join(cells) + " |")


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    main()
