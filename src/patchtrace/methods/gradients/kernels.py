"""From projected gradients to scores: inner products, cosines, and the inverse kernel of TRAK.

Features are memory-mapped and may be far wider than memory; all is done in float64 and in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError

Features = NDArray[np.float32]
#: Arrays of the kernel's size that its eigendecomposition takes.
_KERNELS = 4


def products(queries: NDArray[np.floating], train: Features, memory: int) -> NDArray[np.float64]:
    """Inner products (queries, train)."""
    scores = np.zeros((len(queries), len(train)))
    for part in _blocks(queries.shape[1], 8 * (len(queries) + len(train)), memory):
        left = queries[:, part].astype(np.float64)
        # the product of an array with its own transpose takes half the time, if it is seen to be that
        scores += left @ (left if train is queries else train[:, part].astype(np.float64)).T
    return scores


def cosines(queries: Features, train: Features, memory: int) -> NDArray[np.float64]:
    """Cosines (queries, train); a gradient of 0 has no direction and resembles nothing."""
    scores = products(queries, train, memory)
    lengths = np.sqrt(squares(queries))[:, None] * np.sqrt(squares(train))
    return np.asarray(np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0))


def squares(rows: Features) -> NDArray[np.float64]:
    """The squared length of each row; einsum converts a few numbers at a time."""
    return np.asarray(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))


class Ridge:
    """``phi_q (Phi^T Phi + lam s I)^-1 Phi^T`` for any number of lam, from one eigendecomposition.

    ``s`` is the mean squared length of the training features, ``trace(Phi Phi^T) / images``. So lam has no unit and
    does not depend on the dimension of the projection. With a lam far above the largest eigenvalue of ``Phi Phi^T / s``
    (at most the number of images) the scores order images as inner products do; far below the smallest, similar images
    take each other's scores away.

    Parameters
    ----------
    train : (images, dimension)
        Phi.
    memory : int
        Bytes.
    """

    def __init__(self, train: Features, memory: int) -> None:
        images, dimension = train.shape
        check_kernel(images, dimension, memory)
        self.train, self.memory = train, memory
        self.scale = float(squares(train).mean()) or 1.0
        # (Phi^T Phi + r)^-1 Phi^T = Phi^T (Phi Phi^T + r)^-1: the smaller of the two kernels will do
        self.dual = images <= dimension
        rows = train if self.dual else train.T
        kernel = products(rows, rows, memory)
        values, self.vectors = scipy.linalg.eigh(kernel, overwrite_a=True, check_finite=False)
        self.values = np.maximum(values, 0.0)  # below 0 only by rounding

    def scores(self, queries: Features, lams: Sequence[float]) -> Iterator[NDArray[np.float64]]:
        """Scores (queries, train) for each lam."""
        known = products(queries, self.train, self.memory) if self.dual else queries.astype(np.float64)
        turned = known @ self.vectors
        for lam in lams:
            solved = (turned / (self.values + lam * self.scale)) @ self.vectors.T
            yield solved if self.dual else products(solved, self.train, self.memory)


def check_kernel(images: int, dimension: int, memory: int) -> None:
    """Refuse a kernel that would not fit, before anything is computed for it."""
    needed = _KERNELS * 8 * min(images, dimension) ** 2
    if needed > memory:
        raise PatchtraceError(
            f"memory is {memory / 1e6:.0f} MB, and the kernel of {images} images in {dimension} dimensions takes "
            f"{needed / 1e6:.0f} MB: use memory='{-(-needed // 10**8) / 10:g}GB' or a smaller dimension"
        )


def _blocks(count: int, each: int, memory: int) -> Iterator[slice]:
    """Parts of 0 to ``count`` that take at most half of the memory, of ``each`` bytes apiece."""
    size = max(1, memory // 2 // max(1, each))
    return (slice(start, min(count, start + size)) for start in range(0, count, size))
