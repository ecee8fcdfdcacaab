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

Values = NDArray[np.float64]

#: How much the spread of all images counts in that of each, in samples.
PRIOR = 2.0
#: Trials that estimate how often a candidate belongs to the top: the usual number, the least, and a limit of trials
#: times candidates. Many candidates have fewer trials, because among so many hardly anything is settled.
TRIALS, LEAST_TRIALS, MOST_DRAWN = 2000, 100, 40_000_000
#: Numbers that are drawn at once: 4 MB, of which some copies are held.
AT_ONCE = 500_000
#: How much all work grows in a round of draws.
GROWTH = 1.3


@dataclass
class Moments:
    """Running mean and variance at one level, for every training image at once.

    Parameters
    ----------
    mean, squares : float64 (train,)
        Mean over draws, and the sum over samples of their squared differences to it (half for a single draw).
    inner : float64 (train,)
        A quarter of the squared difference within the first pair: an estimate of the variance while there is no second
        pair.
    samples, draws : int
        Pairs or single draws so far, and draws in them.
    """

    mean: Values
    squares: Values
    inner: Values
    samples: int = 0
    draws: int = 0

    @classmethod
    def of(cls, images: int) -> Moments:
        return cls(np.zeros(images), np.zeros(images), np.zeros(images))

    def add(self, draws: Values) -> None:
        """One more sample: a pair of draws, or a single one, (draws, train)."""
        sample, weight = draws.mean(axis=0), len(draws) / 2
        if self.samples == 0 and len(draws) == 2:
            self.inner = (draws[0] - draws[1]) ** 2 / 4
        self.samples += 1
        self.draws += len(draws)
        off = sample - self.mean
        self.mean = self.mean + off * (weight / self.pairs)
        self.squares = self.squares + weight * off * (sample - self.mean)

    @property
    def pairs(self) -> float:
        return self.draws / 2

    @property
    def known(self) -> bool:
        """Whether anything is known of the variance."""
        return self.samples > 1 or self.draws == 2

    def variance(self) -> Values:
        """Variance of one pair, for each image: from its own samples, and from what all images have in common.

        From few samples of one image alone the variance would often come out far too small. What they have in common is
        a variance that grows with the mean, or with its square: the larger of the two, because draws in which an image
        suddenly counts are rare, and a few samples miss them.
        """
        degrees = max(self.samples - 1, 1)
        own = self.squares / degrees if self.samples > 1 else self.inner
        mass = self.mean.sum()
        if mass <= 0:
            return own
        relative = np.divide(own, self.mean, out=np.zeros_like(own), where=self.mean > 0).sum() / mass
        common = np.maximum(relative * self.mean**2, own.sum() / mass * self.mean)
        return np.asarray((PRIOR * common + degrees * own) / (PRIOR + degrees))

    def freedom(self) -> float:
        """Degrees of freedom of that variance."""
        return PRIOR + max(self.samples - 1, 1)


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
    freedoms = np.array([level.freedom() for level in levels])[:, None]
    spread = (parts**2 / freedoms).sum(axis=0)  # Welch and Satterthwaite
    freedom = np.divide(variance**2, spread, out=np.full(mean.shape, np.inf), where=spread > 0)
    return Estimate(mean, np.sqrt(variance), freedom)


def chance_of_top(found: Estimate, top: int, seed: int = 0) -> Values:
    """For each image the probability that it belongs to the ``top`` images with the largest means: (train,).

    By trial: all images that may reach the list are moved by their errors, independently, many times.
    """
    images = len(found.mean)
    if top >= images:
        return np.ones(images)
    if not np.isfinite(found.error).all():
        return np.full(images, np.nan)
    error = found.inflated()
    # an image that is below the last of the list even if both are off by five errors is not a candidate
    floor = np.partition(found.mean - 5 * error, images - top)[images - top]
    candidates = np.flatnonzero(found.mean + 5 * error >= floor)
    rng = np.random.default_rng(seed)
    trials = min(TRIALS, max(LEAST_TRIALS, MOST_DRAWN // len(candidates)))
    together = max(1, AT_ONCE // len(candidates))
    times = np.zeros(len(candidates), dtype=np.int64)
    for first in range(0, trials, together):
        rows = min(together, trials - first)
        moved = found.mean[candidates] + error[candidates] * rng.standard_normal((rows, len(candidates)))
        least = np.partition(moved, len(candidates) - top, axis=1)[:, len(candidates) - top, None]
        times += (moved >= least).sum(axis=0)
    chance = np.zeros(images)
    chance[candidates] = times / trials
    return chance


def next_pairs(levels: Sequence[Moments], costs: Sequence[float], most: int, top: int) -> list[int]:
    """Pairs of draws to add at each level, so that all work so far grows by about a third.

    One by one they go where the variance of the images around the end of the list falls most for its cost. If that
    level has reached its limit, draws elsewhere would not help.

    Parameters
    ----------
    levels : sequence of Moments
        What is known so far.
    costs : sequence of float
        Work of one draw at each level.
    most : int
        Draw limit of each level.
    top : int
        Length of the list that has to settle.
    """
    counts = np.array([level.pairs for level in levels])
    mean = np.mean([level.mean for level in levels], axis=0)
    contested = np.argsort(-mean, kind="stable")[max(0, top // 2 - 1) : 2 * top]
    variances = np.array([level.variance()[contested].sum() for level in levels])
    work = 2 * np.asarray(costs, dtype=float)
    left = (GROWTH - 1) * (counts * work).sum()
    added = np.zeros(len(levels), dtype=int)
    while left > 0:
        now = counts + added
        best = int((variances / (now * (now + 1)) / work).argmax())
        if 2 * (now[best] + 1) > most:
            break
        added[best] += 1
        left -= work[best]
    return added.tolist()
