"""Pixels (images, channels, height, width): in memory, or read and downscaled when they are indexed."""

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
        ``uint8``, or ``float32`` with values in [-1, 1] (latents: any; those of a store are ``float16``).

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

    def select(self, places: Places) -> Pixels:
        """The images at these places, in this order; nothing is read before it is indexed."""
        raise NotImplementedError

    def fingerprint_of(self, ids: tuple[str, ...]) -> str | None:
        """The fingerprint of these pixels under these ids, if it is known without reading them."""
        return None

    def reuse(self, shards: dict[Path, Any]) -> None:
        """Share the shards of a store that this process has open already, so that each is checked once."""


#: Pixels in memory, in a store, or computed as they are read: all have the attributes of :class:`LazyPixels`.
Pixels = ArrayPixels | LazyPixels


class JoinedPixels(LazyPixels):
    """The pixels of one set, and behind them those of another.

    Parameters
    ----------
    first, second : Pixels
        Of one shape; latents become float32 if their types differ.

    Examples
    --------
    >>> both = JoinedPixels(*(np.full((2, 1, 1, 1), n, np.uint8).view(ArrayPixels) for n in (3, 5)))
    >>> both[1:3].ravel().tolist(), both[3].item(), both[np.array([2, 0])].ravel().tolist()
    ([3, 5], 5, [5, 3])
    """

    def __init__(self, first: Pixels, second: Pixels) -> None:
        dtype = first.dtype if first.dtype == second.dtype else np.dtype(np.float32)
        super().__init__((len(first) + len(second), *map(int, first.shape[1:])), dtype)
        self._parts, self.in_memory = (first, second), first.in_memory and second.in_memory

    def __getitem__(self, key: Any, /) -> NDArray[Any]:
        places = np.arange(len(self))[key]
        if places.ndim == 0:
            return np.asarray(self[places[None]][0])
        (first, second), ours = self._parts, places < len(self._parts[0])
        if ours.all():
            return np.asarray(first[places])
        found = np.empty((len(places), *self.shape[1:]), self.dtype)
        found[ours], found[~ours] = first[places[ours]], second[places[~ours] - len(first)]
        return found

    def select(self, places: Places) -> Pixels:
        """The images at these places; in another order than one set after the other, they are read."""
        (first, second), ours = self._parts, places < len(self._parts[0])
        if ours.all():
            return first.select(places)
        if (~ours).all():
            return second.select(places - len(first))
        if (np.diff(ours.astype(int)) <= 0).all():
            return JoinedPixels(first.select(places[ours]), second.select(places[~ours] - len(first)))
        return self[places].view(ArrayPixels)

    def reuse(self, shards: dict[Path, Any]) -> None:
        """See :meth:`LazyPixels.reuse`."""
        for part in self._parts:
            part.reuse(shards)


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
        dtype = pixels.dtype if pixels.dtype == np.uint8 else np.dtype(np.float32)
        super().__init__((count, channels, height // factor, width // factor), dtype)
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
        """See :meth:`LazyPixels.reuse`."""
        self._pixels.reuse(shards)


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


def fingerprint(pixels: Pixels, ids: tuple[str, ...], extents: NDArray[np.int32] | None = None) -> str:
    """A hash of pixels, ids and extents: equal for equal sets, in memory or in a store."""
    if known := pixels.fingerprint_of(ids):
        return known
    about = (pixels.shape, pixels.dtype.str, ids)
    digest = hashlib.sha256(repr(about if extents is None else (*about, extents.tolist())).encode())
    for start in range(0, len(pixels), 1024):
        digest.update(pixels[start : start + 1024].tobytes())
    return digest.hexdigest()
