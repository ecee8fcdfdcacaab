"""Points of a picture that can be found again in a changed one, each with a description of what lies around it.

Extrema of differences of Gaussians (Lowe 2004), and around each the strength of edges by direction in 4 x 4 cells. The
descriptions are upright, which tells more apart than turned ones and bears turns of some degrees; they do not see the
sign of an edge nor its colour, so that they bear other colours; of a mirrored picture they are known without another
look.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Floats = NDArray[np.float32]

#: At most so many points, the strongest first.
MOST = 500
#: The least contrast of a point, for values from 0 to 1.
CONTRAST = 0.0012
#: The largest ratio of curvatures: along an edge a point is not at a certain place.
EDGE = 10.0
#: Gaussians in an octave, and the width of the first.
SCALES, FIRST = 3, 1.6
#: Cells along a side of a description, their width in widths of the point, and directions.
CELLS, CELL, DIRECTIONS = 4, 3.0, 8
#: A direction that is stronger counts as this strong, so that one edge does not decide alone.
STRONGEST = 0.25
#: The smallest side of an octave.
LEAST_SIDE = 16


class Points(NamedTuple):
    """Places (points, 2) as row and column, sizes (points,), and descriptions (points, 128) of length 1."""

    places: Floats
    sizes: Floats
    descriptions: Floats

    def mirrored(self, width: int) -> Points:
        """The points of the mirrored picture.

        >>> points = points_of(np.random.default_rng(0).random((32, 32, 3), np.float32))
        >>> bool((points.mirrored(32).mirrored(32).descriptions == points.descriptions).all())
        True
        """
        places = self.places.copy()
        places[:, 1] = width - 1 - places[:, 1]
        cells = self.descriptions.reshape(-1, CELLS, CELLS, DIRECTIONS)[:, :, ::-1]
        turned = cells[..., -np.arange(DIRECTIONS) % DIRECTIONS]  # a direction becomes 180 degrees minus it
        return Points(places, self.sizes, np.ascontiguousarray(turned).reshape(self.descriptions.shape))


def points_of(pixels: Floats) -> Points:
    """The strongest points of a picture (height, width, 3) with values from 0 to 1."""
    found: list[Points] = []
    strengths: list[Floats] = []
    colours, factor = _blurred(pixels, FIRST), 1.0
    while min(colours.shape[:2]) >= LEAST_SIDE:
        widths = FIRST * 2 ** (np.arange(SCALES + 3) / SCALES)
        light = colours.mean(axis=2)
        gaussians = [light]
        for before, width in pairwise(widths):
            gaussians.append(_blurred(gaussians[-1], float(np.sqrt(width**2 - before**2))))
        differences = np.diff(np.stack(gaussians), axis=0)
        scale, row, column = _extrema(differences)
        edges = _edges(colours)
        for number in range(1, SCALES + 1):
            own = scale == number
            place = np.stack([row[own], column[own]], axis=1)
            sizes = np.full(len(place), factor * widths[number], np.float32)
            described = _described(edges, place, CELL * float(widths[number]))
            found.append(Points((factor * place).astype(np.float32), sizes, described))
            strengths.append(np.abs(differences[number, row[own], column[own]]))
        # the Gaussian of twice the first width is the first of the next octave
        colours, factor = _blurred(colours, float(np.sqrt(3) * FIRST))[::2, ::2], 2 * factor
    if not found:
        return Points(*(np.zeros(shape, np.float32) for shape in ((0, 2), 0, (0, CELLS**2 * DIRECTIONS))))
    order = np.argsort(-np.concatenate(strengths), kind="stable")[:MOST]
    return Points(*(np.concatenate(parts)[order] for parts in zip(*found, strict=True)))


def _blurred(values: Floats, width: float) -> Floats:
    """Along the first two axes."""
    return np.asarray(ndimage.gaussian_filter(values, width, truncate=3, axes=(0, 1)))


def _extrema(differences: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Scale, row and column of the extrema that are not on an edge."""
    largest, least = ndimage.maximum_filter(differences, 3), ndimage.minimum_filter(differences, 3)
    high = (differences == largest) & (differences > CONTRAST)
    low = (differences == least) & (differences < -CONTRAST)
    inside = np.zeros(differences.shape, np.bool_)
    inside[1:-1, 2:-2, 2:-2] = True
    k, y, x = np.nonzero((high | low) & inside)
    here = differences[k, y, x]
    dyy = differences[k, y + 1, x] + differences[k, y - 1, x] - 2 * here
    dxx = differences[k, y, x + 1] + differences[k, y, x - 1] - 2 * here
    down, up = (differences[k, y + by, x + 1] - differences[k, y + by, x - 1] for by in (1, -1))
    determinant = dxx * dyy - ((down - up) / 4) ** 2
    sharp = (determinant > 0) & ((dxx + dyy) ** 2 * EDGE < (EDGE + 1) ** 2 * determinant)
    return k[sharp], y[sharp], x[sharp]


def _edges(colours: Floats) -> Floats:
    """Strength of the edge at each pixel, of the colour where it is strongest, by its direction: (8, height, width)."""
    down, across = np.gradient(colours, axis=(0, 1))
    best = (down**2 + across**2).argmax(axis=2)[..., None]
    down, across = (np.take_along_axis(part, best, axis=2)[..., 0] for part in (down, across))
    strength, direction = np.hypot(down, across), np.arctan2(down, across) % np.pi * (DIRECTIONS / np.pi)
    lower = np.floor(direction)
    above = (direction - lower).astype(np.float32)
    rows, columns = np.indices(strength.shape)
    found = np.zeros((DIRECTIONS, *strength.shape), np.float32)
    first = lower.astype(np.intp) % DIRECTIONS
    found[first, rows, columns] = strength * (1 - above)
    found[(first + 1) % DIRECTIONS, rows, columns] += strength * above
    return found


def _described(edges: Floats, places: NDArray[np.intp], cell: float) -> Floats:
    """Descriptions of the points at these places; what lies outside of the picture is like its border."""
    if not len(places):
        return np.zeros((0, CELLS**2 * DIRECTIONS), np.float32)
    pooled = ndimage.gaussian_filter(edges, cell / 2, truncate=2.5, axes=(1, 2))
    offsets = np.rint((np.arange(CELLS) - (CELLS - 1) / 2) * cell).astype(np.intp)
    rows = np.clip(places[:, :1] + offsets, 0, edges.shape[1] - 1)
    columns = np.clip(places[:, 1:] + offsets, 0, edges.shape[2] - 1)
    values = pooled[:, rows[:, :, None], columns[:, None, :]]  # (directions, points, cells, cells)
    found = np.moveaxis(values, 0, -1).reshape(len(places), -1)
    for limit in (STRONGEST, 1.0):
        found = np.minimum(found / (np.linalg.norm(found, axis=1, keepdims=True) + 1e-9), limit)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True).clip(1e-9), np.float32)
