"""Changed pictures of a collection, and how often their source is found: first, and among the first ten.

    make pictures                                                   # all; hours, mostly for latents of 512
    .venv/bin/python benchmarks/pictures.py cifar "latents of 256"  # some only
    .venv/bin/python benchmarks/pictures.py --photos 200 --sources 10 "latents of 256"
    .venv/bin/python benchmarks/pictures.py --table "64 pixels" "latents of 256"

Sources are photographs of the collection, changed at their full size; pasted and blended ones go onto photographs that
are not in it. Results stay in benchmarks/results/pictures.json, those of other numbers of photographs and sources under
their own names; a run does what is missing there, change by change. Latents stay in benchmarks/runs/. Times are core
seconds: they hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps
from tqdm import tqdm

from patchtrace import NDA, ImageSet, PixelSimilarity, Recipe, Store
from patchtrace.images import Decoding
from patchtrace.methods import EmbeddingSimilarity, Method
from patchtrace.recipe import TIMESTEPS, Level, Scale

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data"
PHOTOS, WEIGHTS = DATA / "photos", DATA / "taef2_encoder.safetensors"
RESULTS, RUNS = HERE / "results" / "pictures.json", HERE / "runs"
#: Every so many-th photograph is left out of the collection: pasted parts go onto these.
LEFT_OUT, SOURCES = 6, 20

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


def captioned(source: Image.Image, _: Image.Image) -> Image.Image:
    """Words on a black bar over a sixth of the picture."""
    picture, (width, height) = source.copy(), source.size
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, round(0.78 * height), width, round(0.95 * height)), "black")
    draw.text((width / 20, round(0.82 * height)), "A CAPTION OVER IT", "white", ImageFont.load_default(height // 12))
    return picture


CHANGES: dict[str, Change] = {
    "JPEG 30": compressed,
    "mirrored": lambda source, _: ImageOps.mirror(source),
    "cropped to 60 %": cropped(0.6),
    "cropped to 30 %": cropped(0.3),
    "turned 10 degrees": lambda source, _: source.rotate(10, Image.Resampling.BICUBIC, fillcolor=(128, 128, 128)),
    "darker": lambda source, _: ImageEnhance.Brightness(source).enhance(0.7),
    "recoloured": recoloured,
    "a caption over it": captioned,
    "quarter pasted at its place": pasted((0.5, 0.5)),
    "quarter pasted elsewhere": pasted((0.3, 0.65)),
    "quarter pasted 1.5 times larger": pasted((0.5, 0.5), 1.5),
    "half and half": blended,
}


def recipe(*patches: int) -> Recipe:
    return Recipe(tuple(Level(t, (Scale(patch),)) for t, patch in zip(TIMESTEPS, patches, strict=True)))


class Way(NamedTuple):
    """How pictures are compared: the method, the side that they are brought to, and whether as latents."""

    make: Callable[[], Method]
    side: int = 32
    latents: bool = False


#: One draw each.
WAYS: dict[str, Way] = {
    "3, 5, 5, 7, 9": Way(lambda: NDA(recipe(3, 5, 5, 7, 9))),
    "5, 7, 9, 11, 13": Way(lambda: NDA(recipe(5, 7, 9, 11, 13))),
    "flips": Way(lambda: NDA(Recipe.preset("patchtrace"))),
    "flips, zoom 1.5": Way(lambda: NDA(replace(Recipe.preset("patchtrace"), views=("flips", "zoom:1.5")))),
    "3, 5, 7, 9, 11": Way(lambda: NDA(recipe(3, 5, 7, 9, 11))),
    "cifar": Way(lambda: NDA(Recipe.preset("cifar"))),
    "pixel": Way(PixelSimilarity),
    "embedding": Way(EmbeddingSimilarity),
    "64 pixels": Way(lambda: NDA(Recipe.for_size(64, 64)), 64),
    "embedding of 256": Way(EmbeddingSimilarity, 256),
    "latents of 256": Way(NDA, 256, latents=True),
    "latents of 512": Way(NDA, 512, latents=True),
}


class Task(NamedTuple):
    """Which photographs are in the collection, which of them are changed, and onto what."""

    inside: list[Path]
    places: np.ndarray
    hosts: list[Path]

    @classmethod
    def of(cls, photos: int | None, sources: int) -> Task:
        files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
        if not files:
            sys.exit("the photographs are not at hand: photos/ has to lie in shared/data/ beside the checkout")
        if photos:
            files = [files[place] for place in np.linspace(0, len(files) - 1, photos).astype(int)]
        inside = [path for number, path in enumerate(files) if number % LEFT_OUT]
        return cls(inside, np.linspace(0, len(inside) - 1, sources).astype(int), files[::LEFT_OUT])

    def queries(self, change: Change, side: int) -> np.ndarray:
        """The changed pictures: u8 (sources, side, side, 3)."""
        hosts = [self.hosts[number % len(self.hosts)] for number in range(len(self.places))]
        pairs = zip(self.places, hosts, strict=True)
        return np.stack([small(change(opened(self.inside[place]), opened(host)), side) for place, host in pairs])


def collection(way: Way, task: Task) -> ImageSet:
    if not way.latents:
        return ImageSet.open(task.inside, size=way.side)
    store = Store(RUNS / f"latents-{way.side}-{len(task.inside)}.store")
    rules = Decoding(size=(way.side, way.side))
    with tqdm(desc=f"latents of {way.side}", total=len(task.inside), disable=None) as bar:
        store.update(
            task.inside, decoding=rules, latents=f"taef2:{WEIGHTS}", progress=lambda done, _: bar.update(done - bar.n)
        )
    return ImageSet.open(store.path)


def measure(name: str, key: str, task: Task) -> None:
    """One way to compare, change by change."""
    way, entry = WAYS[name], known().get(key, {"images": len(task.inside), "sources": len(task.places), "found": {}})
    if (entry["images"], entry["sources"]) != (len(task.inside), len(task.places)):
        sys.exit(f"{key!r} was measured on other photographs: delete it from {RESULTS.name}, or use its numbers")
    missing = [change for change in CHANGES if change not in entry["found"]]
    if not missing:
        return
    begin = core_seconds()
    train = collection(way, task)
    entry.setdefault("index", core_seconds() - begin)
    method, timed = way.make().fit(train), entry.setdefault("queries", {})
    for change in tqdm(missing, desc=key, disable=None):
        queries, begin = task.queries(CHANGES[change], way.side), core_seconds()
        scores = method.attribute(queries).scores
        timed[change] = (core_seconds() - begin) / len(queries)
        own = scores[np.arange(len(queries)), task.places]
        ranks = (scores > own[:, None]).sum(axis=1)
        entry["found"][change] = [float((ranks < top).mean()) for top in (1, 10)]
        RESULTS.write_text(json.dumps(known() | {key: entry}, indent=1) + "\n")


def core_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def opened(path: Path) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def small(picture: Image.Image, side: int) -> np.ndarray:
    """At the size of the collection, cut and resized as it is."""
    return np.asarray(ImageOps.fit(picture, (side, side), Image.Resampling.LANCZOS))


def known() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def table(keys: list[str]) -> None:
    keys = [key for key in keys if key in known()]
    found = {key: known()[key]["found"] for key in keys}
    print("| first / among ten | " + " | ".join(keys) + " |\n|---" + "|---" * len(keys) + "|")
    for change in CHANGES:
        cells = ["{:.2f} / {:.2f}".format(*found[key][change]) if change in found[key] else "" for key in keys]
        print(f"| {change} | " + " | ".join(cells) + " |")
    common = [change for change in CHANGES if all(change in found[key] for key in keys)]
    means = [np.mean([found[key][change] for change in common], axis=0) for key in keys]
    print(f"| mean of {len(common)} | " + " | ".join(f"{one:.2f} / {ten:.2f}" for one, ten in means) + " |")
    for row, digits in (("index", 0), ("queries", 1)):
        times = [known()[key].get(row) for key in keys]
        shown = [np.mean(list(each.values())) if isinstance(each, dict) and each else each or None for each in times]
        cells = ["" if each is None else f"{each:.{digits}f}" for each in shown]
        words = "core seconds to open the collection" if row == "index" else "core seconds a query"
        print(f"| {words} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*WAYS, []], help="what to measure; by default everything")
    parser.add_argument("--photos", type=int, help="number of photographs; by default all")
    parser.add_argument("--sources", type=int, default=SOURCES, help="number of them that are changed")
    parser.add_argument("--table", action="store_true", help="print the table only")
    asked = parser.parse_args()
    task = Task.of(asked.photos, asked.sources)
    usual = asked.photos is None and asked.sources == SOURCES
    tail = "" if usual else f" ({len(task.inside)} photographs, {asked.sources} sources)"
    keys = {f"{name}{tail}": name for name in asked.names or WAYS}
    for key, name in {} if asked.table else keys.items():
        measure(name, key, task)
    table(list(keys))


if __name__ == "__main__":
    main()
