"""How sure a mean over draws of the noise is, and where the next draws help most.

Levels are independent of each other, so each has its own number of draws and its own running mean and variance. Some
draws come in pairs of a noise and its negative: what one of them overstates the other tends to understate. A pair is
one sample; nothing but means and squared differences is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import NDArray

from patchtrace.nda_details import slack

Values = NDArray[np.float64]
#: Which images: their indices, or all of them.
Places = NDArray[np.intp] | slice
ALL = slice(None)

#: How much the spread of all images counts in that of each, in samples.
PRIOR = 2.0
#: Trials that estimate how often a candidate belongs to the top: the usual number, the least, and a limit of trials
#: times candidates. Many candidates have fewer trials, because among so many hardly anything is settled.
TRIALS, LEAST_TRIALS, MOST_DRAWN = 2000, 100, 40_000_000
#: Numbers that are drawn at once: 4 MB, of which some copies are held.
AT_ONCE = 500_000


@dataclass
class Moments:
    """Running mean and variance at one level, for every training image at once.

    Images may differ in their number of draws: those that cannot reach the list any more get no further ones.

    Parameters
    ----------
    mean, squares : float64 (train,)
        Mean over draws, and the sum over samples of their squared differences to it (half for a single draw).
    inner : float64 (train,)
        A quarter of the squared difference within the first pair: an estimate of the variance while there is no second
        pair.
    samples, draws : float64 (train,)
        Pairs or single draws so far, and draws in them.
    """

    mean: Values
    squares: Values
    inner: Values
    samples: Values
    draws: Values

    @classmethod
    def of(cls, images: int) -> Moments:
        return cls(*np.zeros((5, images)))

    def add(self, draws: Values, images: Places = ALL) -> None:
        """One more sample for some images: a pair of draws, or a single one, (draws, images)."""
        sample, weight = draws.mean(axis=0), len(draws) / 2
        if len(draws) == 2:
            first = self.samples[images] == 0
            self.inner[images] = np.where(first, (draws[0] - draws[1]) ** 2 / 4, self.inner[images])
        self.samples[images] += 1
        self.draws[images] += len(draws)
        off = sample - self.mean[images]
        self.mean[images] += off * (weight / self.pairs[images])
        self.squares[images] += weight * off * (sample - self.mean[images])

    def complete(self, draw: Values, images: Places) -> None:
        """The second draw of a pair, (images,), for images that have nothing but the first: together one sample."""
        half = (draw - self.mean[images]) / 2
        self.mean[images] += half
        self.inner[images] = half**2
        self.draws[images] += 1

    def of_images(self, places: NDArray[np.intp]) -> Moments:
        """Those of some images, in this order; of those at -1 nothing is known yet."""
        kept = (self.mean, self.squares, self.inner, self.samples, self.draws)
        return Moments(*(np.where(places < 0, 0.0, values[places]) for values in kept))

    @property
    def pairs(self) -> Values:
        return self.draws / 2

    @property
    def most(self) -> int:
        """Draws of the images that have most."""
        return int(self.draws.max(initial=0))

    @property
    def _degrees(self) -> Values:
        """Degrees of freedom of each image's own variance; 0 where nothing is known of it."""
        return np.where(self.samples > 1, self.samples - 1, np.where(self.draws == 2, 1.0, 0.0))

    @property
    def known(self) -> bool:
        """Whether anything is known of the variance."""
        return bool((self._degrees > 0).any())

    def variance(self) -> Values:
        """Variance of one pair, for each image: from its own samples, and from what all images have in common.

        From few samples of one image alone the variance would often come out far too small. What they have in common is
        a variance that grows with the mean, or with its square: the larger of the two, because draws in which an image
        suddenly counts are rare, and a few samples miss them.
        """
        degrees = self._degrees
        own = np.where(self.samples > 1, self.squares / np.maximum(self.samples - 1, 1), self.inner)
        use = degrees > 0
        mass = self.mean[use].sum()
        if mass <= 0:
            return own
        relative = np.divide(own, self.mean, out=np.zeros_like(own), where=use & (self.mean > 0)).sum() / mass
        common = np.maximum(relative * self.mean**2, own[use].sum() / mass * self.mean)
        return np.asarray((PRIOR * common + degrees * own) / (PRIOR + degrees))

    def freedom(self) -> Values:
        """Degrees of freedom of that variance."""
        return PRIOR + self._degrees


class Estimate(NamedTuple):
    """A mean over draws with its standard error and the degrees of freedom of that: float64 (train,) each."""

    mean: Values
    error: Values
    freedom: Values

    def inflated(self) -> Values:
        """The error, widened where it is itself not well known, so that twice of it is a 95 % interval."""
        # what scipy.stats has as t.ppf; but that takes half a second to load
        normal = scipy.special.ndtri(0.975)
        student = np.where(np.isinf(self.freedom), normal, scipy.special.stdtrit(self.freedom, 0.975))
        return np.asarray(self.error * student / normal)


def estimate(levels: Sequence[Moments]) -> Estimate:
    """The mean over levels. Where nothing is known of a variance, the error is NaN."""
    mean = np.mean([level.mean for level in levels], axis=0)
    if not all(level.known for level in levels):
        unknown = np.full(mean.shape, np.nan)
        return Estimate(mean, unknown, unknown)
    parts = np.stack([level.variance() / level.pairs for level in levels]) / len(levels) ** 2
    variance = parts.sum(axis=0)
    freedoms = np.stack([level.freedom() for level in levels])
    spread = (parts**2 / freedoms).sum(axis=0)  # Welch and Satterthwaite
    freedom = np.divide(variance**2, spread, out=np.full(mean.shape, np.inf), where=spread > 0)
    return Estimate(mean, np.sqrt(variance), freedom)


def contenders(found: Estimate, top: int, tolerance: float, errors: float, images: Places = ALL) -> NDArray[np.intp]:
    """Images that may belong to the ``top`` images with the largest means, if all are off by so many errors."""
    mean, error = found.mean[images], found.inflated()[images]
    last = max(0, len(mean) - top)
    floor = np.partition(mean - errors * error, last)[last]
    floor -= slack(floor, mean.max(initial=0.0), tolerance)
    places = np.flatnonzero(mean + errors * error >= floor)
    return places if isinstance(images, slice) else images[places]


def chance_of_top(found: Estimate, top: int, tolerance: float = 0.0, seed: int = 0) -> Values:
    """For each image the probability that it belongs to the ``top`` images with the largest means: (train,).

    An image that ties with the last of them belongs to them too. By trial: all images that may reach the list are moved
    by their errors, independently, many times.
    """
    images = len(found.mean)
    if top >= images:
        return np.ones(images)
    if not np.isfinite(found.error).all():
        return np.full(images, np.nan)
    error = found.inflated()
    candidates = contenders(found, top, tolerance, errors=5)
    rng = np.random.default_rng(seed)
    trials = min(TRIALS, max(LEAST_TRIALS, MOST_DRAWN // len(candidates)))
    together = max(1, AT_ONCE // len(candidates))
    times = np.zeros(len(candidates), dtype=np.int64)
    for start in range(0, trials, together):
        rows = min(together, trials - start)
        moved = found.mean[candidates] + error[candidates] * rng.standard_normal((rows, len(candidates)))
        least = np.partition(moved, len(candidates) - top, axis=1)[:, len(candidates) - top, None]
        times += (moved >= least - slack(least, moved.max(axis=1, keepdims=True), tolerance)).sum(axis=0)
    chance = np.zeros(images)
    chance[candidates] = times / trials
    return chance


def next_pairs(
    levels: Sequence[Moments], contested: NDArray[np.intp], costs: Sequence[float], work: float, most: int
) -> list[int]:
    """Pairs of draws to add at each level.

    One by one they go where the relative variance of the contested images falls most for its cost. If that level has
    reached its limit, draws elsewhere would not help.

    Parameters
    ----------
    levels : sequence of Moments
        What is known so far.
    contested : int (images,)
        Images that draws are for.
    costs : sequence of float
        Work of one draw at each level.
    work : float
        Work to add.
    most : int
        Draw limit of each level.
    """
    counts = np.array([level.pairs[contested].mean() for level in levels])
    mean = np.mean([level.mean[contested] for level in levels], axis=0)
    weights = np.divide(1, mean**2, out=np.zeros_like(mean), where=mean > 0)
    variances = np.array([(level.variance()[contested] * weights).sum() for level in levels])
    each = 2 * np.asarray(costs, dtype=float)
    added = np.zeros(len(levels), dtype=int)
    while work > 0:
        now = counts + added
        best = int((variances / (now * (now + 1)) / each).argmax())
        if 2 * (now[best] + 1) > most:
            break
        added[best] += 1
        work -= each[best]
    return [int(pairs) for pairs in added]
