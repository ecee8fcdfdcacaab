"""Pictures made smaller as they are read, so that a large collection is never held at two sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.images.arrays import Pixels
from patchtrace.images.store.shards import Shard, StorePixels


def _sum(pixels: NDArray[Any], axis: int) -> NDArray[Any]:
    """Along a short axis. ``np.sum`` takes ten times as long, and a coarse pass would wait for it."""
    first, *others = np.moveaxis(pixels, axis, 0)
    if pixels.dtype.kind == "u":
        largest = len(others) * int(np.iinfo(pixels.dtype).max)
        total: NDArray[Any] = first.astype(np.uint16 if largest < 1 << 15 else np.uint32)
    else:
        total = first.astype(np.float32)
    for each in others:
        total += each
    return total


class SmallerPixels:
    """Pixels (images, channels, height, width) whose squares of ``factor`` x ``factor`` are one pixel, their mean.

    Rows and columns that fill no square are left out. Indexing by a slice or by integers reads those images.
    """

    ndim = 4

    def __init__(self, pixels: Pixels | StorePixels, factor: int) -> None:
        self._pixels, self.factor = pixels, factor
        count, channels, height, width = map(int, pixels.shape)
        self.shape = (count, channels, height // factor, width // factor)
        self.dtype = pixels.dtype

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """How many bytes all of it would take in memory."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        read = self._pixels[key]
        height, width = self.shape[2:]
        pixels = read[..., : height * self.factor, : width * self.factor]
        rows = pixels.reshape(*read.shape[:-2], height, self.factor, width * self.factor)
        columns = _sum(rows, -2).reshape(*read.shape[:-2], height, width, self.factor)
        means = _sum(columns, -1) / np.float32(self.factor**2)
        return np.asarray(np.rint(means) if self.dtype == np.uint8 else means, dtype=self.dtype)

    def select(self, places: NDArray[np.integer[Any]]) -> SmallerPixels:
        """The images at these places, still to be read."""
        chosen = self._pixels[places] if isinstance(self._pixels, np.ndarray) else self._pixels.select(places)
        return SmallerPixels(chosen, self.factor)

    def reuse(self, known: dict[Path, Shard]) -> None:
        """See :meth:`patchtrace.images.store.shards.StorePixels.reuse`."""
        if isinstance(self._pixels, StorePixels):
            self._pixels.reuse(known)
