"""Pixels (images, channels, height, width): what all of them have in common, wherever they are kept."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.integer[Any]]


class ArrayPixels(np.ndarray[Any, np.dtype[Any]]):
    """Pixels in memory, or a mapped file: a NumPy array, and what :class:`LazyPixels` adds to one.

    >>> pixels = np.zeros((4, 3, 8, 8), np.uint8).view(ArrayPixels)
    >>> pixels.in_memory, pixels.select(np.array([2, 0])).shape, type(pixels[0])
    (True, (2, 3, 8, 8), <class 'numpy.ndarray'>)
    """

    in_memory = True
    factor = 1

    def __getitem__(self, key: Any, /) -> Any:
        return self.view(np.ndarray)[key]

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        return array[()] if return_scalar else np.asarray(array)  # what is computed from pixels is a plain array

    def select(self, places: Places) -> ArrayPixels:
        """The images at these places, as a copy."""
        chosen: ArrayPixels = self[places].view(ArrayPixels)
        return chosen

    def fingerprint_of(self, ids: tuple[str, ...]) -> None:
        """Not known before the pixels are read."""

    def reuse(self, shards: dict[Path, Any]) -> None:
        """An array has no shards."""


class LazyPixels:
    """Pixels in a store, or computed as they are read; what they have in common with an array.

    Indexing by a number, a slice or integers reads those images, as a plain NumPy array.

    Parameters
    ----------
    shape : (int, int, int, int)
        Images, channels, height, width.
    dtype : dtype
        ``uint8``, or ``float32`` with values in [-1, 1] (latents: any).

    Attributes
    ----------
    in_memory : bool
        Whether another process that is sent these pixels is sent their values, and not where to read them.
    factor : int
        Side of the square of original pixels that each pixel is the mean of; 1 where nothing was downscaled.
    """

    ndim = 4
    in_memory = False
    factor = 1

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape, self.dtype = shape, dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any, /) -> NDArray[Any]:
        raise NotImplementedError

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("these pixels are not in memory: an array of them is always a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    @property
    def nbytes(self) -> int:
        """Bytes that all of it would take in memory."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def select(self, places: Places) -> LazyPixels:
        """The images at these places, in this order; nothing is read before it is indexed."""
        raise NotImplementedError

    def fingerprint_of(self, ids: tuple[str, ...]) -> str | None:
        """The fingerprint of these pixels under these ids, if it is known without reading them."""
        return None

    def reuse(self, shards: dict[Path, Any]) -> None:
        """Share the shards of a store that this process has open already, so that each is checked once."""


#: Pixels in memory, in a store, or computed as they are read: all have the attributes of :class:`LazyPixels`.
Pixels = ArrayPixels | LazyPixels


def fingerprint(pixels: Pixels, ids: tuple[str, ...]) -> str:
    """A hash of pixels and ids: equal for equal sets, in memory or in a store."""
    if known := pixels.fingerprint_of(ids):
        return known
    digest = hashlib.sha256(repr((pixels.shape, pixels.dtype.str, ids)).encode())
    for start in range(0, len(pixels), 1024):
        digest.update(pixels[start : start + 1024].tobytes())
    return digest.hexdigest()
