"""What a draw is worth if patches of the query have noises of their own; and where in the picture the variance is.

    .venv/bin/python benchmarks/patchwork.py            # about five minutes
    .venv/bin/python benchmarks/patchwork.py default    # the levels of the default recipe: pairs or patchworks?

The first: patches of 21 x 21 at t 400 and 500 of preset cifar, 200 CIFAR-2 images, 2 queries, 16 noises, in NumPy. For
each noise the shares of all query patches are computed with the noise and with its negative, where it is and moved by
half of the interior (corner patches: with the noise turned). From these, put together patch by patch, follow all kinds
of draws: their variance, over the first 20 images, says how many plain draws one of them is worth. The second compares
as the package does, 300 images and 3 queries.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from patchtrace import Compute, ImageSet, Recipe
from patchtrace.engines import Comparison, Job, LocalWork, get_engine
from patchtrace.engines.contract import turned
from patchtrace.nda.plan import Draws, LevelPlan, Plan

PICTURES = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "cifar2.npz"
RECIPE = Recipe.preset("cifar")
IMAGES, QUERIES, NOISES, FIRST = 200, 2, 16, 20
SIDE, PATCH = 32, 21
COMPARISON = Comparison(PATCH, 1, "orthonormal", "match", RECIPE.k)
AXIS = COMPARISON.axis(SIDE)
INSIDE = len(AXIS.interior)
EDGES = [position for position in range(SIDE) if position not in AXIS.interior]
#: The noise of a patch is that of the patch so many rows and columns further, around the interior.
MOVES = [(down, across) for down in (0, INSIDE // 2) for across in (0, INSIDE // 2)]


def interior(pictures: np.ndarray) -> np.ndarray:
    """Patches that hang over no border: (pictures, patches, values)."""
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (PATCH, PATCH), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(len(pictures), INSIDE**2, -1)


def strip(pictures: np.ndarray, position: int, across: bool) -> np.ndarray:
    """Patches at one position over the upper or lower border, or over the left or right one."""
    pictures = pictures.swapaxes(2, 3) if across else pictures
    start = position - AXIS.pad
    visible = pictures[:, :, max(0, start) : min(SIDE, start + PATCH)]
    windows = np.lib.stride_tricks.sliding_window_view(visible, PATCH, axis=3)
    return windows.transpose(0, 3, 1, 2, 4).reshape(len(pictures), INSIDE, -1)


def corners(products: np.ndarray) -> np.ndarray:
    """Sums of pixel products (pictures, channels, rows, columns) over patches at corners: (pictures, patches)."""
    pad = (AXIS.pad + 1, AXIS.pad)
    sums = np.pad(products.sum(axis=1), ((0, 0), pad, pad)).cumsum(axis=1).cumsum(axis=2)
    low = np.array(EDGES)
    high = low + PATCH
    box = sums[:, high][:, :, high] - sums[:, low][:, :, high] - sums[:, high][:, :, low] + sums[:, low][:, :, low]
    return box.reshape(len(products), -1)


def shares(logits: np.ndarray) -> np.ndarray:
    """From logits (images, partners, query patches) to what each image has of each patch."""
    weights = np.exp(logits - logits.max(axis=(0, 1)))
    total = weights.sum(axis=(0, 1))
    if weights.shape[1] > RECIPE.k:
        weights.partition(weights.shape[1] - RECIPE.k, axis=1)
    return weights[:, -RECIPE.k :].sum(axis=1) / total


class Products:
    """Inner products of all patches of a picture with all of the training images that they pair with."""

    def __init__(self, train: dict[Any, np.ndarray], images: np.ndarray, picture: np.ndarray) -> None:
        self.interior = train["interior"] @ interior(picture[None])[0].T
        self.strips = {key: train[key] @ strip(picture[None], *key)[0].T for key in train if key != "interior"}
        self.corners = corners(images * picture)


def all_shares(
    x: Products, noise: Products, moved: np.ndarray, move: tuple[int, int], sign: int, norms: Any, t: int
) -> np.ndarray:
    """What each image has of each query patch: (images, rows, columns)."""
    signal, sigma = RECIPE.noise_at(t)
    found = np.empty((IMAGES, SIDE, SIDE))

    def logits(ours: np.ndarray, other: np.ndarray, squares: np.ndarray) -> np.ndarray:
        return signal / sigma**2 * (signal * ours + sign * sigma * other) - signal**2 / (2 * sigma**2) * squares

    down, across = ((np.arange(INSIDE) + step) % INSIDE for step in move)
    places = (down[:, None] * INSIDE + across).ravel()
    kept = slice(AXIS.interior.start, AXIS.interior.stop)
    inner = shares(logits(x.interior, noise.interior[:, :, places], norms["interior"][:, :, None]))
    found[:, kept, kept] = inner.reshape(IMAGES, INSIDE, INSIDE)
    for (position, is_across), own in x.strips.items():
        other = noise.strips[position, is_across][:, :, down if is_across else across]
        part = shares(logits(own, other, norms[position, is_across][:, :, None]))
        if is_across:
            found[:, kept, position] = part
        else:
            found[:, position, kept] = part
    corner = shares(logits(x.corners, moved, norms["corners"])[:, None])
    found[np.ix_(range(IMAGES), EDGES, EDGES)] = corner.reshape(IMAGES, len(EDGES), len(EDGES))
    return found


def kinds_of_draws() -> dict[str, tuple[int, np.ndarray]]:
    """For each kind how many draws it takes, and for each of these and each patch which of the eight noises it has."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    sign = (rows // 2 + columns // 2) % 2  # noises 0 and 1 are where they are, with both signs
    edge = np.isin(np.arange(SIDE), EDGES)
    move = 2 * (2 * (rows % 2) + columns % 2)
    odd_rows = np.where(edge[:, None] & edge, 6 * (rows % 2), move)
    same = np.zeros((SIDE, SIDE), dtype=int)
    return {
        "plain": (1, same[None]),
        "a pair of a noise and its negative": (2, np.stack([same, same + 1])),
        "signs in a checkerboard": (1, (rows + columns)[None] % 2),
        "signs in blocks of 2 x 2": (1, sign[None]),
        "moved, without signs": (1, move[None]),
        "signs and moved, corners with signs only": (1, (sign + np.where(edge[:, None] & edge, 0, move))[None]),
        "patchwork: corners turned in every other row": (1, (sign + odd_rows)[None]),
        "all four places and both signs": (8, np.stack([same + number for number in range(8)])),
    }


def main() -> None:
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:IMAGES]), ImageSet.open(archive["val"][:QUERIES])
    images = train.block(0, IMAGES)
    colour = images.mean(axis=(0, 2, 3), keepdims=True)[0]
    images = images - colour
    cut: dict[Any, np.ndarray] = {"interior": interior(images)}
    cut |= {key: strip(images, *key) for key in itertools.product(EDGES, (False, True))}
    norms = {key: (part**2).sum(axis=2) for key, part in cut.items()} | {"corners": corners(images**2)}
    rng = np.random.default_rng(0)
    edge = np.isin(np.arange(SIDE), EDGES)
    parts = np.stack([~edge[:, None] & ~edge, edge[:, None] ^ edge, edge[:, None] & edge]).astype(float)
    worth: dict[str, list[np.ndarray]] = {}
    for t, query in itertools.product((400, 500), range(QUERIES)):
        x = Products(cut, images, queries.block(query, query + 1)[0] - colour)
        found = []
        for _ in range(NOISES):
            eps = rng.standard_normal((3, SIDE, SIDE)).astype(np.float32)
            noise = Products(cut, images, eps)
            rolled = {move: corners(images * np.roll(eps, move, (1, 2))) for move in MOVES[:3]}
            rolled[MOVES[3]] = corners(images * turned(eps))
            found.append([all_shares(x, noise, rolled[m], m, sign, norms, t) for m in MOVES for sign in (1, -1)])
        mean = np.mean([part.sum(axis=(1, 2)) for one in found for part in one], axis=0)
        first = np.argsort(-mean)[:FIRST]
        base = None
        for name, (draws, choice) in kinds_of_draws().items():
            values = []
            for one in found:
                stacked = np.stack(one)[:, first]
                placed = np.mean([np.take_along_axis(stacked, c[None, None], axis=0)[0] for c in choice], axis=0)
                values.append([*np.einsum("nrc,krc->kn", placed, parts), placed.sum(axis=(1, 2))])
            variance = np.array(values).var(axis=0, ddof=1).mean(axis=1)
            if base is None:
                base = variance
                worth.setdefault("variance", []).append(base / base[3])
            worth.setdefault(name, []).append(base / variance / draws)
        mass = np.mean([np.einsum("nrc,krc->k", part, parts) for one in found for part in one], axis=0)
        worth.setdefault("mass", []).append(np.append(mass / mass.sum(), 1))
    heading = "| | interior patches | over one border | corners | all |\n|---|---|---|---|---|"
    print(f"{heading}\n{line('part of the mass', worth.pop('mass'), 2)}")
    print(f"{line('variance of their sum, of that of all', worth.pop('variance'), 2)}\n\n{heading}")
    for name, values in worth.items():
        print(line(name, values, 1))


def line(name: str, values: list[np.ndarray], digits: int) -> str:
    return f"| {name} | " + " | ".join(f"{x:.{digits}f}" for x in np.mean(values, axis=0)) + " |"


def default() -> None:
    """For each level of the default recipe, what a draw is worth and takes, in pairs and as patchworks."""
    with np.load(PICTURES) as archive:
        train, queries = ImageSet.open(archive["train"][:300]), ImageSet.open(archive["val"][200:203])
    plan = Plan.of(replace(Recipe.for_size(SIDE, SIDE), draws="auto"), (SIDE, SIDE))
    compute = Compute(threads=1)
    work = LocalWork(get_engine(compute, len(train) * plan.steps[0].cost), train, compute.budget)
    print("| t | patch | variance of a plain draw | of one in a pair | of a patchwork | time | worth for its time |")
    print("|---|---|---|---|---|---|---|")
    for level in plan.levels:
        found = np.array([[of_draws(work, level, query, own) for own in (False, True)] for query in queries.pixels])
        (plain, pair, pairs_time), (_, works, works_time) = found.mean(axis=0)
        time = works_time / pairs_time
        cells = level.t, level.steps[0].part.patch, f"{plain:.3f}", f"{pair:.3f}", f"{works:.3f}", f"{time:.2f}"
        print("| " + " | ".join(map(str, cells)) + f" | {pair / works / time:.1f} |", flush=True)


def of_draws(work: LocalWork, level: LevelPlan, query: np.ndarray, own: bool) -> tuple[float, float, float]:
    """Relative variance of plain draws and of draws in pairs or patchworks, and the seconds of one, for a level."""
    draws = Draws(level.t, level.signal, level.sigma, 7, own, 0, NOISES)
    clean = query.astype(np.float32) / 127.5 - 1
    begin = process_time()
    masses = next(work.masses([Job(draws.on(clean), level.steps[0].comparison)]))
    seconds = (process_time() - begin) / NOISES
    masses = masses[:, np.argsort(-masses.mean(axis=0))[:FIRST]]
    samples = masses if own else masses.reshape(NOISES // 2, 2, FIRST).mean(axis=1)
    variances = [(some.var(axis=0, ddof=1) / masses.mean(axis=0) ** 2).mean() for some in (masses, samples)]
    return variances[0], variances[1] * (1 if own else 2), seconds


if __name__ == "__main__":
    default() if sys.argv[1:] == ["default"] else main()
