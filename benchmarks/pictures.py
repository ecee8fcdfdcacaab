"""Changed pictures of a collection, and how often their source is found: first, and among the first ten.

    make pictures                                          # the table of docs/results.md, half an hour on two cores
    .venv/bin/python benchmarks/pictures.py cifar          # some recipes only

Sources are photographs of the collection, changed at their full size; pasted and blended ones go onto photographs that
are not in it. Results stay in benchmarks/results/pictures.json; a run does what is missing there.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageEnhance, ImageOps
from tqdm import tqdm

from patchtrace import NDA, ImageSet, PixelSimilarity, Recipe
from patchtrace.methods import EmbeddingSimilarity, Method
from patchtrace.recipe import TIMESTEPS, Level, Scale

HERE = Path(__file__).resolve().parent
PHOTOS = HERE.parent.parent / "shared" / "data" / "photos"
RESULTS = HERE / "results" / "pictures.json"
#: Every so many-th photograph is left out of the collection: pasted parts go onto these.
LEFT_OUT, SOURCES, SIDE = 6, 20, 32

Change = Callable[[Image.Image, Image.Image], Image.Image]


def cropped(part: float) -> Change:
    """The middle, enlarged."""

    def change(source: Image.Image, _: Image.Image) -> Image.Image:
        width, height = (round(part * side) for side in source.size)
        left, top = (source.width - width) // 2, (source.height - height) // 2
        return source.crop((left, top, left + width, top + height)).resize(source.size)

    return change


def pasted(place: tuple[float, float], times: float = 1.0) -> Change:
    """A quarter of the area, from the middle, into another photograph: its middle at this part of the sides."""

    def change(source: Image.Image, host: Image.Image) -> Image.Image:
        host = ImageOps.fit(host, source.size)
        width, height = source.width // 2, source.height // 2
        part = source.crop((width // 2, height // 2, width // 2 + width, height // 2 + height))
        part = part.resize((round(times * width), round(times * height)))
        corner = (round(place[0] * host.width - part.width / 2), round(place[1] * host.height - part.height / 2))
        host.paste(part, corner)
        return host

    return change


def compressed(source: Image.Image, _: Image.Image) -> Image.Image:
    stream = io.BytesIO()
    source.save(stream, "JPEG", quality=30)
    return Image.open(stream).convert("RGB")


def recoloured(source: Image.Image, _: Image.Image) -> Image.Image:
    hue, saturation, value = source.convert("HSV").split()
    hue = hue.point([(level + 64) % 256 for level in range(256)])
    return Image.merge("HSV", (hue, saturation, value)).convert("RGB")


def blended(source: Image.Image, host: Image.Image) -> Image.Image:
    return Image.blend(source, ImageOps.fit(host, source.size), 0.5)


CHANGES: dict[str, Change] = {
    "JPEG 30": compressed,
    "mirrored": lambda source, _: ImageOps.mirror(source),
    "cropped to 60 %": cropped(0.6),
    "turned 10 degrees": lambda source, _: source.rotate(10, Image.Resampling.BICUBIC, fillcolor=(128, 128, 128)),
    "darker": lambda source, _: ImageEnhance.Brightness(source).enhance(0.7),
    "recoloured": recoloured,
    "quarter pasted at its place": pasted((0.5, 0.5)),
    "quarter pasted elsewhere": pasted((0.3, 0.65)),
    "quarter pasted 1.5 times larger": pasted((0.5, 0.5), 1.5),
    "half and half": blended,
}


def recipe(*patches: int) -> Recipe:
    return Recipe(tuple(Level(t, (Scale(patch),)) for t, patch in zip(TIMESTEPS, patches, strict=True)))


#: One draw each.
METHODS: dict[str, Callable[[], Method]] = {
    "3, 5, 5, 7, 9": lambda: NDA(recipe(3, 5, 5, 7, 9)),
    "5, 7, 9, 11, 13": lambda: NDA(recipe(5, 7, 9, 11, 13)),
    "flips": lambda: NDA(Recipe.preset("patchtrace")),
    "flips, zoom 1.5": lambda: NDA(replace(Recipe.preset("patchtrace"), views=("flips", "zoom:1.5"))),
    "3, 5, 7, 9, 11": lambda: NDA(recipe(3, 5, 7, 9, 11)),
    "cifar": lambda: NDA(Recipe.preset("cifar")),
    "pixel": PixelSimilarity,
    "embedding": EmbeddingSimilarity,
}


def measure(names: list[str]) -> None:
    files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        sys.exit("the photographs are not at hand: photos/ has to lie in shared/data/ beside the checkout")
    inside = [path for number, path in enumerate(files) if number % LEFT_OUT]
    hosts = files[::LEFT_OUT]
    places = np.linspace(0, len(inside) - 1, SOURCES).astype(int)
    train = ImageSet.open(inside, size=SIDE)
    queries = {
        change: ImageSet.open(
            np.stack([small(made(opened(inside[place]), opened(hosts[number]))) for number, place in enumerate(places)])
        )
        for change, made in CHANGES.items()
    }
    for name in names:
        if name in known():
            continue
        method, found, begin = METHODS[name]().fit(train), {}, time.perf_counter()
        for change, some in tqdm(queries.items(), desc=name, disable=None):
            scores = method.attribute(some).scores
            own = scores[np.arange(SOURCES), places]
            ranks = (scores > own[:, None]).sum(axis=1)
            found[change] = [float((ranks < top).mean()) for top in (1, 10)]
        facts = {"images": len(train), "sources": SOURCES, "seconds": time.perf_counter() - begin}
        RESULTS.write_text(json.dumps(known() | {name: {**facts, "found": found}}, indent=1) + "\n")


def opened(path: Path) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def small(picture: Image.Image) -> np.ndarray:
    """At the size of the collection, cut and resized as it is."""
    return np.asarray(ImageOps.fit(picture, (SIDE, SIDE), Image.Resampling.LANCZOS))


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def table() -> None:
    names = [name for name in METHODS if name in known()]
    print("| first / among ten | " + " | ".join(names) + " |\n|---" + "|---" * len(names) + "|")
    for change in CHANGES:
        cells = ["{:.2f} / {:.2f}".format(*known()[name]["found"][change]) for name in names]
        print(f"| {change} | " + " | ".join(cells) + " |")
    means = [np.mean(list(known()[name]["found"].values()), axis=0) for name in names]
    print("| mean | " + " | ".join(f"{one:.2f} / {ten:.2f}" for one, ten in means) + " |")


if __name__ == "__main__":
    asked = sys.argv[1:] or list(METHODS)
    if set(asked) - set(METHODS):
        sys.exit(f"there is no {(set(asked) - set(METHODS)).pop()!r}: use {', '.join(METHODS)}")
    measure(asked)
    table()
