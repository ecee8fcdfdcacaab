"""Random scores: the baseline that every other method has to beat."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.checks import whole
from patchtrace.methods.base import Method, Resources
from patchtrace.progress import Progress


class RandomScores(Method):
    """Scores drawn evenly from 0 to 1; the same seed gives the same scores.

    Parameters
    ----------
    seed : int, default 0
        Seed of the scores.

    Examples
    --------
    >>> train = np.zeros((5, 8, 8, 3), np.uint8)
    >>> RandomScores(seed=1).fit(train).attribute(train[:2]).scores.shape
    (2, 5)
    """

    name: ClassVar[str] = "random"
    options: ClassVar[frozenset[str]] = frozenset({"seed"})

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        return cls(seed=resources.seed)

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        scores = np.random.default_rng(whole("seed", self.seed, 0)).random((len(opened), len(train)))
        if progress:
            progress(1, 1)
        return self._result(train, opened, scores)
