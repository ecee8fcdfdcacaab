"""A few images that stand for all others in the normaliser: a random sample, of images with large masses above all.

Each image of the sample counts as one over its chance of being in it, so the normaliser is right in the mean. Samples
change from draw to draw: what one overstates another understates, and the errors of shares, which come from the
differences between draws, include it. What a sample shows of its images decides which are likely to be in the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines import Rest
from patchtrace.images import ImageSet

#: Every image has at least the chance of one with this part of the mean mass: what was seen so far may mislead.
LEAST_MASS = 0.3


#: How much what an image had at one level says of another.
OTHER_LEVELS = 0.5


class Masses:
    """What is known of the masses of all images: by a coarse pass, and by the samples in which they were.

    Parameters
    ----------
    coarse : float64 (images,)
        Masses by the coarse pass, which count as much as one draw.
    sums, counts : float32 (levels, images)
        Of the samples of each level: the sum of an image's masses, and how many these are.
    """

    def __init__(self, coarse: NDArray[np.float64], sums: NDArray[np.float32], counts: NDArray[np.float32]) -> None:
        self.coarse, self.sums, self.counts = coarse, sums, counts

    @classmethod
    def of(cls, coarse: NDArray[np.float64], levels: int) -> Masses:
        return cls(coarse, *np.zeros((2, levels, len(coarse)), np.float32))

    def add(self, level: int, places: NDArray[np.intp], masses: NDArray[np.float64]) -> None:
        """What the images at these places had in a sample, each of them once."""
        self.sums[level, places] += masses
        self.counts[level, places] += 1

    def expected(self, level: int) -> NDArray[np.float64]:
        """The mass of each image at a level: (images,)."""
        weight = np.where(np.arange(len(self.sums)) == level, 1.0, OTHER_LEVELS)
        return np.asarray((self.coarse + weight @ self.sums) / (1 + weight @ self.counts))

    def compared_with(self, other: NDArray[np.float64]) -> NDArray[np.float64]:
        """What samples showed of each image, as a part of what another would have had there, (levels,): (images,)."""
        shown, usual = self.coarse + self.sums.sum(axis=0), other.mean() + other @ self.counts
        return np.asarray(np.divide(shown, usual, out=np.zeros(len(shown)), where=usual > 0))


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


def rest_of(
    train: ImageSet, places: NDArray[np.intp], chances: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.intp], Rest]:
    """A sample of the images at these places, which have these chances: its places, and what each of them counts."""
    taken = rng.permutation(drawn(chances, rng))  # groups of neighbours then are samples themselves
    return places[taken], Rest(train.subset(places[taken]), 1 / chances[taken])
