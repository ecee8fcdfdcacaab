"""One image beside the query: the patches that resemble each other, where they are, and how strongly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Compute
from patchtrace.engines import Comparison, NoisyQuery
from patchtrace.engines.reference import noisy_patches, patches
from patchtrace.nda_details import Part
from patchtrace.short import short_repr

Floats = NDArray[np.float64]

#: Pairs of patches whose weights a thread holds at once: more are no faster, and 64 x 64 latents have 16 million.
PAIRS_AT_ONCE = 1 << 21
#: Arrays of them, of 8 bytes, that there are at the same time, and such arrays of an image's patches.
ARRAYS, PATCHES = 7, 4


class Step(NamedTuple):
    """One scale at one noise level.

    ``weight`` is what one query patch counts in a share: the share of an image is the sum, over steps and query
    patches, of ``weight`` times the part of the patch that the image accounts for.
    """

    part: Part
    comparison: Comparison
    weight: float
    rows: int
    columns: int
    patchwork: bool


class Match(NamedTuple):
    """Two patches that resemble each other.

    Places are (row, column) of the upper left pixel, negative where a patch hangs over the border. ``weight`` is what
    the pair adds to the image's share. ``view`` names the view of the image that matched; without one it is the image
    as it is. Whatever the view, ``train`` is the place in the image itself, and ``train_size`` the side that the patch
    has there: of an enlarged view both may be fractions of a pixel.
    """

    query: tuple[int, int]
    train: tuple[float, float]
    size: int
    t: int
    pool: int
    weight: float
    view: str
    train_size: float


class Partners(NamedTuple):
    """For each query patch the patch of an image that resembles it most: (rows, columns) each.

    ``place`` is row times the image's columns plus column, ``part`` the part of the query patch that this one pair
    accounts for, ``crop`` the number of the picture of the image that has the patch, in the order of
    ``Comparison.crops``.
    """

    place: NDArray[np.intp]
    part: Floats
    crop: NDArray[np.intp]

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, eq=False)
class Pair:
    """The query and one training image.

    Parameters
    ----------
    index : int
        Index of the training image.
    grids : one float64 (rows, columns) for each step
        The part of each query patch that the image accounts for, from 0 to 1.
    partners : one Partners for each step
        The patch of the image that resembles each query patch most.
    heat : one float64 (height, width) for each step
        Which pixels of the training image do the explaining. Sums to the step's part of the share.
    share : float
        The sum over steps of ``weight * grid.sum()``.
    matches : list of Match
        The strongest pairs of patches, strongest first.
    """

    index: int
    grids: list[Floats]
    partners: list[Partners]
    heat: list[Floats]
    share: float
    matches: list[Match]

    __repr__ = short_repr


#: One step of a pair: grid, partners, heat and matches.
StepPair = tuple[Floats, Partners, Floats, list[Match]]


def _strongest(matches: Iterable[Match], count: int) -> list[Match]:
    return sorted(matches, key=lambda match: -match.weight)[:count]


def threads_within(compute: Compute, comparison: Comparison, shape: tuple[int, int, int]) -> int:
    """How many images of this shape are compared at once: one for each thread, if there is memory for their patches."""
    channels, height, width = shape
    count = comparison.patches(height, width)
    each = 8 * (ARRAYS * min(PAIRS_AT_ONCE, count**2) + PATCHES * count * channels * comparison.taps**2)
    threads = compute.threads or os.cpu_count() or 1
    return max(1, min(threads, (compute.budget.scratch + compute.budget.block) // each))


def pairs_of_step(
    step: Step, query: NoisyQuery, normaliser: Floats, matches: int, size: tuple[int, int]
) -> Callable[[NDArray[np.float32]], StepPair]:
    """What compares an image (channels, height, width) with the query, of this height and width, at one step."""
    left = [noisy_patches(version, step.comparison) for version in query]
    groups = cache(partial(_groups, step.comparison, size))
    return partial(_step_pair, step, query, left, normaliser, groups, matches)


def whole_pair(index: int, steps: Sequence[Step], parts: Iterable[StepPair], matches: int) -> Pair:
    """A pair from its steps."""
    grids, partners, heat, found = map(list, zip(*parts, strict=True))
    share = sum(step.weight * grid.sum() for step, grid in zip(steps, grids, strict=True))
    return Pair(index, grids, partners, heat, float(share), _strongest(chain.from_iterable(found), matches))


def _step_pair(
    step: Step,
    query: NoisyQuery,
    left: list[Floats],
    normaliser: Floats,
    groups_with: Callable[[tuple[int, int]], list[_Group]],
    matches: int,
    image: NDArray[np.float32],
) -> StepPair:
    """One step of one pair."""
    comparison, shape = step.comparison, (step.rows, step.columns)
    size = image.shape[1], image.shape[2]
    rows, columns = (axis.positions for axis in comparison.axes(*size))
    groups, count = groups_with(size), step.rows * step.columns
    grid, part, place = np.zeros(count), np.full(count, -1.0), np.zeros(count, np.intp)
    from_crop, heat = np.zeros(count, np.intp), np.zeros(size)
    found: list[Match] = []
    for number, crop in enumerate(comparison.crops(*size)):
        right = patches(crop.of(image[None])[0], comparison)
        train_size = comparison.extent * crop.scale(size)[0]
        of_train = np.zeros(rows * columns)
        for group in groups:
            weights = _weights(query, left, right, normaliser, group, comparison.k)
            own, theirs, _ = group
            grid[own] += weights.sum(axis=1)
            of_train[theirs] += weights.sum(axis=0) if group.all else weights[:, 0]
            best = weights.argmax(axis=1) if group.all else np.arange(len(weights))
            largest = weights.max(axis=1)
            better = largest > part[own]
            part[own[better]], place[own[better]] = largest[better], theirs[best[better]]
            from_crop[own[better]] = number
            flat = np.argpartition(-weights, min(matches, weights.size) - 1, axis=None)[:matches]
            for q, u in zip(*np.unravel_index(flat, weights.shape), strict=True):
                in_crop = _place(theirs[u if group.all else q], columns, comparison)
                places = _place(own[q], step.columns, comparison), crop.in_picture(*in_crop, comparison.extent, size)
                weight = float(step.weight * weights[q, u])
                scale = comparison.extent, step.part.t, step.part.pool
                found.append(Match(*places, *scale, weight, crop.view.name, train_size))
            found = _strongest(found, matches)
        heat += step.weight * crop.onto_picture(spread(of_train.reshape(rows, columns), comparison, size))
    partners = Partners(place.reshape(shape), part.reshape(shape), from_crop.reshape(shape))
    return grid.reshape(shape), partners, heat, found


def _weights(query: NoisyQuery, left: list[Floats], right: Floats, normaliser: Floats, group: _Group, k: int) -> Floats:
    """The part of its query patch that each pair of a group has, in the mean over versions: (query, train or 1)."""
    total: Floats = np.zeros(1)
    own = right[group.train]
    for number, (_, signal, variance, _) in enumerate(query):
        x = left[number][group.query]
        if group.all:
            squares = (x**2).sum(axis=1)[:, None] + signal**2 * (own**2).sum(axis=1)
            distance = squares - 2 * signal * (x @ own.T)
        else:
            distance = ((x - signal * own) ** 2).sum(axis=1)[:, None]
        weights = np.exp(-distance / (2 * variance) - normaliser[number, group.query, None])
        left_out = weights.shape[1] - k
        if left_out > 0:
            np.put_along_axis(weights, np.argpartition(weights, left_out, axis=1)[:, :left_out], 0, axis=1)
        total = total + weights
    return total / len(query)


def _place(patch: np.intp, columns: int, comparison: Comparison) -> tuple[int, int]:
    """The upper left pixel of a patch of a picture with so many columns of patches."""
    pad = 0 if comparison.border == "valid" else (comparison.patch - 1) // 2
    return int(patch) // columns - pad, int(patch) % columns - pad


class _Group(NamedTuple):
    """Patches, by their numbers in the picture, that pair: all with all, or each with the one at its own place."""

    query: NDArray[np.intp]
    train: NDArray[np.intp]
    all: bool


def _groups(comparison: Comparison, size: tuple[int, int], other: tuple[int, int]) -> list[_Group]:
    """How the patches of a query of one height and width pair with those of an image; of another size, all with all."""
    if other != size:
        own, theirs = (np.arange(comparison.patches(*each)) for each in (size, other))
        return [_Group(part, theirs, True) for part in np.array_split(own, -(-len(own) * len(theirs) // PAIRS_AT_ONCE))]
    axes = [comparison.axis(side) for side in size]
    runs = [[axis.interior, *([i] for i in range(axis.positions) if i not in axis.interior)] for axis in axes]
    found = [np.add.outer(np.array(down) * axes[1].positions, across).ravel() for down, across in product(*runs)]
    single = np.array([group[0] for group in found if len(group) == 1], dtype=np.intp)
    parts = ((group, -(-(len(group) ** 2) // PAIRS_AT_ONCE)) for group in found if len(group) > 1)
    several = [_Group(part, group, True) for group, count in parts for part in np.array_split(group, count)]
    return [*several, _Group(single, single, False)] if len(single) else several


def spread(values: Floats, comparison: Comparison, size: tuple[int, int]) -> Floats:
    """Values of patches (..., rows, columns), spread evenly on the pixels of each patch: (..., height, width)."""
    down, across = (_pixels_of(comparison, side) for side in size)
    return np.asarray(down @ values @ across.T)


def _pixels_of(comparison: Comparison, side: int) -> Floats:
    """For each pixel along a side its part in each patch position: (pixels, positions), columns sum to 1."""
    axis = comparison.axis(side)
    first = np.arange(axis.positions) - axis.pad
    pixel = np.arange(side)[:, None]
    inside = ((pixel >= first) & (pixel < first + comparison.extent)).astype(np.float64)
    return np.asarray(inside / inside.sum(axis=0))
