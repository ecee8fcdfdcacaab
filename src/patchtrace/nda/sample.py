"""A few images that stand for all others in the normaliser: a random sample, of images with large masses above all.

Each image of the sample counts as one over its chance of being in it, so the normaliser is right in the mean. Each draw
of the noise has a sample of its own: what one overstates another understates, and the errors of shares, which come
from the differences between draws, include it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Rest
from patchtrace.images import ImageSet

#: Every image has at least the chance of one with this part of the mean mass: what was seen so far may mislead.
LEAST_MASS = 0.3


def chances_of(masses: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """The chance of each image to be in a sample of this size, by the masses seen so far: (images,), at most 1.

    >>> chances_of(np.array([100.0, 1.0, 1.0, 1.0, 1.0]), 2).round(3)
    array([1.  , 0.25, 0.25, 0.25, 0.25])
    """
    if count >= len(masses):
        return np.ones(len(masses))
    sizes = masses + LEAST_MASS * masses.mean() if masses.sum() > 0 else np.ones(len(masses))
    certain = np.zeros(len(masses), dtype=bool)
    while True:
        chances = np.where(certain, 1.0, sizes * (count - certain.sum()) / sizes[~certain].sum())
        above = chances > 1
        if not above.any():
            return chances
        certain |= above


def drawn(chances: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.intp]:
    """A sample in which each image is with its chance, in the order of the images: their places."""
    # one random start and equal steps along the sum of chances: the size of the sample hardly varies
    ends = np.cumsum(chances) + rng.random()
    steps = np.floor(ends)
    return np.flatnonzero(np.diff(steps, prepend=np.floor(ends[0] - chances[0])) > 0)


def rest_of(train: ImageSet, places: NDArray[np.intp], chances: NDArray[np.float64], rng: np.random.Generator) -> Rest:
    """A sample of the images at these places, which have these chances, with what each of them counts."""
    taken = rng.permutation(drawn(chances, rng))  # groups of neighbours then are samples themselves
    return Rest(train.subset(places[taken]), 1 / chances[taken])
