"""What the fast engines share: how pictures are prepared, in which precision a query can be compared, and the answer.

With pixel vectors moved by one colour, the mean of the block, a logit is

    -||x - s u||^2 / 2v  =  -||x||^2 / 2v  +  <x, u> s / v  -  s^2 ||u||^2 / 2v

The first term is the same for all partners of a query patch, so it is added to the normaliser at the end and never
rounds a weight. The move changes no distance, but makes the numbers smaller, and so their rounding. (Under border
``zero`` it would move the black of the padding away from 0.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from patchtrace.engines.contract import BlockResult, Comparison, Float32, Float64, Patchwork, Question, Version, turned

#: Rounding of a logit up to which float32 is used (at k = 100); scores then agree with float64 to 1e-5 or better.
FLOAT32_ROUNDING = 1.5e-5
MANY_PATCHES = 200
#: Independent channels up to which nothing is known that would allow more: see :func:`precision`.
USUAL_CHANNELS = 5


class Colour(NamedTuple):
    """The colour to move by, and the mean over pixels of the squared distance to it, summed over channels."""

    mean: Float64
    squares: float


def colour_of(question: Question) -> Colour:
    """The mean colour of a block of images."""
    mean = question.pictures.mean(axis=(0, 2, 3), dtype=np.float64) * (question.comparison.border != "zero")
    return Colour(mean, float(((question.pictures - mean[:, None, None]) ** 2).mean(axis=(0, 2, 3)).sum()))


class QueryTerms(NamedTuple):
    """A noisy query, prepared, with the factors of the two terms of a logit that depend on the partner."""

    pixels: Float64  # (channels, rows, columns), as `prepared` gives them
    offset: Float64  # -||x||^2 / 2v of each patch
    dtype: type[np.float32] | type[np.float64]
    noise: Noise | None  # of a patchwork
    product_factor: float  # s / v
    norm_factor: float  # -s^2 / 2v


class Noise(NamedTuple):
    """What is put on a query patch by patch: two pictures, prepared as the query, and where which part goes."""

    pixels: NDArray[Any]
    turned: NDArray[Any]
    work: Patchwork


def query_terms(version: Version, colour: Colour, comparison: Comparison) -> QueryTerms:
    """Prepare a noisy query for a block of this colour."""
    signal, variance = version.signal, version.variance
    pixels = prepared(version.pixels[None], signal * colour.mean, comparison)[0]
    squares_of_patches = patch_sums((pixels**2).sum(axis=0), comparison)
    noise = None
    if version.noise is not None:
        pictures = np.stack([version.noise, turned(version.noise)])
        work = Patchwork.of(comparison, *version.pixels.shape[1:])
        plain, other = prepared(pictures, np.zeros(len(pixels)), comparison)
        noise = Noise(plain, other, work)
        squares_of_patches += _with_noise(pixels, noise, comparison)
    offset = -squares_of_patches / (2 * variance)
    # how large logits are without the offset: seen from the query (of whose square D/2 is noise), and from the block
    of_query = np.abs(offset + len(pixels) * comparison.taps**2 / 2)
    squares = comparison.extent**2 * colour.squares
    of_block = squares * (comparison.pool / comparison.pool_divisor * signal) ** 2 / (2 * variance)
    channels = independent_channels(version.pixels)
    dtype = precision(max(of_query.mean(), of_block), of_query.max(), offset.size, comparison.k, channels)
    factors = signal / variance, -(signal**2) / (2 * variance)
    return QueryTerms(pixels, offset.ravel(), dtype, noise, *factors)


def _with_noise(pixels: Float64, noise: Noise, comparison: Comparison) -> Float64:
    """By how much the noise changes ||x||^2 of each patch: (row positions, column positions)."""
    work = noise.work
    squares = [patch_sums((part**2).sum(axis=0), comparison) for part in (noise.pixels, noise.turned)]
    changes = work.signs * work.placed(*squares)
    query, plain, other = (patches(part, comparison) for part in (pixels, noise.pixels, noise.turned))
    for row, source in enumerate(work.rows):  # row by row, so that not all patches are copied at once
        taken = np.where(work.turned[row, :, None, None, None], other[row], plain[source][work.columns])
        changes[row] += 2 * work.signs[row] * np.einsum("pcij,pcij->p", query[row], taken)
    return np.asarray(changes)


def patches(picture: Float64, comparison: Comparison) -> Float64:
    """All patches of a prepared picture: (row positions, column positions, channels, taps, taps), no copy."""
    span, step = comparison.reach + 1, comparison.pool
    windows = sliding_window_view(picture, (span, span), axis=(1, 2))[..., ::step, ::step]
    rows, columns = (count - (comparison.patch - comparison.extent) for count in windows.shape[1:3])
    return windows[:, :rows, :columns].transpose(1, 2, 0, 3, 4)


def independent_channels(pixels: Float32) -> float:
    """How many channels of equal spread, none of which follows from others, vary as much as these together.

    >>> grey = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    >>> independent_channels(np.concatenate([grey, grey, grey])).__round__(6)
    1.0
    >>> independent_channels(np.concatenate([grey, grey[..., ::-1].swapaxes(1, 2)])) > 1.9
    True
    """
    values = pixels.reshape(len(pixels), -1).astype(np.float64)
    values -= values.mean(axis=1, keepdims=True)
    # not by BLAS, whose threads wait for each other longer than this small product takes
    covariance = np.einsum("cp,dp->cd", values, values)
    squares = float((covariance**2).sum())
    return float(np.trace(covariance)) ** 2 / squares if squares > 0 else 1.0


def precision(
    typical: float, largest: float, patches: int, k: int, channels: float = 1.0
) -> type[np.float32] | type[np.float64]:
    """float32, unless logits of this size would be rounded too coarsely in it.

    A logit is rounded to about 2^-24 of its size, and a weight errs by as much. What is left of that in a score is
    several times smaller, because a score sums over many patches and k weights for each. Where there are few of them,
    less rounding is allowed; where there are very few patches, there is no time to save. A few patches with far larger
    logits, such as a bright spot in a dark picture, must not spoil the sum either.

    Latents have many channels, and logits as much larger. Where these are largely independent of each other the logits
    of neighbours differ more, too, and scores err far less than the same size in a picture would make them: for each
    independent channel beyond these few as much again is allowed, at most five times as much. Normalisers are then
    right to 1e-3 at each patch, instead of 1e-4; scores to 1e-5, as ever.
    """
    rounding = max(typical, largest / 5) * 2.0**-24
    allowed = FLOAT32_ROUNDING * min(1.0, (k / 100) ** 0.5) * min(5.0, max(1.0, channels - USUAL_CHANNELS))
    return np.float32 if patches >= MANY_PATCHES and rounding < allowed else np.float64


def prepared(images: Float32, colour: Float64, comparison: Comparison) -> Float64:
    """Images (images, channels, rows, columns) with the colour taken off, padded, and pooled at every pixel."""
    pad = comparison.axis(images.shape[2]).pad
    count, channels, height, width = images.shape
    padded = np.zeros((count, channels, height + 2 * pad, width + 2 * pad))
    np.subtract(images, colour[:, None, None], out=padded[:, :, pad : pad + height, pad : pad + width])
    if comparison.pool == 1:
        return padded
    windows = sliding_window_view(padded, (comparison.pool, comparison.pool), axis=(2, 3))
    return np.asarray(windows.sum(axis=(4, 5)) / comparison.pool_divisor)


def middle_pixels(question: Question) -> Float32:
    """The middle pixel of each patch: (images, channels, row positions, column positions), no copy.

    Without colours there are no channels, so that the same code costs nothing.
    """
    rows, columns = (question.comparison.middle(side) for side in question.block.shape[2:])
    return question.block[:, slice(None if question.colours else 0), rows, columns]


def patch_sums(values: Float64, comparison: Comparison) -> Float64:
    """Sums over each patch of prepared values (..., rows, columns)."""
    down = window(values, -2, comparison)
    return np.asarray(window(down, -1, comparison), dtype=np.float64)


def window(values: NDArray[Any], axis: int, comparison: Comparison) -> NDArray[Any]:
    """``sum over e of values[i + e w]`` for each patch position i along an axis."""
    left_out = comparison.patch - comparison.extent  # pixels at the end of a patch that fill no pooling window
    moved = np.moveaxis(values, axis, 0)
    count = len(moved) - comparison.reach - left_out
    summed = moved[:count].copy()
    for start in range(comparison.pool, comparison.taps * comparison.pool, comparison.pool):
        summed += moved[start : start + count]
    return np.moveaxis(summed, 0, axis)


def doubling_window(values: Any, axes: tuple[int, ...], comparison: Comparison) -> Any:
    """``sum over e of values[i + e w]`` along all these axes at once, of an array or of a tensor.

    Windows of doubling length, so that no rounding adds up.
    """

    def part(start: int, left_out: int) -> Any:
        index = [slice(None)] * values.ndim
        for axis in axes:
            index[axis] = slice(start, values.shape[axis] - left_out + start)
        return values[tuple(index)]

    count, step = comparison.taps, comparison.pool
    summed, start, left = None, 0, comparison.reach
    while count:
        if count & 1:
            summed = part(start, left) if summed is None else summed + part(start, left)
            start += step
        count >>= 1
        if count:
            values = part(0, step) + part(step, step)
            left -= step
            step *= 2
    return summed


class Answer(NamedTuple):
    """What an engine finds for one version of the query."""

    log_normaliser: Float64  # (patches,)
    share: Float32  # (patches, images)
    painted: Float32  # (patches, images, channels): the weighted sum of middle pixels for a share of 1


def block_result(answers: list[Answer], colours: bool) -> BlockResult:
    """The answers for all versions."""
    normaliser, share, painted = (np.stack(parts) for parts in zip(*answers, strict=True))
    painted *= share[..., None]
    return BlockResult(normaliser, share, painted if colours else None)
