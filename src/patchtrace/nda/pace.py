"""How long work takes, and how much of it fits into a time limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from patchtrace.progress import Watch

#: Makes a callback out of the work of one image: it is called with a number of images.
Report = Callable[[int], Callable[[int], None]]


class OutOfTime(Exception):
    """Raised into the work when the time limit of a query is reached."""


class Clock:
    """The time limit of one query.

    Parameters
    ----------
    seconds : float, optional
        The limit; by default there is none.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.limit = math.inf if seconds is None else seconds
        self._begin = time.monotonic()

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    @property
    def left(self) -> float:
        return self.limit - self.elapsed

    def check(self) -> None:
        """Raise :class:`OutOfTime` if the limit is reached."""
        if self.left <= 0:
            raise OutOfTime


class Pace:
    """Seconds for a unit of work at each level, from the work done so far.

    Parameters
    ----------
    costs : sequence of float
        Units of work of one draw for one image, at each level.
    """

    def __init__(self, costs: Sequence[float]) -> None:
        self.costs = list(costs)
        self._work, self._seconds = [0.0] * len(self.costs), [0.0] * len(self.costs)

    def add(self, level: int, images: int, seconds: float) -> None:
        """So many images, each once for each draw, took so long."""
        self._work[level] += images * self.costs[level]
        self._seconds[level] += seconds

    def image(self) -> float:
        """Seconds for one draw of one image at all levels; a level that was not measured goes by the others."""
        mean = sum(self._seconds) / max(1.0, sum(self._work))
        return sum(
            cost * (seconds / work if work else mean)
            for cost, seconds, work in zip(self.costs, self._seconds, self._work, strict=True)
        )

    def unit(self) -> float:
        """Seconds for a unit of work; next to none where nothing was measured yet, as in a run that goes on."""
        return max(self.image(), 1e-300) / sum(self.costs)


class Timed:
    """Reports how far a run is, and ends it at its time limit: a :data:`Report`.

    How much work is needed is known only in the end; but the time limit is known, and how far errors have to fall.

    Parameters
    ----------
    watch : Watch
    clock : Clock
    settled : callable
        How far the run is from being settled, from 0 to 1; None while there is no answer to end with.
    """

    def __init__(self, watch: Watch, clock: Clock, settled: Callable[[], float | None]) -> None:
        self._watch, self._clock, self._settled = watch, clock, settled
        self._shown = 0.0

    def __call__(self, cost: int) -> Callable[[int], None]:
        return lambda images: self._report()

    def _report(self) -> None:
        settled = self._settled()
        if settled is not None:
            self._clock.check()
        self._shown = min(0.99, max(self._shown, settled or 0.0, self._clock.elapsed / self._clock.limit))
        self._watch(round(1000 * self._shown), 1000)


def in_words(seconds: float) -> str:
    """A time in words.

    >>> in_words(7.6), in_words(200), in_words(20000)
    ('8 s', '3 min', '5.6 h')
    """
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
