"""The contract of engines: what they compare, and what they return.

For a query patch ``x_l`` and a training patch ``u`` the logit is

    logit(l, u) = -||x_l - s u||^2 / (2 v),        s = sqrt(abar_t),  v = 1 - abar_t

An engine gets one query in one or more noisy versions and a block of training images. It answers, for each query
patch, with the log of the sum of exp(logit) over all patches of the block, and, for each query patch and image, with
the part that the image's k largest have in that sum; if asked, also with the weighted sum of the middle pixels of the
image's patches, which is what a diffusion step would paint there. Blocks merge exactly: normalisers add, and each
block's shares and colours shrink by its part in the whole. So a set can be streamed, split over threads or over
machines, with the same result.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Compute
from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Border, Pooling, Recipe, Scale
from patchtrace.short import short_repr
from patchtrace.views import WHOLE, Crop, View

Floats = NDArray[np.floating[Any]]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


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
    views: tuple[View, ...] = ()  # what of each image counts too: the fold compares it, engines see single images

    @classmethod
    def of(cls, scale: Scale, recipe: Recipe) -> Comparison:
        return cls(
            scale.patch, scale.pool, recipe.pooling, recipe.border, recipe.k, tuple(map(View.named, recipe.views))
        )

    def crops(self, height: int, width: int) -> tuple[Crop, ...]:
        """The pictures that are compared for each training image: itself, and those of its views."""
        return WHOLE, *(crop for view in self.views for crop in view.crops((height, width), self.patch))

    @property
    def taps(self) -> int:
        """Pooled pixels along a side of a patch."""
        return self.patch // self.pool

    @property
    def extent(self) -> int:
        """Pixels along a side of a patch that count: rows that do not fill a pooling window are left out."""
        return self.taps * self.pool

    @property
    def reach(self) -> int:
        """Pixels from the first tap of a patch to the last."""
        return (self.taps - 1) * self.pool

    @property
    def pool_divisor(self) -> int:
        """What the sum over a pooling window is divided by."""
        return self.pool if self.pooling == "orthonormal" else self.pool**2

    def axis(self, side: int) -> Axis:
        """The patch positions along a side of this many pixels."""
        pad = 0 if self.border == "valid" else (self.patch - 1) // 2
        positions = side + 2 * pad - self.patch + 1
        interior = self.inside(side) if self.border == "match" else range(positions)
        return Axis(pad, positions, interior)

    def axes(self, height: int, width: int) -> tuple[Axis, Axis]:
        """The rows and the columns of patches of a picture."""
        return self.axis(height), self.axis(width)

    def inside(self, side: int) -> range:
        """The positions of patches that hang over no border."""
        pad = 0 if self.border == "valid" else (self.patch - 1) // 2
        return range(pad, pad + min(side + pad - self.patch + 1, side - self.extent + 1))

    def middle(self, side: int) -> slice:
        """Along a side of this many pixels: the middle pixel of each patch; of an even one, the pixel before it."""
        axis = self.axis(side)
        first = (self.patch - 1) // 2 - axis.pad
        return slice(first, first + axis.positions)

    def first_patches(self, size: tuple[int, int], frame: tuple[int, int]) -> NDArray[np.intp]:
        """The patches of a frame that lie within its upper left corner of this height and width, by their numbers.

        Of border ``valid``, where all patches lie within the picture.
        """
        (rows, columns), (_, across) = self.axes(*size), self.axes(*frame)
        places = np.arange(rows.positions)[:, None] * across.positions + np.arange(columns.positions)
        return np.asarray(places.ravel(), dtype=np.intp)

    def patches(self, height: int, width: int) -> int:
        """How many patches a picture has."""
        return math.prod(axis.positions for axis in self.axes(height, width))

    def pairs(self, height: int, width: int) -> int:
        """How many pairs of patches a query and an image, in all its views, have that can carry weight.

        The measure of the work.
        """
        sides = self.axes(height, width)
        pairs = math.prod(len(axis.interior) ** 2 + axis.positions - len(axis.interior) for axis in sides)
        return pairs * len(self.crops(height, width))


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

    log_normaliser: Float64
    share: Floats
    colour: Floats | None = None

    def with_views(self, further: BlockResult) -> BlockResult:
        """The same images with further pictures of each in the softmax, whose masses are added to theirs."""
        normaliser = np.logaddexp(self.log_normaliser, further.log_normaliser)
        parts = [np.exp(part.log_normaliser - normaliser)[:, :, None] for part in (self, further)]
        share = np.add(self.share * parts[0], further.share * parts[1], dtype=np.float32)
        if self.colour is None or further.colour is None:
            return BlockResult(normaliser, share)
        colours = self.colour * parts[0][..., None], further.colour * parts[1][..., None]
        return BlockResult(normaliser, share, np.add(*colours, dtype=np.float32))


@dataclass(frozen=True)
class NoisyQuery:
    """One query in one or more noisy versions: draws of the noise, or levels that are compared in the same way.

    Parameters
    ----------
    versions : float32 (versions, channels, height, width)
        ``s x + sqrt(v) eps``; in a patchwork ``s x``, the same for all versions.
    signal, variance : float64 (versions,)
        ``s`` and ``v`` of each version.
    noise : float32 (versions, channels, height, width), optional
        For a patchwork: ``sqrt(v) eps``, to be put on patch by patch as :class:`Patchwork` says.
    """

    versions: Float32
    signal: Float64
    variance: Float64
    noise: Float32 | None = None

    __repr__ = short_repr

    @classmethod
    def of(cls, clean: Float32, noise: Float32, signal: float, sigma: float, *, patchwork: bool = False) -> NoisyQuery:
        """A clean query (channels, height, width) under each noise of one level (draws, channels, height, width)."""
        levels = np.full(len(noise), signal), np.full(len(noise), sigma**2)
        if patchwork:
            pixels = np.broadcast_to((signal * clean).astype(np.float32), noise.shape)
            return cls(pixels, *levels, (sigma * noise).astype(np.float32))
        return cls((signal * clean + sigma * noise).astype(np.float32), *levels)

    @classmethod
    def joined(cls, queries: Sequence[NoisyQuery]) -> NoisyQuery:
        """The versions of several as those of one; all of them patchworks, or none."""
        arrays = zip(*((one.versions, one.signal, one.variance, one.noise) for one in queries), strict=True)
        joined: list[Any] = [None if parts[0] is None else np.concatenate(parts) for parts in arrays]
        return cls(*joined)

    def __len__(self) -> int:
        return len(self.versions)

    def part(self, first: int, last: int) -> NoisyQuery:
        """Versions ``first`` to ``last``."""
        noise = None if self.noise is None else self.noise[first:last]
        return NoisyQuery(self.versions[first:last], self.signal[first:last], self.variance[first:last], noise)

    def __iter__(self) -> Iterator[Version]:
        noises = [None] * len(self) if self.noise is None else self.noise
        return map(Version, self.versions, self.signal.tolist(), self.variance.tolist(), noises)


class Version(NamedTuple):
    """One noisy version of a query; with ``noise``, as a patchwork."""

    pixels: Float32
    signal: float
    variance: float
    noise: Float32 | None = None


@dataclass(frozen=True)
class Question:
    """What an engine is asked: how one query compares with a block of training images.

    Parameters
    ----------
    query : NoisyQuery
        The query with noise on it, in one or more versions.
    block : float32 (images, channels, height, width)
        Training images, without noise and not scaled.
    comparison : Comparison
        Patch size, pooling, border rule and k; ``views`` are ignored.
    memory : int
        Bytes of working memory to stay within, as far as one image allows. The answer itself is not counted.
    colours : bool, default False
        Whether the answer holds ``colour`` too.
    inside : (int, int), optional
        Height and width of the pictures in the upper left corner of the block, where they are smaller than it. Beside
        them lie numbers so large that patches which reach there have no weight. By default they fill the block.
    """

    query: NoisyQuery
    block: Float32
    comparison: Comparison
    memory: int
    colours: bool = False
    inside: tuple[int, int] | None = None

    def views(self) -> Iterator[Question]:
        """The same question on the images as they are, and on each picture of their views."""
        for crop in self.comparison.crops(*self.block.shape[2:]):
            yield replace(self, block=crop.of(self.block))

    @property
    def pictures(self) -> Float32:
        """The block without what lies beside the pictures: what tells how large their numbers are."""
        height, width = self.inside or self.block.shape[2:]
        return self.block[:, :, :height, :width]

    @property
    def rows(self) -> Axis:
        """The rows of patches of these pictures."""
        return self.comparison.axis(self.block.shape[2])

    @property
    def columns(self) -> Axis:
        """The columns of patches."""
        return self.comparison.axis(self.block.shape[3])


class Patchwork(NamedTuple):
    """A noise of its own for each patch of the query, out of one noise for the picture.

    A score is a sum over query patches, and what a patch adds to its mean depends on the noise on that patch alone. So
    any noise will do as long as each patch has normal noise, and it need not agree where patches overlap. With one
    noise for all of them neighbours err alike; here they err in different ways, which cancels in the sum.

    A patch has the noise of the patch in another row and column, one that lies in the picture in the same way, and
    every other block of 2 x 2 patches has its negative. A patch over a corner has no such other: in every other row it
    has the noise at the same place of the :func:`turned` picture.

    Parameters
    ----------
    rows, columns : int32 (positions,)
        The position of the noise of each row and column of patches.
    signs : float32 (row positions, column positions)
    turned : bool (row positions, column positions)
        Patches with the noise of the turned picture.
    """

    rows: NDArray[np.int32]
    columns: NDArray[np.int32]
    signs: Float32
    turned: NDArray[np.bool_]

    @classmethod
    def of(cls, comparison: Comparison, height: int, width: int) -> Patchwork:
        rows, columns = (_exchanged(comparison, side) for side in (height, width))
        blocks = np.arange(len(rows))[:, None] // 2 + np.arange(len(columns)) // 2
        axes = comparison.axes(height, width)
        down, across = (np.isin(np.arange(axis.positions), axis.interior, invert=True) for axis in axes)
        odd = np.arange(len(rows)) % 2 == 1
        signs = np.where(blocks % 2, -1, 1).astype(np.float32)
        return cls(rows, columns, signs, (down & odd)[:, None] & across)

    def placed(self, noise: Floats, of_turned: Floats) -> Floats:
        """Of numbers for each patch of the noise and of the turned noise, (rows, columns, ...), those of each patch."""
        extra = (..., *[None] * (noise.ndim - 2))
        taken = np.where(self.turned[extra], of_turned, noise[self.rows][:, self.columns])
        return np.asarray(taken * self.signs[extra])


def turned(noise: Float32) -> Float32:
    """The noise (..., height, width) moved by half the picture, around its borders: as good as another one."""
    return np.roll(noise, (noise.shape[-2] // 2, noise.shape[-1] // 2), axis=(-2, -1))


def _exchanged(comparison: Comparison, side: int) -> NDArray[np.int32]:
    """Every other position within the picture for one half of these positions further on; the others stay."""
    places = np.arange(comparison.axis(side).positions, dtype=np.int32)
    inside = comparison.inside(side)
    within = np.arange(len(inside))
    far = len(inside) // 4 * 2  # even, so that odd positions take the place of odd ones
    places[inside.start : inside.stop] += np.where(within % 2, (within + far) % len(inside) - within, 0)
    return places


#: Every engine by name. Subclasses of Engine register here.
ENGINES: dict[str, type[Engine]] = {}


class Engine(ABC):
    """One way to compute the patch softmax. All give the same numbers. An engine is one file with one class.

    Attributes
    ----------
    name, description : str
        Name on the command line, and a phrase that describes the engine.
    rank : int
        Engines with a lower rank are listed and tried first.
    pairs_at_once : int
        Pairs of patches that it compares in a fraction of a second. A call has at most as many, so that progress is
        shown and Ctrl-C works.
    instructions : str
        Which instructions of the processor it uses, where that changes the last digits.
    """

    name: ClassVar[str]
    description: ClassVar[str] = ""
    rank: ClassVar[int] = 50
    pairs_at_once: ClassVar[int] = 10**7
    instructions: str = ""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "name" in cls.__dict__:
            ENGINES[cls.name] = cls

    @classmethod
    def create(cls, compute: Compute, instructions: str = "") -> Self:
        """The engine for these settings; ``instructions`` are those of another process that it must agree with."""
        if compute.device is not None:
            raise PatchtraceError(
                f"device is {compute.device!r}: the engine {cls.name} runs on the processor only, use engine='torch'"
            )
        return cls()

    @classmethod
    def suits(cls, compute: Compute, pairs: int) -> bool:
        """Whether ``auto`` may choose it for this number of pairs of patches."""
        return False

    @classmethod
    def status(cls) -> tuple[bool, str]:
        """Whether it works on this machine, and details."""
        return True, ""

    def least_bytes(self, comparison: Comparison, shape: tuple[int, int, int]) -> int:
        """Bytes of working memory that a comparison with one image of this shape takes at the least.

        By default those of all pairs of one row of patches, with the copies that an exponential and top-k make.
        """
        rows, columns = (comparison.axis(side) for side in shape[1:])
        return 4 * 4 * columns.positions**2 * len(rows.interior)

    @abstractmethod
    def compare(self, question: Question) -> BlockResult:
        """Compare one query with a block of training images.

        Parameters
        ----------
        question : Question
            The query, the block, and how to compare them.

        Returns
        -------
        BlockResult
        """
