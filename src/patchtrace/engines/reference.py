"""The oracle: the formula, patch by patch, in float64. Slow, and meant to be obviously right."""

from __future__ import annotations

import numpy as np
import scipy  # its parts are loaded where they are used: at once they would take every command a second
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from patchtrace.engines.contract import BlockResult, Comparison, Engine, Patchwork, Question, Version, turned


class ReferenceEngine(Engine):
    """Every patch of the query against every patch of every image, by their squared distance."""

    name = "reference"
    description = "the formula in float64, slow, to check against"
    rank = 40
    pairs_at_once = 10**6

    def least_bytes(self, comparison: Comparison, shape: tuple[int, int, int]) -> int:
        """All pairs with one image, some times over."""
        return int(4 * 8 * comparison.patches(*shape[1:]) ** 2)

    def compare(self, question: Question) -> BlockResult:
        """See :class:`patchtrace.engines.contract.Engine`. One image is in memory at a time, whatever the budget."""
        block, comparison = question.block, question.comparison
        normalisers, shares, painted = [], [], []
        middles = block[:, :, comparison.middle(block.shape[2]), comparison.middle(block.shape[3])]
        may_pair = _same_overhang(block.shape[2], block.shape[3], comparison)
        for version in question.query:
            query_patches = noisy_patches(version, comparison)
            totals = np.empty((len(query_patches), len(block)))
            top_k = np.empty_like(totals)
            mean = np.empty((*totals.shape, block.shape[1]))  # of the middle pixels, within each image
            for n, image in enumerate(block):
                scaled = version.signal * patches(image, comparison)
                distance = scipy.spatial.distance.cdist(query_patches, scaled, "sqeuclidean")
                logits = np.where(may_pair, -distance / (2 * version.variance), -np.inf)
                totals[:, n] = scipy.special.logsumexp(logits, axis=1)
                mean[:, n] = np.exp(logits - totals[:, n, None]) @ middles[n].reshape(len(image), -1).T
                top_k[:, n] = scipy.special.logsumexp(np.sort(logits, axis=1)[:, -comparison.k :], axis=1)
            normaliser = scipy.special.logsumexp(totals, axis=1)
            normalisers.append(normaliser)
            shares.append(np.exp(top_k - normaliser[:, None]))
            painted.append(np.exp(totals - normaliser[:, None])[:, :, None] * mean)
        return BlockResult(np.stack(normalisers), np.stack(shares), np.stack(painted) if question.colours else None)


def noisy_patches(version: Version, comparison: Comparison) -> NDArray[np.float64]:
    """All patches of a noisy query, as :func:`patches` gives them."""
    found = patches(version.pixels, comparison)
    if version.noise is None:
        return found
    height, width = version.pixels.shape[1:]
    positions = comparison.axis(height).positions, comparison.axis(width).positions
    noises = (patches(noise, comparison).reshape(*positions, -1) for noise in (version.noise, turned(version.noise)))
    return found + Patchwork.of(comparison, height, width).placed(*noises).reshape(found.shape)


def patches(image: NDArray[np.float32], comparison: Comparison) -> NDArray[np.float64]:
    """All patches of a picture, pooled and flattened: (patches, values). What hangs over the border is 0."""
    windows = _windows(image, comparison)
    w, taps = comparison.pool, comparison.taps
    pooled = windows.reshape(*windows.shape[:2], taps, w, taps, w).sum(axis=(3, 5)) / comparison.pool_divisor
    return np.asarray(pooled.reshape(len(pooled), -1))


def _windows(image: NDArray[np.float32], comparison: Comparison) -> NDArray[np.float64]:
    """The pixels of each patch, without the last rows and columns if they fill no pooling window.

    (patches, channels, extent, extent)
    """
    pad, extent = comparison.axis(image.shape[1]).pad, comparison.extent
    padded = np.pad(image.astype(np.float64), ((0, 0), (pad, pad), (pad, pad)))
    windows = sliding_window_view(padded, (comparison.patch, comparison.patch), axis=(1, 2))
    windows = windows.transpose(1, 2, 0, 3, 4)[..., :extent, :extent]
    return np.asarray(windows.reshape(-1, *windows.shape[2:]))


def _same_overhang(height: int, width: int, comparison: Comparison) -> NDArray[np.bool_]:
    """For border ``match``: which pairs of patches hang over the border in the same way; else all."""
    inside = _windows(np.ones((1, height, width), np.float32), comparison)
    inside = inside.reshape(len(inside), -1)
    if comparison.border != "match":
        return np.ones((len(inside), len(inside)), dtype=np.bool_)
    return np.asarray(scipy.spatial.distance.cdist(inside, inside, "chebyshev") == 0)
