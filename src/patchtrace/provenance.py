"""Which training images the pixels of a picture are from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Images that a pixel of a map names.
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
        Their weights. All images of a pixel together have 1. Of fewer images than that, the rest has 0.
    """

    shares: NDArray[np.float32]
    sources: NDArray[np.int32]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, origin: NDArray[np.float32], height: int, width: int) -> Provenance:
        """Out of all weights: float32 (pictures, pixels, train)."""
        best = np.argsort(-origin, axis=2, kind="stable")[:, :, :DEPTH]
        weights = np.take_along_axis(origin, best, axis=2)
        missing = ((0, 0), (0, 0), (0, DEPTH - best.shape[2]))  # of fewer images than that, the rest has weight 0
        shape = len(origin), height, width, DEPTH
        return cls(
            origin.mean(axis=1),
            np.pad(best.astype(np.int32), missing).reshape(shape),
            np.pad(weights, missing).reshape(shape),
        )

    @classmethod
    def joined(cls, parts: Sequence[Provenance]) -> Provenance:
        """Of several pictures, one after the other."""
        return cls(
            np.concatenate([part.shares for part in parts]),
            np.concatenate([part.sources for part in parts]),
            np.concatenate([part.weights for part in parts]),
        )

    def within(self, count: int, indices: Sequence[int]) -> Provenance:
        """The same, told of a larger set of ``count`` images, in which those known here are at ``indices``."""
        places = np.asarray(indices, dtype=np.int32)
        shares = np.zeros((len(self.shares), count), dtype=np.float32)
        shares[:, places] = self.shares
        return Provenance(shares, places[self.sources], self.weights)


@dataclass(frozen=True)
class Samples:
    """What the machine painted: ``images``, float32 (samples, channels, height, width) in [-1, 1], and their origin."""

    images: NDArray[np.float32]
    provenance: Provenance

    @property
    def shares(self) -> NDArray[np.float32]:
        """The part of each training image in each sample: (samples, train)."""
        return self.provenance.shares
