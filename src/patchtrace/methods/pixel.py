"""The simplest baseline: whole pictures compared pixel by pixel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.checks import choice
from patchtrace.images import ImageSet
from patchtrace.methods.base import Method
from patchtrace.progress import Progress

Metric = Literal["cosine", "dot"]
#: Training images that are converted to float64 at once.
BLOCK = 1024


class PixelSimilarity(Method):
    """Inner product or cosine of the pixels, which lie in [-1, 1].

    Parameters
    ----------
    metric : {"cosine", "dot"}, default "cosine"
        Whether pictures are first normalised to length 1, or not.

    Examples
    --------
    >>> train = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    >>> PixelSimilarity().fit(train).attribute(train[3:4]).top(1)[0][0].index
    3
    """

    name: ClassVar[str] = "pixel"
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"pixel": {}, "pixel-dot": {"metric": "dot"}}

    def __init__(self, metric: Metric = "cosine") -> None:
        self.metric = metric

    def settings(self) -> dict[str, Any]:
        return {"metric": self.metric}

    def attribute(self, queries: Any, *, progress: Progress | None = None) -> Attribution:
        train, opened = self._opened(queries)
        rows = opened.block(0, len(opened)).reshape(len(opened), -1).astype(np.float64)
        scores = np.empty((len(opened), len(train)))
        for start in range(0, len(train), BLOCK):
            block = train.block(start, start + BLOCK)
            columns = block.reshape(len(block), -1).astype(np.float64)
            scores[:, start : start + BLOCK] = similarity(rows, columns, self.metric)
            if progress:
                progress(min(start + BLOCK, len(train)), len(train))
        return self._result(train, opened, scores)

    def _check(self, train: ImageSet) -> None:
        choice("metric", self.metric, get_args(Metric))


def similarity(
    rows: NDArray[np.float64], columns: NDArray[np.float64], metric: Metric = "cosine"
) -> NDArray[np.float64]:
    """Inner product or cosine of each row of one matrix with each row of another: (rows, columns).

    >>> similarity(np.array([[3.0, 4.0]]), np.array([[6.0, 8.0], [0.0, 0.0]]))
    array([[1., 0.]])
    """
    products = rows @ columns.T
    if metric == "dot":
        return products
    lengths = np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(columns, axis=1)
    # a vector of zeros, such as a picture of the middle grey, has no direction: it resembles nothing
    return np.asarray(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))
