"""Near-duplicates: pictures that are the same up to brightness, contrast, light compression or a mirror.

Two pictures count as alike if the correlation of their thumbnails, without the mean of each channel, is at least
``ALIKE``, as they are or mirrored. Crops, rotations and other colours are not found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from patchtrace.images import ImageSet

#: Sides of a thumbnail, at most, and the correlation from which two are alike. Of 300 photographs that are not copies
#: of each other the largest correlation with any of 200 others is 0.93.
SIDE, ALIKE = 16, 0.97
#: Pictures whose thumbnails are made at once.
BLOCK = 1024


def near_duplicates(train: ImageSet, places: Sequence[int] | NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """For each of these places, the places of the pictures that are alike, with the place itself.

    >>> from patchtrace.demo import postcards
    >>> cards = postcards(6, size=16)
    >>> pixels = np.concatenate([cards.pixels[:], cards.pixels[2:3, :, :, ::-1] // 2])
    >>> [found.tolist() for found in near_duplicates(ImageSet.open(pixels), [1, 2])]
    [[1], [2, 6]]
    """
    wanted = thumbnails(train.subset(places), 0, len(places))
    mirrored = _normalised(wanted[..., ::-1])
    rows = _normalised(wanted)
    found: list[list[NDArray[np.intp]]] = [[] for _ in places]
    for start in range(0, len(train), BLOCK):
        columns = _normalised(thumbnails(train, start, min(start + BLOCK, len(train))))
        alike = np.maximum(rows @ columns.T, mirrored @ columns.T) >= ALIKE
        for number in range(len(places)):
            found[number].append(start + np.flatnonzero(alike[number]))
    # a picture without any contrast is like no other, but like itself
    return [np.union1d(np.concatenate(some), [place]) for some, place in zip(found, places, strict=True)]


def thumbnails(images: ImageSet, start: int, stop: int) -> NDArray[np.float32]:
    """Some images as means of squares, with at most ``SIDE`` pixels a side: (images, channels, height, width)."""
    factor = -(-max(images.shape[1:]) // SIDE)
    smaller = images.smaller(factor) if 1 < factor <= min(images.shape[1:]) else images
    return smaller.block(start, stop)


def _normalised(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each picture as a vector of length 1, without the mean of each channel; one without contrast is all zeros."""
    centred = pixels - pixels.mean(axis=(2, 3), keepdims=True)
    rows = centred.reshape(len(pixels), -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 1e-4))
