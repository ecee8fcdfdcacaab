"""What half precision of latents and single precision of the kernel change in the shares of photographs.

    .venv/bin/python benchmarks/latent_precision.py       # half a minute; needs the photographs in ../shared/data

100 photographs as latents of 128 x 128, and ten others as queries, each changed as in benchmarks/pictures.py. The same
draw of the noise is compared three times: with latents as the encoder computes them (float32), with latents as stores
keep them (float16), and with these in tables of float64. The table has the largest difference of a share, as a part of
the largest share of its query, and of the shares of the ten first images, as a part of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from pictures import CHANGES, WEIGHTS, opened, photographs, small

from patchtrace import NDA, Compute, Recipe
from patchtrace.engines import preparation
from patchtrace.latents import load_autoencoder

SIDE, IMAGES, QUERIES = 128, 100, 10


def main() -> None:
    autoencoder = load_autoencoder(f"taef2:{WEIGHTS}")
    files = photographs()[::3]
    inside, hosts = files[:: len(files) // IMAGES][:IMAGES], photographs()[1::60]
    changes = list(CHANGES.values())
    changed = [
        small(changes[number % len(changes)](opened(inside[10 * number]), opened(hosts[number])), SIDE)
        for number in range(QUERIES)
    ]
    pictures = [np.asarray(picture) for picture in (*(small(opened(path), SIDE) for path in inside), *changed)]
    # before they are rounded: what Autoencoder.encode rounds; TAEF2 has scaling 1 and shift 0
    exact = np.concatenate(
        [
            np.asarray(autoencoder.network.encode(pixels.transpose(2, 0, 1)[None].astype(np.float32) / 127.5 - 1))
            for pixels in pictures
        ]
    )
    kept = np.concatenate([autoencoder.encode(pixels.transpose(2, 0, 1)[None]) for pixels in pictures])
    print(f"largest latent {np.abs(exact).max():.1f}, deviation {exact.std():.2f}")
    print(f"largest rounding, part of the latent: {relative(kept, exact):.2e} (2^-11 is {2**-11:.2e})")
    plain, plain_seconds = shares(kept.astype(np.float32))
    with precision() as chosen:
        shares(kept.astype(np.float32))
    print("the kernel compares in", *sorted({np.dtype(kind).name for kind in chosen}))
    with wide():
        double, double_seconds = shares(kept.astype(np.float32))
    print("| difference of shares | of the largest | of each of the first ten | other places among ten |")
    print("|---|---|---|---|")
    row("latents in float16, not float32", plain, shares(exact)[0])
    row("kernel in float32, not float64", plain, double)
    print(f"core seconds for a query: {plain_seconds:.2f}, in float64 {double_seconds:.2f}")


def relative(kept: np.ndarray, exact: np.ndarray) -> float:
    """The largest rounding of a latent that is not near zero."""
    large = np.abs(exact) > 1e-3
    return float((np.abs(kept.astype(np.float64) - exact)[large] / np.abs(exact)[large]).max())


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
