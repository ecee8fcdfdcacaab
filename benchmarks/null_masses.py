"""Queries with and without a source in a collection, and what each level of NDA gives every image for them.

    .venv/bin/python benchmarks/null_masses.py photos       # one set; also classes, cifar2
    .venv/bin/python benchmarks/null_masses.py photos 4     # with four draws of the noise

The first half of benchmarks/null.py, which needs it: half an hour on one core for all sets. What is computed stays in
benchmarks/runs/null/; a run does what is missing there. The sets:

photos   photographs of ten kinds of clothes; others of the same kinds are controls and unrelated queries
classes  photographs of five of these kinds; those of the other five are controls and unrelated queries
cifar2   training images of CIFAR-2; validation images are controls and unrelated queries
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pictures import CHANGES, PHOTOS, Change, opened
from PIL import Image, ImageOps
from tqdm import tqdm

from patchtrace import NDA, Compute, ImageSet, Recipe
from patchtrace.cache import Cache, digest
from patchtrace.demo import painted_from
from patchtrace.null.alike import near_duplicates

HERE = Path(__file__).resolve().parent
CIFAR2 = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
CACHE = Cache(HERE / "runs" / "null", "masses of queries")
CONTROLS, UNRELATED, SOURCES = 99, 200, 30
#: Side of the pictures, and images in the collection.
SIDE, COLLECTION = 16, 300
if "32" in sys.argv:
    SIDE, COLLECTION, SOURCES = 32, 150, 20
CHANGED = (
    *("mirrored", "cropped to 60 %", "quarter pasted at its place", "half and half", "recoloured"),
    *("quarter pasted elsewhere", "quarter pasted 1.5 times larger"),
)
#: Queries between two saves.
AT_ONCE = 10
SQUARES, PAINTED = (0.1, 0.2, 0.4), (1, 2, 4, 8)


@dataclass(frozen=True)
class Pictures:
    """A set: pictures of the collection, and others that are not in it."""

    name: str
    inside: list[Image.Image]
    outside: list[Image.Image]

    @cached_property
    def train(self) -> ImageSet:
        return stacked(self.inside)

    @cached_property
    def sources(self) -> NDArray[np.intp]:
        """Members that changed pictures are made from."""
        return np.linspace(0, len(self.inside) - 1, SOURCES).astype(int)

    @cached_property
    def members(self) -> NDArray[np.intp]:
        """Members that are left out, one at a time."""
        return np.sort(np.random.default_rng(1).permutation(len(self.inside))[:CONTROLS])

    def queries(self) -> Iterator[tuple[str, ImageSet]]:
        """Kinds of queries, and the queries of each."""
        hosts = self.outside[CONTROLS : CONTROLS + UNRELATED]
        yield "controls", stacked(self.outside[:CONTROLS])
        if self.name == "classes":
            yield "unrelated", stacked(hosts)
            return
        changes = {"copy": lambda source, _: source, **{name: CHANGES[name] for name in CHANGED}}
        changes |= {f"square of {100 * part:.0f} %": square(part) for part in SQUARES}
        for name, change in changes.items():
            yield (
                name,
                stacked([change(self.inside[place], host) for place, host in zip(self.sources, hosts, strict=False)]),
            )
        for count in PAINTED:
            rng = np.random.default_rng(count)
            groups = [rng.choice(len(self.inside), count, replace=False).tolist() for _ in range(SOURCES)]
            yield f"painted from {count}", painted_from(self.train, groups).queries
        yield "unrelated", stacked(hosts)


def square(part: float) -> Change:
    """A square of this part of the area, from a random place of the source into the same place of another picture."""

    def change(source: Image.Image, host: Image.Image) -> Image.Image:
        host = ImageOps.fit(host, source.size)
        width, height = (round(part**0.5 * side) for side in source.size)
        rng = np.random.default_rng(np.asarray(source)[::7, ::7].sum())
        left, top = int(rng.integers(source.width - width + 1)), int(rng.integers(source.height - height + 1))
        host.paste(source.crop((left, top, left + width, top + height)), (left, top))
        return host

    return change


def stacked(pictures: list[Image.Image]) -> ImageSet:
    frame = SIDE, SIDE
    return ImageSet.open(np.stack([ImageOps.fit(one, frame, Image.Resampling.LANCZOS) for one in pictures]))


def photos() -> Pictures:
    files = np.random.default_rng(0).permutation(photographs())
    return chosen("photos", files[: len(files) // 2], files[len(files) // 2 :])


def classes() -> Pictures:
    files = np.random.default_rng(0).permutation(photographs())
    names = sorted({path.parent.name for path in files})[::2]
    return chosen(
        "classes", *([path for path in files if (path.parent.name in names) == side] for side in (True, False))
    )


def chosen(name: str, inside: Sequence[Path], outside: Sequence[Path]) -> Pictures:
    parts = inside[:COLLECTION], outside[: CONTROLS + UNRELATED]
    return Pictures(name, *([moderate(opened(path)) for path in part] for part in parts))


def moderate(picture: Image.Image) -> Image.Image:
    """Small enough that changes are quick, and many times larger than the pictures that are compared."""
    picture.thumbnail((320, 320), Image.Resampling.LANCZOS)
    return picture


def cifar2() -> Pictures:
    with np.load(CIFAR2) as archive:
        rng = np.random.default_rng(0)
        counts = {"train": COLLECTION, "val": CONTROLS + UNRELATED}
        some = [archive[name][rng.permutation(len(archive[name]))[:count]] for name, count in counts.items()]
    return Pictures("cifar2", *([Image.fromarray(pixels) for pixels in part] for part in some))


def photographs() -> list[Path]:
    files = sorted(path for path in PHOTOS.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not files:
        sys.exit("the photographs are not at hand: photos/ has to lie in shared/data/ beside the checkout")
    return files


SETS: dict[str, Callable[[], Pictures]] = {"photos": photos, "classes": classes, "cifar2": cifar2}


def recipe(draws: int) -> Recipe:
    return replace(Recipe.for_size(SIDE, SIDE), draws=draws, flips=True)


def masses(train: ImageSet, queries: ImageSet, draws: int) -> NDArray[np.float32]:
    """What each level gives every image: float32 (queries, levels, train)."""
    found = []
    for start in range(0, len(queries), AT_ONCE):
        some = queries.subset(range(start, min(start + AT_ONCE, len(queries))))
        key = digest(recipe(draws).to_dict(), train.fingerprint(), some.fingerprint())
        if (known := CACHE.load(key)) is None:
            method = NDA(recipe(draws), parts=True, compute=Compute(threads=1)).fit(train)
            known = {"parts": method.attribute(some).nda.parts.transpose(1, 0, 2)}
            CACHE.save(key, **known)
        found.append(known["parts"])
    return np.concatenate(found)


def left_out(pictures: Pictures, draws: int) -> NDArray[np.float32]:
    """The same for members, without themselves and their near-duplicates, which have NaN: (members, levels, train)."""
    train, found = pictures.train, []
    alike = near_duplicates(train, pictures.members)
    for member, others in tqdm(list(zip(pictures.members, alike, strict=True)), desc="left out", disable=None):
        rest = np.setdiff1d(np.arange(len(train)), others)
        row = np.full((len(recipe(1).levels), len(train)), np.nan, np.float32)
        row[:, rest] = masses(train.subset(rest), train.subset([member]), draws)[0]
        found.append(row)
    return np.stack(found)


if __name__ == "__main__":
    pictures, draws = SETS[sys.argv[1]](), 1
    for name, queries in pictures.queries():
        print(pictures.name, name, masses(pictures.train, queries, draws).shape, flush=True)
    print(pictures.name, "left out", left_out(pictures, draws).shape, flush=True)
