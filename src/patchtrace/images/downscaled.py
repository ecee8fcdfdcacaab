"""Pictures downscaled as they are read, so that a large collection is never held at two sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.images.pixels import LazyPixels, Pixels, Places


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


class DownscaledPixels(LazyPixels):
    """Pixels whose squares of ``factor`` x ``factor`` are one pixel, their mean.

    Rows and columns that do not fill a square are left out.

    Parameters
    ----------
    pixels : Pixels
        The originals.
    factor : int
        Side of a square.
    """

    def __init__(self, pixels: Pixels, factor: int) -> None:
        count, channels, height, width = map(int, pixels.shape)
        super().__init__((count, channels, height // factor, width // factor), pixels.dtype)
        self._pixels, self.factor, self.in_memory = pixels, factor, pixels.in_memory

    def __getitem__(self, key: Any, /) -> NDArray[Any]:
        read = self._pixels[key]
        height, width = self.shape[2:]
        pixels = read[..., : height * self.factor, : width * self.factor]
        rows = pixels.reshape(*read.shape[:-2], height, self.factor, width * self.factor)
        columns = _sum(rows, -2).reshape(*read.shape[:-2], height, width, self.factor)
        means = _sum(columns, -1) / np.float32(self.factor**2)
        return np.asarray(np.rint(means) if self.dtype == np.uint8 else means, dtype=self.dtype)

    def select(self, places: Places) -> DownscaledPixels:
        """The images at these places, still to be read."""
        return DownscaledPixels(self._pixels.select(places), self.factor)

    def reuse(self, shards: dict[Path, Any]) -> None:
        """See :meth:`patchtrace.images.pixels.LazyPixels.reuse`."""
        self._pixels.reuse(shards)
