"""The oracle against the formula written out in loops, and against the authors' way of handling borders."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from engines.strategies import Case, cases
from hypothesis import given
from scipy.special import logsumexp

from patchtrace.engines import Comparison, NoisyQuery, Question
from patchtrace.engines.reference import ReferenceEngine


def compare(case: Case):
    return ReferenceEngine().compare(Question(*case, memory=1 << 30))


def patch_by_loops(image, top, left, comparison, pad_value):
    """One pooled patch as a flat list; pixels outside of the picture have ``pad_value``."""
    channels, height, width = image.shape
    pad = 0 if comparison.border == "valid" else (comparison.patch - 1) // 2
    w = comparison.pool
    values = []
    for c in range(channels):
        for i in range(comparison.patch // w):
            for j in range(comparison.patch // w):
                total = 0.0
                for a in range(w):
                    for b in range(w):
                        y, x = top - pad + i * w + a, left - pad + j * w + b
                        total += float(image[c, y, x]) if 0 <= y < height and 0 <= x < width else pad_value
                values.append(total / (w if comparison.pooling == "orthonormal" else w * w))
    return values


def all_patches_by_loops(image, comparison, pad_value):
    _, height, width = image.shape
    pad = 0 if comparison.border == "valid" else (comparison.patch - 1) // 2
    return [
        patch_by_loops(image, top, left, comparison, pad_value)
        for top in range(height + 2 * pad - comparison.patch + 1)
        for left in range(width + 2 * pad - comparison.patch + 1)
    ]


def logits_by_loops(query_patch, image_patches, variance):
    return [
        -sum((x - u) ** 2 for x, u in zip(query_patch, patch, strict=True)) / (2 * variance) for patch in image_patches
    ]


@pytest.mark.parametrize("border", ["zero", "valid", "match"])
@pytest.mark.parametrize(("patch", "pool"), [(1, 1), (2, 1), (3, 1), (4, 2), (5, 2)])
@pytest.mark.parametrize("pooling", ["orthonormal", "mean"])
def test_equals_the_formula_written_out(border, patch, pool, pooling):
    rng = np.random.default_rng(patch)
    comparison = Comparison(patch, pool, pooling, border, k=3)
    abar = 0.8
    signal, variance = math.sqrt(abar), 1 - abar
    block = rng.uniform(-1, 1, (2, 2, 5, 6)).astype(np.float32)
    query = rng.uniform(-1, 1, (2, 5, 6)).astype(np.float32)
    # under `match` both pictures are padded, after scaling, with one constant that no pixel is near
    constant = 1e3 if border == "match" else 0.0
    query_patches = all_patches_by_loops(query, comparison, constant)
    image_patches = [all_patches_by_loops(signal * image.astype(float), comparison, constant) for image in block]

    result = ReferenceEngine().compare(
        Question(
            NoisyQuery(query[None], np.array([signal]), np.array([variance])), block, comparison, 1 << 30, colours=True
        )
    )
    # the middle pixel of each patch: under a padded border that is every pixel in turn (the last ones not for even P)
    inset = (patch - 1) // 2 if border == "valid" else 0
    across = 6 - patch + 1 if border == "valid" else 6 - (patch + 1) % 2

    assert result.share.shape == (1, len(query_patches), 2)
    for place, query_patch in enumerate(query_patches):
        logits = [logits_by_loops(query_patch, patches, variance) for patches in image_patches]
        normaliser = logsumexp(logits[0] + logits[1])
        assert result.log_normaliser[0, place] == pytest.approx(normaliser, abs=1e-6)
        for n in range(2):
            top = logsumexp(sorted(logits[n])[-3:])
            assert result.share[0, place, n] == pytest.approx(np.exp(top - normaliser), rel=1e-6)
            for c in range(2):
                painted = sum(
                    np.exp(logit - normaliser) * float(block[n, c, inset + m // across, inset + m % across])
                    for m, logit in enumerate(logits[n])
                )
                assert result.colour[0, place, n, c] == pytest.approx(painted, rel=1e-6, abs=1e-12)


@given(cases())
def test_shares_of_a_patch_sum_to_one_without_the_cut(case):
    result = compare(case._replace(comparison=replace(case.comparison, k=10_000)))
    np.testing.assert_allclose(result.share.sum(axis=2), 1, rtol=1e-9)
    assert result.colour is None
