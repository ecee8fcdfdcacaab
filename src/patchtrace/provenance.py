"""Which training images the pixels of a picture come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from patchtrace.display import shown
from patchtrace.images import ImageSet
from patchtrace.short import short_repr

#: Number of training images listed for each pixel.
DEPTH = 4


@dataclass(frozen=True)
class Provenance:
    """Which training images the pixels of pictures came from, or resemble.

    Parameters
    ----------
    shares : float32 (pictures, train)
        The part of each training image in a picture, mean over its pixels. A row sums to 1.
    sources : int32 (pictures, height, width, depth)
        For each pixel the training images with the most weight, the first of them the most.
    weights : float32 (pictures, height, width, depth)
        Their weights. Over all training images the weights of a pixel sum to 1. With fewer images than depth, the
        remaining weights are 0.

    Examples
    --------
    >>> weights = np.float32([[[0.25, 0.75]]])  # one picture of one pixel, two training images
    >>> Provenance.of(weights, 1, 1).sources[0, 0, 0, 0]
    np.int32(1)
    """

    shares: NDArray[np.float32]
    sources: NDArray[np.int32]
    weights: NDArray[np.float32]

    __repr__ = short_repr

    @classmethod
    def of(cls, origin: NDArray[np.float32], height: int, width: int) -> Provenance:
        """From all weights, float32 (pictures, pixels, train), of pictures of this size."""
        best = np.argsort(-origin, axis=2, kind="stable")[:, :, :DEPTH]
        weights = np.take_along_axis(origin, best, axis=2)
        missing = ((0, 0), (0, 0), (0, DEPTH - best.shape[2]))
        shape = len(origin), height, width, DEPTH
        return cls(
            origin.mean(axis=1),
            np.pad(best.astype(np.int32), missing).reshape(shape),
            np.pad(weights, missing).reshape(shape),
        )

    @classmethod
    def joined(cls, parts: Sequence[Provenance]) -> Provenance:
        """The provenance of several pictures, one after the other."""
        arrays = zip(*((part.shares, part.sources, part.weights) for part in parts), strict=True)
        return cls(*map(np.concatenate, arrays))

    def within(self, count: int, indices: Sequence[int]) -> Provenance:
        """The same for a larger set of ``count`` images, in which the images of this one are at ``indices``."""
        places = np.asarray(indices, dtype=np.int32)
        shares = np.zeros((len(self.shares), count), dtype=np.float32)
        shares[:, places] = self.shares
        return Provenance(shares, places[self.sources], self.weights)


@dataclass(frozen=True)
class Samples:
    """What a score machine painted, and where it comes from. Made by :meth:`patchtrace.ScoreMachine.sample`.

    Parameters
    ----------
    images : float32 (samples, channels, height, width)
        Pixels in [-1, 1], or latents.
    provenance : Provenance
        Which training images the pixels come from.
    train : ImageSet, optional
        The training images, to be shown beside the samples in a notebook.

    Examples
    --------
    >>> weights = np.float32([[[0.25, 0.75]]])  # one sample of one pixel, two training images
    >>> Samples(np.float32([[[[0.5]]]]), Provenance.of(weights, 1, 1)).shares
    array([[0.25, 0.75]], dtype=float32)
    """

    images: NDArray[np.float32]
    provenance: Provenance
    train: ImageSet | None = field(default=None, repr=False)

    def _repr_html_(self) -> str | None:
        return shown(self)

    __repr__ = short_repr

    @property
    def shares(self) -> NDArray[np.float32]:
        """The part of each training image in each sample: (samples, train)."""
        return self.provenance.shares
