"""How far long work has come, and what it reports on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Called with (done, total); total is 0 where it is not known.
Progress = Callable[[int, int], None]


class Watch:
    """What a caller wants to hear from long work, in one object. Subclass it, or wrap a plain callable.

    Every ``progress`` parameter takes a callable ``(done, total)`` or a Watch.

    Parameters
    ----------
    progress : callable, optional
        Called with (done, total).

    Examples
    --------
    >>> Watch(lambda done, total: print(done, "of", total))(3, 4)
    3 of 4
    >>> Watch().remark("nobody listens")
    """

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress

    def __call__(self, done: int, total: int) -> None:
        """So much of the work is done."""
        if self._progress:
            self._progress(done, total)

    def remark(self, text: str) -> None:
        """A short sentence about the state of the work."""

    def note(self, text: str) -> None:
        """A sentence about a decision, worth keeping."""

    def provisional(self, result: Any) -> None:
        """What is known of one query so far; better results follow."""

    def finished(self, result: Any) -> None:
        """The result for one query, as soon as it is known."""

    @classmethod
    def of(cls, progress: Progress | None) -> Watch:
        """A Watch as it is, or one around a callable."""
        return progress if isinstance(progress, Watch) else Watch(progress)

    def part(self, first: float, last: float) -> Watch:
        """A Watch for work that is the part from ``first`` to ``last`` (0 to 1) of this one, in thousandths.

        It passes remarks and notes on, but no results: what ends a part does not end the whole.

        >>> Watch(lambda done, total: print(done, total)).part(0.5, 1)(1, 2)
        750 1000
        """
        return _Part(self, first, last)


class _Part(Watch):
    def __init__(self, whole: Watch, first: float, last: float) -> None:
        self._whole, self._first, self._last = whole, first, last

    def __call__(self, done: int, total: int) -> None:
        fraction = min(1.0, done / max(1, total))
        self._whole(round(1000 * (self._first + (self._last - self._first) * fraction)), 1000)

    def remark(self, text: str) -> None:
        self._whole.remark(text)

    def note(self, text: str) -> None:
        self._whole.note(text)


class Counter:
    """Adds up work of different kinds and reports it as (done, total)."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.total = total
        self._progress, self._done = progress, 0

    def add(self, work: int) -> None:
        self._done += work
        if self._progress:
            self._progress(self._done, self.total)

    def per_image(self, work: int) -> Callable[[int], None]:
        """To be called with a number of images that were so much work each."""
        return lambda images: self.add(images * work)
