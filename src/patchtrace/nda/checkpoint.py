"""Unfinished work of one query, kept so that a run that was killed can be resumed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.cache import Arrays, Cache, warn_damaged
from patchtrace.nda.choice import LEAST_SAMPLE
from patchtrace.nda_details import Ended
from patchtrace.recipe import MOST_DRAWS

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

    def load(self, fresh: Mapping[str, NDArray[Any]]) -> Arrays | None:
        """The state that was saved, if there is one that a run with this ``fresh`` state could have come to."""
        state = self._cache.load(self._key, like=dict.fromkeys(fresh))
        if state is None or (problem := _problem(state, fresh)) is None:
            return state
        path = self._cache.path(self._key)
        warn_damaged(self._cache.what, path, problem)
        path.unlink(missing_ok=True)
        return None


def _problem(state: Mapping[str, NDArray[Any]], fresh: Mapping[str, NDArray[Any]]) -> str | None:
    """What is wrong with a state, whatever wrote it: shapes that do not match, numbers that no run comes to."""
    moments, sums, coarse, listed = (state[name] for name in ("moments", "sums", "coarse", "listed"))
    for name, array in state.items():
        if array.dtype.kind != fresh[name].dtype.kind or array.ndim != fresh[name].ndim:
            return f"{name} is an array of another kind"
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{name} has values that are not finite"
    images = len(fresh["coarse"]) or fresh["moments"].shape[2]
    everything = np.array_equal(listed, [-1])
    count = images if everything else len(listed)
    if moments.shape != (*fresh["moments"].shape[:2], count) or sums.shape != (len(fresh["sums"]), count):
        return "it is of another number of images or levels"
    if not everything and (np.any(np.diff(listed) <= 0) or not np.isin(listed, np.arange(images)).all()):
        return "its shortlist is not one of these images"
    if len(coarse) not in (0, images) or (moments < 0).any() or (coarse < 0).any():
        return "it has negative numbers, or a coarse pass over other images"
    if state["seen"].shape != (2, len(moments), 0 if everything else images) or (state["seen"] < 0).any():
        return "it has samples of other images, or negative ones"
    samples, draws = moments[:, -2], moments[:, -1]
    if (samples > draws).any() or (draws > MOST_DRAWS).any() or (moments[:, -2:] % 1).any():
        return "its counts of draws are none"
    drawn = bool((draws > 0).any(axis=1).all())
    if not len(coarse) and (not everything or (str(state["ended"]) and not drawn)):
        return "its coarse pass is missing"
    numbers = state["numbers"]
    if numbers.shape != (5,) or (numbers < 0).any() or numbers[:2].sum() > images:
        return "it counts more images than there are"
    if numbers[2] > LEAST_SAMPLE or numbers[3] > 1 or numbers[4] > count:
        return "it has a sample, or a coarse pass, that no run has"
    if str(state["ended"]) not in ("", *Ended):
        return "it ended in a way that there is not"
    return None


def cache(directory: Path) -> Cache:
    """Where checkpoints are kept; ``cache(directory).clear()`` deletes them."""
    return Cache(directory, "unfinished work")
