"""Changed pictures of a collection, and how often their source is found: first, and among the first ten.

    make pictures                                                     # all; hours, mostly for latents of 512
    .venv/bin/python benchmarks/pictures.py "latents of 256" pixel    # some only
    .venv/bin/python benchmarks/pictures.py "latents of 512" --rounds 12
    .venv/bin/python benchmarks/pictures.py "latents of 512, shrunk 1.5" --changes "quarter pasted 1.5 times larger"
    .venv/bin/python benchmarks/pictures.py --table                   # of what is known so far

600 photographs: 500 are the collection, and the other 100 are hosts, onto which parts are pasted, and which are blended
with. 40 of the collection are sources, changed at their full size. No source and no host is one of the photographs with
which the recipe for latents was chosen (latent_levels.py). Each comparison is exact, with one draw.

Of a way with "shrunk" the query is compared as it is and so many times smaller, and the shares of an image are
averaged; "zoom" compares the collection enlarged too (--views).

A round has one query of each change, each of another source; 40 rounds are every change of every source. Results are
kept query by query in benchmarks/results/pictures/, and a run goes on where it was stopped. Latents stay in
benchmarks/runs/. Times are core seconds: they hardly depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps
from tqdm import tqdm

from patchtrace import NDA, ImageSet, PixelSimilarity, Recipe, Store
from patchtrace.images import Decoding
from patchtrace.images.shrunken import repeated
from patchtrace.latents import load_autoencoder
from patchtrace.methods import EmbeddingSimilarity, Method

HERE = Path(__file__).resolve().parent
DATA = HERE.parent.parent / "shared" / "data"
PHOTOS, WEIGHTS = DATA / "photos", DATA / "taef2_encoder.safetensors"
RESULTS, RUNS = HERE / "results" / "pictures", HERE / "runs"
#: Of each six photographs the fifth is a host. latent_levels.py uses each third from the first for its collection, and
#: five others as hosts; sources are of each third from the third.
EACH, HOST, THIRD, SOURCES = 6, 4, 2, 40

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


#: What a picture of the collection has to be found through.
GOAL = ("JPEG 30", "mirrored", "cropped to 60 %", "turned 10 degrees", "darker", "recoloured", "a caption over it",
        "quarter pasted at its place", "half and half")  # fmt: skip


class Way(NamedTuple):
    """How pictures are compared: the method, the side that they are brought to, whether as latents, and the query at
    which sizes besides its own; what it is without these is another way, which is measured on the way."""

    make: Callable[[], Method]
    side: int = 32
    latents: bool = False
    shrink: tuple[float, ...] = ()
    plain: str = ""


def zoomed(recipe: Recipe) -> Recipe:
    """The recipe with the collection also enlarged."""
    return replace(recipe, views=(*recipe.views, "zoom:1.5"))


WAYS: dict[str, Way] = {
    "pixel similarity": Way(PixelSimilarity),
    "embedding": Way(EmbeddingSimilarity, 256),
    "32 pixels": Way(lambda: NDA(Recipe.for_size(32, 32))),
    "64 pixels": Way(lambda: NDA(Recipe.for_size(64, 64)), 64),
    "latents of 256": Way(NDA, 256, latents=True),
    "latents of 256, zoom 1.5": Way(lambda: NDA(zoomed(Recipe.for_latents(32, 32))), 256, latents=True),
    "latents of 512": Way(NDA, 512, latents=True),
    "latents of 512, zoom 1.5": Way(lambda: NDA(zoomed(Recipe.for_latents(64, 64))), 512, latents=True),
    "32 pixels, shrunk 1.5": Way(lambda: NDA(Recipe.for_size(32, 32)), 32, False, (1.5,), "32 pixels"),
    "latents of 256, shrunk 1.5": Way(NDA, 256, True, (1.5,), "latents of 256"),
    "latents of 256, shrunk 1.5 and 3": Way(NDA, 256, True, (1.5, 3), "latents of 256"),
    "latents of 512, shrunk 1.5": Way(NDA, 512, True, (1.5,), "latents of 512"),
    "latents of 512, shrunk 1.5 and 3": Way(NDA, 512, True, (1.5, 3), "latents of 512"),
}


class Query(NamedTuple):
    """A source (its place in the collection), how it is changed, and onto which photograph."""

    round: int
    change: str
    source: Path
    place: int
    host: Path

    @property
    def name(self) -> str:
        """The source, as it is called inside the folder."""
        return self.source.relative_to(PHOTOS).as_posix()


def photographs() -> list[Path]:
    files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        sys.exit("the photographs are not at hand: photos/ has to lie in shared/data/ beside the checkout")
    return files


def collection() -> list[Path]:
    return [path for number, path in enumerate(photographs()) if number % EACH != HOST]


def queries() -> list[Query]:
    """Round by round. In a round each change has another source; each source always has the same host."""
    files, inside = photographs(), collection()
    hosts = files[HOST::EACH]
    able = [path for number, path in enumerate(files) if number % 3 == THIRD]
    sources = [able[place] for place in np.linspace(0, len(able) - 1, SOURCES).astype(int)]
    # halfway through the list of hosts, so that they are clothes of another kind
    beside = [hosts[(len(hosts) * number // SOURCES + len(hosts) // 2) % len(hosts)] for number in range(SOURCES)]
    found = []
    for number in range(SOURCES):
        for step, change in enumerate(CHANGES):
            # 7 and 40 have no common factor, so that neighbours in a round are clothes of different kinds
            chosen = 7 * (number + 3 * step) % SOURCES
            source = sources[chosen]
            found.append(Query(number, change, source, inside.index(source), beside[chosen]))
    return found


def opened_collection(way: Way) -> ImageSet:
    """The collection; as latents out of a store of all photographs."""
    inside = collection()
    if not way.latents:
        return ImageSet.open(inside, size=way.side)
    store = Store(RUNS / f"latents-{way.side}.store")
    with tqdm(desc=f"latents of {way.side}", total=len(photographs()), disable=None) as bar:
        store.update(
            [PHOTOS],
            decoding=Decoding(size=(way.side, way.side)),
            latents=f"taef2:{WEIGHTS}",
            progress=lambda done, _: bar.update(done - bar.n),
        )
    images = ImageSet.open(store.path)
    rows = {name: row for row, name in enumerate(images.ids)}
    return images.subset([rows[path.relative_to(PHOTOS).as_posix()] for path in inside])


def asked(query: Query, way: Way) -> tuple[np.ndarray, float]:
    """A query as it is compared, (sizes, channels, height, width), and core seconds to encode it."""
    found = [_asked(query, way, times) for times in (1.0, *way.shrink)]
    return np.concatenate([pixels for pixels, _ in found]), sum(seconds for _, seconds in found)


def _asked(query: Query, way: Way, times: float) -> tuple[np.ndarray, float]:
    """One size of a query; latents are kept on the disk."""
    size = way.side if times == 1 else f"{way.side}-{times:g}"
    kept = RUNS / "queries" / f"{size}-{query.change}-{query.name}.npz".replace(" ", "_").replace("/", "-")
    if way.latents and kept.exists():
        with np.load(kept) as found:
            return found["latents"].astype(np.float32), float(found["seconds"])
    changed = small(CHANGES[query.change](opened(query.source), opened(query.host)), way.side)
    if times > 1:
        changed = np.asarray(repeated(Image.fromarray(changed), times))
    if not way.latents:
        return changed[None], 0.0
    autoencoder = load()
    begin = core_seconds()
    latents = autoencoder.encode(changed.transpose(2, 0, 1)[None])
    seconds = core_seconds() - begin
    kept.parent.mkdir(exist_ok=True)
    np.savez(kept, latents=latents, seconds=seconds)
    return latents.astype(np.float32), seconds


@cache
def load() -> Any:
    autoencoder = load_autoencoder(f"taef2:{WEIGHTS}")
    autoencoder.encode(np.zeros((1, 3, 64, 64), np.uint8))  # what the first picture takes besides is not its time
    return autoencoder


def measure(name: str, rounds: int, changes: Sequence[str]) -> None:
    """One way to compare, query by query."""
    way = WAYS[name]
    done = {(row["change"], row["source"]) for row in known(name)["rows"]}
    missing = [
        query
        for query in queries()
        if query.round < rounds and query.change in changes and (query.change, query.name) not in done
    ]
    if not missing:
        return
    images = opened_collection(way)
    method = way.make().fit(images)
    if isinstance(method, EmbeddingSimilarity):
        method.attribute(images.subset([0]))  # features of the collection are made once
    for query in tqdm(missing, desc=name, disable=None):
        changed, encoding = asked(query, way)
        begin = core_seconds()
        scores = method.attribute(changed).scores
        cost = np.array([encoding, core_seconds() - begin])
        keep(name, query, scores.mean(axis=0), cost)
        if way.plain:
            keep(way.plain, query, scores[0], cost / len(changed))


def keep(name: str, query: Query, scores: np.ndarray, cost: np.ndarray) -> None:
    """Write down where the source of a query is, unless that is known."""
    entry, rank = known(name), int((scores > scores[query.place]).sum())
    if any((row["change"], row["source"]) == (query.change, query.name) for row in entry["rows"]):
        return
    row: dict[str, Any] = {"round": query.round, "change": query.change, "source": query.name, "rank": rank}
    if rank:
        row["first"] = collection()[int(scores.argmax())].relative_to(PHOTOS).as_posix()
    encoding, seconds = (round(float(each), 3) for each in cost)
    entry["rows"].append(row | {"encoding": encoding, "seconds": seconds})
    RESULTS.mkdir(exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in entry["rows"])
    results_of(name).write_text(f'{{"images": {entry["images"]}, "rows": [\n{lines}\n]}}\n')


def results_of(name: str) -> Path:
    return RESULTS / f"{name.replace(', ', '-').replace(' ', '-')}.json"


def known(name: str) -> dict[str, Any]:
    path = results_of(name)
    return json.loads(path.read_text()) if path.exists() else {"images": len(collection()), "rows": []}


def core_seconds() -> float:
    """Processor time of this process and of those that it started and that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def opened(path: Path) -> Image.Image:
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def small(picture: Image.Image, side: int) -> np.ndarray:
    """At the size of the collection, cut and resized as it is."""
    return np.asarray(ImageOps.fit(picture, (side, side), Image.Resampling.LANCZOS))


def table(names: list[str]) -> None:
    """Each cell: the part of its queries whose source is first / among the first ten, and their number."""
    rows = {name: known(name)["rows"] for name in names}
    names = [name for name in names if rows[name]]
    print("| first / among ten (queries) | " + " | ".join(names) + " |\n|---" + "|---" * len(names) + "|")
    for change in CHANGES:
        print(f"| {change} | " + " | ".join(cell(rows[name], [change]) for name in names) + " |")
    print("| **all to be found** | " + " | ".join(cell(rows[name], GOAL, whole=True) for name in names) + " |")
    for column, words in (("encoding", "encode the query"), ("seconds", "compare it")):
        means = [np.mean([row[column] for row in rows[name]]) for name in names]
        print(f"| core seconds to {words} | " + " | ".join(f"{mean:.2g}" if mean else "" for mean in means) + " |")


def cell(rows: list[dict[str, Any]], changes: Sequence[str], *, whole: bool = False) -> str:
    """With ``whole``, nothing unless there are queries of each change; the mean over changes then."""
    ranks = [np.array([row["rank"] for row in rows if row["change"] == change]) for change in changes]
    if not all(map(len, ranks)):
        return ""
    first, ten = (np.mean([(each < top).mean() for each in ranks]) for top in (1, 10))
    return f"{first:.2f} / {ten:.2f} ({sum(map(len, ranks))})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*WAYS, []], help="what to measure; by default everything")
    parser.add_argument("--rounds", type=int, default=SOURCES, help="queries of each change; by default all 40")
    parser.add_argument("--changes", nargs="+", choices=list(CHANGES), default=list(CHANGES), help="some only")
    parser.add_argument("--table", action="store_true", help="print the table only")
    given = parser.parse_args()
    for name in [] if given.table else given.names or WAYS:
        measure(name, given.rounds, given.changes)
    table(given.names or list(WAYS))


if __name__ == "__main__":
    main()
