"""The shift, scale, small turn and mirror under which points of two pictures agree, by RANSAC."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.copies.points import Points

Complex = NDArray[np.complex128]

#: A point pairs with the one most like it if the next best elsewhere is further off by this factor.
RATIO = 0.9
#: "Elsewhere" is so many pixels away.
ELSEWHERE = 8.0
#: Scales and turns (in degrees) that are looked for; descriptions bear no more.
LEAST_SCALE, LARGEST_SCALE, LARGEST_TURN = 0.2, 5.0, 20.0
#: Two points agree with a transform if they meet within so many pixels of the coarser picture, their sizes to a factor.
MEET, SIZES = 4.0, 2.0
#: Transforms are tried from all pairs of the most certain so many; points of a pair are so many pixels apart.
TRIED, APART = 120, 12.0
#: Points in the same square of so many pixels count once.
SQUARE = 6
#: Fewer points agree with anything.
LEAST = 3
#: Transforms that are tried at once, which bounds the memory.
AT_ONCE = 1000


class Similarity(NamedTuple):
    """Where a pixel of the query lies in an image: ``factor * z + shift`` for z = column + i row.

    ``mirrored``: z is of the mirrored query. ``seen`` are places of the query with points that agree, one of each
    square.
    """

    factor: complex = 1 + 0j
    shift: complex = 0j
    mirrored: bool = False
    seen: Complex = np.zeros(0, np.complex128)

    @property
    def scale(self) -> float:
        """How many pixels of the image a pixel of the query is long."""
        return abs(self.factor)

    @property
    def turn(self) -> float:
        """In degrees."""
        return float(np.degrees(np.angle(self.factor)))

    def at(self, place: complex) -> complex:
        """Where a place of the query lies in the image."""
        return self.factor * place + self.shift

    def reduced(self, factor: int) -> Similarity:
        """The same for pictures with one pixel for each square of so many; its middle is the middle of the square.

        >>> Similarity(2 + 0j, 3 + 0j).reduced(2).shift
        (1.75+0.25j)
        """
        middle = (factor - 1) / 2 * (1 + 1j)
        return self._replace(shift=(self.at(middle) - middle) / factor, seen=(self.seen - middle) / factor)


def candidates(query: Points, image: Points, mirrored: bool, stretch: float = 1.0) -> list[Similarity]:
    """Transforms to look into: the whole pictures on each other, and that with which most points agree.

    Parameters
    ----------
    query, image : Points
        Those of the mirrored query, if it is so called.
    mirrored : bool
        Whether they are.
    stretch : float, default 1
        How much longer a side of the image is.
    """
    left, right = _pairs(query, image)
    here, there = (_complex(points.places[own]) for points, own in ((query, left), (image, right)))
    sizes = np.log2(image.sizes[right] / query.sizes[left])
    middle = (stretch - 1) / 2 * (1 + 1j)
    good = _meet(here, there, sizes, np.array([complex(stretch)]), np.array([middle]))[0]
    found = [Similarity(complex(stretch), middle, mirrored, _apart(here[good]))]
    best = _best(here, there, sizes)
    if best.sum() >= LEAST:
        factor, shift = _fitted(here, there, best)
        found.append(Similarity(factor, shift, mirrored, _apart(here[best])))
    return found


def _best(here: Complex, there: Complex, sizes: NDArray[np.float32]) -> NDArray[np.bool_]:
    """The points that agree with the transform with which most agree, of those that two points give."""
    first, second = np.triu_indices(min(len(here), TRIED), 1)
    far = np.abs(here[first] - here[second]) > APART
    first, second = first[far], second[far]
    factor = (there[first] - there[second]) / (here[first] - here[second])
    scale = np.maximum(np.abs(factor), 1e-9)
    possible = (scale >= LEAST_SCALE) & (scale <= LARGEST_SCALE)
    possible &= np.abs(np.angle(factor)) <= np.radians(LARGEST_TURN)
    for end in (first, second):
        possible &= np.abs(sizes[end] - np.log2(scale)) < np.log2(SIZES)
    first, factor = first[possible], factor[possible]
    shift = there[first] - factor * here[first]
    best: NDArray[np.bool_] = np.zeros(len(here), np.bool_)
    for start in range(0, len(factor), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        good = _meet(here, there, sizes, factor[some], shift[some])
        counts = good.sum(axis=1)
        if counts.max() > best.sum():
            best = good[counts.argmax()]
    return best


def _meet(
    here: Complex, there: Complex, sizes: NDArray[np.float32], factor: Complex, shift: Complex
) -> NDArray[np.bool_]:
    """Which points agree with which transforms: (transforms, points)."""
    scale = np.maximum(np.abs(factor), 1e-9)[:, None]
    off = np.abs(factor[:, None] * here + shift[:, None] - there)
    return np.asarray((off < MEET * np.maximum(1, scale)) & (np.abs(sizes - np.log2(scale)) < np.log2(SIZES)))


def _apart(places: Complex) -> Complex:
    """The first of the places in each square: neighbours say the same."""
    _, first = np.unique(places.real // SQUARE + 1j * (places.imag // SQUARE), return_index=True)
    return places[np.sort(first)]


def _fitted(here: Complex, there: Complex, good: NDArray[np.bool_]) -> tuple[complex, complex]:
    """Least squares over the points that agree, and again over those that still do."""
    for _ in range(3):
        middles = here[good].mean(), there[good].mean()
        own = here[good] - middles[0]
        factor = complex((np.conj(own) * (there[good] - middles[1])).sum() / (np.abs(own) ** 2).sum())
        shift = complex(middles[1] - factor * middles[0])
        closer = np.abs(factor * here + shift - there) < MEET / 2 * max(1, abs(factor))
        if closer.sum() < LEAST:
            break
        good = closer
    return factor, shift


def _pairs(query: Points, image: Points) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Points that are more like each other than like any other, the most certain first."""
    if len(query.places) < LEAST or len(image.places) < LEAST:
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    distance = np.sqrt(np.maximum(0, 2 - 2 * query.descriptions @ image.descriptions.T))
    nearest = distance.argmin(axis=1)
    places = _complex(image.places)
    elsewhere = np.abs(places[nearest][:, None] - places) > ELSEWHERE
    next_best = np.where(elsewhere, distance, 2.0).min(axis=1)
    ratio = distance[np.arange(len(nearest)), nearest] / np.maximum(next_best, 1e-9)
    order = np.argsort(ratio, kind="stable")
    order = order[ratio[order] < RATIO]
    return order, nearest[order]


def _complex(places: NDArray[np.float32]) -> Complex:
    return places[:, 1].astype(np.float64) + 1j * places[:, 0]
