"""Unfinished work of one query, kept so that a run that was killed can be resumed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from patchtrace.cache import Arrays, Cache

#: Seconds of work that a killed run may lose, besides its current draws.
SECONDS_BETWEEN_SAVES = 10.0


class Checkpoint:
    """The state of one query's run on disk.

    Parameters
    ----------
    directory : Path
        Created when there is something to keep.
    key : str
        Hash of everything that the numbers depend on. Work under another key is not found.
    """

    def __init__(self, directory: Path, key: str) -> None:
        self._cache, self._key = cache(directory), key
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Whether the last save is long enough ago."""
        return time.monotonic() - self._saved > SECONDS_BETWEEN_SAVES

    def save(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._cache.save(self._key, **state)
        self._saved = time.monotonic()

    def load(self, names: Iterable[str]) -> Arrays | None:
        """The state that was saved, if there is one that has these names."""
        return self._cache.load(self._key, like=dict.fromkeys(names))


def cache(directory: Path) -> Cache:
    """Where checkpoints are kept; ``cache(directory).clear()`` deletes them."""
    return Cache(directory, "unfinished work")
