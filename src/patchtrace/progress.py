"""How far long work has come."""

from __future__ import annotations

from collections.abc import Callable

#: Called with (done, total); total is 0 where it is not known.
Progress = Callable[[int, int], None]


class Counter:
    """Adds up work of different kinds and tells it as (done, total)."""

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
