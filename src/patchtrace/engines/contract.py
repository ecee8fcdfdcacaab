"""What every engine is asked and what it answers.

For a query patch ``x_l`` and a training patch ``u`` the logit is

    logit(l, u) = -||x_l - s u||^2 / (2 v),        s = sqrt(abar_t),  v = 1 - abar_t

An engine gets one query in one or more noisy versions and a block of training images. It answers, for each query
patch, with the log of the sum of exp(logit) over all patches of the block, and, for each query patch and image, with
the part that the image's k largest have in that sum; if asked, also with the weighted sum of the middle pixels of the
image's patches, which is what a diffusion step would paint there. Blocks merge exactly: normalisers add, and each
block's shares and colours shrink by its part in the whole. So a set can be streamed, split over threads or over
machines, and the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from patchtrace.recipe import Border, Pooling, Recipe, Scale

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Axis:
    """The patch positions along one side of a picture.

    Position i begins at pixel ``i - pad``. Positions ``interior`` pair with each other; any
    other position hangs over the border in a way of its own and pairs only with itself.
    """

    pad: int
    positions: int
    interior: range


@dataclass(frozen=True)
class Comparison:
    """How patches are cut, compared and counted: a scale with the rules of its recipe."""

    patch: int
    pool: int
    pooling: Pooling
    border: Border
    k: int

    @classmethod
    def of(cls, scale: Scale, recipe: Recipe) -> Comparison:
        return cls(scale.patch, scale.pool, recipe.pooling, recipe.border, recipe.k)

    @property
    def taps(self) -> int:
        """Pooled pixels along a side of a patch."""
        return self.patch // self.pool

    @property
    def extent(self) -> int:
        """Pixels along a side of a patch that count: rows that do not fill a pooling window are left out."""
        return self.taps * self.pool

    @property
    def pool_divisor(self) -> int:
        """What the sum over a pooling window is divided by."""
        return self.pool if self.pooling == "orthonormal" else self.pool**2

    def axis(self, side: int) -> Axis:
        """The patch positions along a side of this many pixels."""
        pad = 0 if self.border == "valid" else (self.patch - 1) // 2
        positions = side + 2 * pad - self.patch + 1
        interior = range(positions)
        if self.border == "match":
            interior = range(pad, min(positions, side - self.extent + pad + 1))
        return Axis(pad, positions, interior)

    def middle(self, side: int) -> slice:
        """Along a side of this many pixels: the middle pixel of each patch; of an even one, the pixel before it."""
        axis = self.axis(side)
        first = (self.patch - 1) // 2 - axis.pad
        return slice(first, first + axis.positions)

    def patches(self, height: int, width: int) -> int:
        """How many patches a picture has."""
        return self.axis(height).positions * self.axis(width).positions

    def pairs(self, height: int, width: int) -> int:
        """How many pairs of patches two pictures have that can carry weight: the measure of the work."""
        pairs = 1
        for axis in (self.axis(height), self.axis(width)):
            inside = len(axis.interior)
            pairs *= inside**2 + axis.positions - inside
        return pairs


@dataclass(frozen=True)
class BlockResult:
    """What an engine answers for a block of training images.

    Parameters
    ----------
    log_normaliser : float64 (versions, patches)
        Log of the sum of exp(logit) over all training patches of the block.
    share : float32, from the oracle float64 (versions, patches, images)
        An image's top-k mass **divided by** the block's normaliser: between 0 and 1, whatever the size of the logits.
    colour : float32, from the oracle float64 (versions, patches, images, channels), optional
        The middle pixels of **all** patches of an image, each times its weight in the block's softmax, summed. Summed
        over images too it is their weighted mean.
    """

    log_normaliser: NDArray[np.float64]
    share: Floats
    colour: Floats | None = None


@dataclass(frozen=True)
class NoisyQuery:
    """One query in one or more noisy versions: draws of the noise, or levels that are compared in the same way.

    Parameters
    ----------
    versions : float32 (versions, channels, height, width)
        ``s x + sqrt(v) eps``
    signal, variance : float64 (versions,)
        ``s`` and ``v`` of each version.
    """

    versions: NDArray[np.float32]
    signal: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def of(cls, clean: NDArray[np.float32], noise: NDArray[np.float32], signal: float, sigma: float) -> NoisyQuery:
        """A clean query (channels, height, width) under each noise of one level (draws, channels, height, width)."""
        versions = (signal * clean + sigma * noise).astype(np.float32)
        return cls(versions, np.full(len(noise), signal), np.full(len(noise), sigma**2))

    def __len__(self) -> int:
        return len(self.versions)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float32], float, float]]:
        return zip(self.versions, self.signal.tolist(), self.variance.tolist(), strict=True)


class Engine(Protocol):
    """One way to compute the patch softmax. All give the same numbers.

    ``pairs_at_once`` is how many pairs of patches it does in a fraction of a second: as many go into one call, so that
    progress is seen and Ctrl-C heard.
    """

    name: str
    pairs_at_once: int

    def compare(
        self,
        query: NoisyQuery,
        block: NDArray[np.float32],
        comparison: Comparison,
        memory: int,
        *,
        colours: bool = False,
    ) -> BlockResult:
        """Compare one query with a block of training images.

        Parameters
        ----------
        query : NoisyQuery
            The query with noise on it, in one or more versions.
        block : float32 (images, channels, height, width)
            Training images, without noise and not scaled.
        comparison : Comparison
            Patch size, pooling, border rule and k.
        memory : int
            Bytes of working memory to stay within, as far as one image allows. The answer itself is not counted.
        colours : bool
            Whether the answer holds ``colour`` too.
        """
        ...
