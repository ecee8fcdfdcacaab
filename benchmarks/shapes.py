"""Photographs of many shapes: how often the source of a part is found that lies at an end of it.

    .venv/bin/python benchmarks/shapes.py            # all; resumes where it was stopped
    .venv/bin/python benchmarks/shapes.py --table    # of what is known so far

The photographs are square. Each of every third of them (200) is cut to one of five shapes, in turn: 1:2, 2:3, 1:1, 3:2
and 2:1, around its middle: that is the collection. Sources are 30 of those that are not square. Three queries of each:

- whole: the source itself, as a JPEG of quality 30
- an end: the part of it that `--fit cover` cuts off on one side, by itself; of a photograph of 2:3 or 3:2 twice that
- an end elsewhere: an end in its own size at the end of a photograph of the other orientation that is not in the
  collection

All are compared as latents of 256 x 256 pixels, or of that area, with one exact draw of the default recipe. Times are
core seconds of the comparison with 200 images.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pictures import PHOTOS, RUNS, WEIGHTS, core_seconds, photographs
from PIL import Image

from patchtrace import NDA, Decoding, ImageSet, Store
from patchtrace.latents import load_autoencoder

RESULT = Path(__file__).resolve().parent / "results" / "shapes.json"
SIDE, SOURCES = 256, 30
#: Width and height of the shapes.
SHAPES = ((256, 512), (340, 512), (512, 512), (512, 340), (512, 256))
FITS = ("cover", "pad", "keep")
KINDS = ("whole", "an end", "an end elsewhere")


class Query(NamedTuple):
    """A source, by its place in the collection, and how it is changed."""

    kind: str
    place: int
    picture: Image.Image


def cut(path: Path, shape: tuple[int, int]) -> Image.Image:
    """A photograph of 512 x 512, cut to a shape around its middle."""
    picture = Image.open(path).convert("RGB")
    left, top = (picture.width - shape[0]) // 2, (picture.height - shape[1]) // 2
    return picture.crop((left, top, left + shape[0], top + shape[1]))


def collection() -> Path:
    """A folder with the collection, made when it is first needed."""
    folder = RUNS / "shapes"
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(photographs()[::3]):
        place = folder / f"{number:03d}.png"
        if not place.exists():
            cut(path, SHAPES[number % len(SHAPES)]).save(place)
    return folder


def end_of(picture: Image.Image) -> Image.Image:
    """A quarter of the longer side, from its beginning; of photographs of 2:3 and 3:2 a third."""
    width, height = picture.size
    part = max(width, height) // 4 if max(width, height) == 2 * min(width, height) else max(width, height) // 3
    return picture.crop((0, 0, width, part) if height > width else (0, 0, part, height))


def queries() -> list[Query]:
    files, places = photographs(), [n for n in range(len(photographs()[::3])) if n % len(SHAPES) != 2]
    found = []
    for at in np.linspace(0, len(places) - 1, SOURCES).astype(int):
        place = places[at]
        with Image.open(collection() / f"{place:03d}.png") as opened:
            source = opened.convert("RGB")
        stream = io.BytesIO()
        source.save(stream, "JPEG", quality=30)
        end = end_of(source)
        host = cut(files[1::3][(place + 100) % 200], source.size[::-1])
        host.paste(end, (host.width - end.width, host.height - end.height))
        pictures = Image.open(stream).convert("RGB"), end, host
        found += [Query(kind, place, picture) for kind, picture in zip(KINDS, pictures, strict=True)]
    return found


def latents_of(fit: str, autoencoder: Any) -> ImageSet:
    """The collection as latents, brought to size in this way; made once."""
    store = Store(RUNS / f"shapes-{fit}.store")
    store.update([collection()], decoding=Decoding(size=(SIDE, SIDE), fit=fit), latents=autoencoder, jobs=1)
    return ImageSet.open(store.path)


def measure() -> None:
    rows = json.loads(RESULT.read_text())["rows"] if RESULT.exists() else []
    done = {(row["fit"], row["kind"], row["place"]) for row in rows}
    autoencoder = load_autoencoder(f"taef2:{WEIGHTS}")
    methods = {fit: NDA().fit(latents_of(fit, autoencoder)) for fit in FITS}
    for query, (fit, method) in product(queries(), methods.items()):
        if (fit, query.kind, query.place) in done:
            continue
        asked = method.train_.open_like(query.picture)
        begin = core_seconds()
        scores = method.attribute(asked).scores[0]
        seconds = core_seconds() - begin
        rank = int((scores > scores[query.place]).sum())
        row = {"fit": fit, "kind": query.kind, "place": query.place, "rank": rank, "seconds": round(seconds, 3)}
        rows.append(row)
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        RESULT.write_text(f'{{"images": {len(scores)}, "rows": [\n{lines}\n]}}\n')


def table() -> None:
    """Each cell: the part of its queries whose source is first / among the first ten, and their number."""
    rows = json.loads(RESULT.read_text())["rows"]
    print("| first / among ten (queries) | " + " | ".join(f"`--fit {fit}`" for fit in FITS) + " |\n|---|---|---|---|")
    for kind in KINDS:
        of_fits = [np.array([row["rank"] for row in rows if (row["fit"], row["kind"]) == (fit, kind)]) for fit in FITS]
        cells = (f"{(ranks < 1).mean():.2f} / {(ranks < 10).mean():.2f} ({len(ranks)})" for ranks in of_fits)
        print(f"| {kind} | " + " | ".join(cells) + " |")
    means = (np.mean([row["seconds"] for row in rows if row["fit"] == fit]) for fit in FITS)
    print("| core seconds to compare | " + " | ".join(f"{mean:.2g}" for mean in means) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true", help="print the table only")
    if not parser.parse_args().table:
        if not PHOTOS.exists():
            sys.exit("the photographs are not at hand")
        measure()
    table()
