"""What half precision of latents and single precision of the kernel change in the shares of photographs.

    .venv/bin/python benchmarks/latent_precision.py       # seconds, after benchmarks/pictures.py "latents of 256"

100 photographs as latents of 256 x 256, and ten queries of that benchmark. The same draw of the noise is compared three
times: with latents as stores keep them (float16), with numbers that would have been rounded to these (float32, evenly
drawn between the middles to the next ones), and with the former in tables of float64. The table has the largest
difference of a share, as a part of the largest share of its query, and of those of the ten first images, as a part of
each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pictures import WAYS, asked, opened_collection, queries

from patchtrace import NDA, Compute, Recipe
from patchtrace.engines import preparation

WAY, IMAGES, QUERIES = WAYS["latents of 256"], 100, 10


def main() -> None:
    images = opened_collection(WAY)
    images = images.subset(range(0, len(images), len(images) // IMAGES))
    some = [query for query in queries() if query.change == "quarter pasted 1.5 times larger"][:QUERIES]
    changed = np.concatenate([asked(query, WAY)[0] for query in some])
    kept = np.concatenate([images.pixels[:], changed.astype(np.float16)])
    steps = np.spacing(np.abs(kept)).astype(np.float64)
    drawn = (kept + steps * np.random.default_rng(0).uniform(-0.5, 0.5, kept.shape)).astype(np.float32)
    print(f"largest latent {np.abs(kept).max():.1f}, deviation {kept.astype(np.float32).std():.2f}")
    plain, plain_seconds = shares(kept.astype(np.float32))
    with precision() as chosen:
        shares(kept.astype(np.float32))
    print("the kernel compares in", *sorted({np.dtype(kind).name for kind in chosen}))
    with wide():
        double, double_seconds = shares(kept.astype(np.float32))
    print("| difference of shares | of the largest | of each of the first ten | other places among ten |")
    print("|---|---|---|---|")
    row("latents in float16, not float32", plain, shares(drawn)[0])
    row("kernel in float32, not float64", plain, double)
    print(f"core seconds for a query: {plain_seconds:.2f}, in float64 {double_seconds:.2f}")


def shares(latents: np.ndarray) -> tuple[np.ndarray, float]:
    """Shares of the collection, (queries, images), and core seconds for a query: one draw, the same each time."""
    side = latents.shape[-1]
    method = NDA(Recipe.for_latents(side, side), compute=Compute(engine="native", threads=1))
    begin = time.process_time()
    result = method.fit(latents[:IMAGES]).attribute(latents[IMAGES:])
    return result.shares.astype(np.float64), (time.process_time() - begin) / QUERIES


@contextmanager
def wide() -> Iterator[None]:
    """Let the kernel have float64 always."""
    usual, preparation.FLOAT32_ROUNDING = preparation.FLOAT32_ROUNDING, 0.0
    try:
        yield
    finally:
        preparation.FLOAT32_ROUNDING = usual


@contextmanager
def precision() -> Iterator[list[type]]:
    """Which precision the kernel chooses."""
    chosen: list[type] = []
    usual = preparation.precision

    def noted(*arguments: float) -> type:
        chosen.append(usual(*arguments))
        return chosen[-1]

    preparation.precision = noted
    try:
        yield chosen
    finally:
        preparation.precision = usual


def row(name: str, one: np.ndarray, other: np.ndarray) -> None:
    first = np.argsort(-other, axis=1)[:, :10]
    of_largest = np.abs(one - other).max(axis=1) / other.max(axis=1)
    ours, theirs = (np.take_along_axis(each, first, axis=1) for each in (one, other))
    moved = (np.argsort(-one, axis=1)[:, :10] != first).sum()
    of_each = (np.abs(ours - theirs) / theirs).max()
    print(f"| {name} | {of_largest.max():.1e} | {of_each:.1e} | {moved} of {10 * QUERIES} |")


if __name__ == "__main__":
    main()
