"""A random projection that shortens gradients and nearly keeps their inner products.

Each number of a gradient is added to one of ``dimension`` places, with a sign; place and sign are drawn from the seed
(a count sketch). The inner product of two projections is that of the gradients on average, and its standard error is
about ``|a| |b| / sqrt(dimension)``, as with a dense Gaussian matrix. Measured on a model with 226,531 weights, the mean
error is 0.018 of ``|a| |b|`` for 2048 dimensions and 0.012 for 4096. A Gaussian matrix and a subsampled Hadamard
transform gave the same errors, and took 350 and 20 times as long as this one with its 0.5 ms for a gradient.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

#: Numbers for which places and signs are drawn at a time: memory does not grow with the model.
BLOCK = 2**18


@dataclass(frozen=True)
class Projection:
    """From gradients to rows of ``dimension`` numbers; with None, to the gradients themselves.

    Parameters
    ----------
    width : int
        Length of a gradient.
    dimension : int or None
        Length of a row; None keeps that of the gradient.
    seed : tuple of int
        Seed of places and signs, each number at least 0.

    Examples
    --------
    >>> import torch
    >>> rows = Projection(6, 4, (0,)).rows([torch.ones(2, 3), torch.ones(2, 3)])
    >>> rows.shape
    torch.Size([2, 4])
    """

    width: int
    dimension: int | None
    seed: tuple[int, ...]

    @property
    def length(self) -> int:
        """Length of a row."""
        return self.dimension or self.width

    def facts(self) -> dict[str, Any]:
        """Everything that decides the projection, as plain data."""
        return {"projection": "none" if self.dimension is None else "count sketch", "dimension": self.length}

    def rows(self, gradients: Iterable[Tensor]) -> Tensor:
        """Rows (pictures, length) of gradients that are given weight by weight, each (pictures, ...)."""
        import torch

        flat = [part.flatten(1) for part in gradients]
        if self.dimension is None:
            return torch.cat(flat, dim=1)
        rows = flat[0].new_zeros((len(flat[0]), self.dimension))
        start = 0
        for part in flat:
            while part.shape[1]:
                block, first = divmod(start, BLOCK)
                values, part = part[:, : BLOCK - first], part[:, BLOCK - first :]
                inside = slice(first, first + values.shape[1])
                place, sign = (drawn[inside].to(rows.device) for drawn in _drawn(self.seed, block, self.dimension))
                rows.index_add_(1, place, values * sign)
                start += values.shape[1]
        return rows


@lru_cache(maxsize=16)
def _drawn(seed: tuple[int, ...], block: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Places (int64) and signs (float32) of the numbers of a block."""
    import torch

    # raw numbers, because numpy promises to keep these as they are from version to version
    raw = np.random.Philox(np.random.SeedSequence([*seed, block])).random_raw(BLOCK // 2).view(np.uint32)
    drawn = (raw.astype(np.uint64) * np.uint64(2 * dimension)) >> np.uint64(32)  # from 0 to 2 * dimension - 1
    # int64, because torch adds by int32 places eight times as slowly
    place, sign = (drawn >> np.uint64(1)).astype(np.int64), 1 - 2 * (drawn & np.uint64(1)).astype(np.float32)
    return torch.from_numpy(place), torch.from_numpy(sign)
