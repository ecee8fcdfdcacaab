"""A query beside images of other shapes: against the formula over the patches that lie within each picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from patchtrace import Compute
from patchtrace.compute import Budget
from patchtrace.engines import Comparison, Job, LocalWork, NoisyQuery, get_engine, native
from patchtrace.engines.reference import patches
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.views import View

PATCH = 3
ENGINES = ["reference", "blocked", "native", "torch", "convolution"]
SIDES = st.integers(PATCH, 9)


def as_set(pictures, frame, beside=0.0):
    """Pictures of many shapes in frames, with something beside them."""
    pixels = np.full((len(pictures), len(pictures[0]), *frame), beside, np.float32)
    for pixel, picture in zip(pixels, pictures, strict=True):
        pixel[:, : picture.shape[1], : picture.shape[2]] = picture
    extents = np.array([picture.shape[1:] for picture in pictures], np.int32)
    return ImageSet(pixels, tuple(map(str, range(len(pictures)))), extents=extents)


def job_of(clean, signal=0.8, versions=1, seed=1, **rules):
    noise = np.random.default_rng(seed).standard_normal((versions, *clean.shape)).astype(np.float32)
    rules = {"pool": 1, "pooling": "orthonormal", "border": "valid", "k": 4, "views": (), **rules}
    return Job(NoisyQuery.of(clean, noise, signal, (1 - signal**2) ** 0.5), Comparison(PATCH, **rules))


def masses(job, train, engine="reference", memory=1 << 30):
    (found,) = LocalWork(get_engine(Compute(engine=engine, threads=1)), train, Budget(memory)).masses([job])
    return found


def by_the_formula(job, pictures):
    """Top-k masses from all patches of all pictures, each at its own size: (versions, images)."""
    comparison = replace(job.comparison, views=())
    found = []
    for version in job.query:
        own = patches(version.pixels, comparison)
        logits = []
        for picture in pictures:
            seen = [picture, *([picture[..., ::-1]] if View(mirrored=True) in job.comparison.views else [])]
            theirs = [version.signal * patches(one, comparison) for one in seen]
            logits.append([-((own[:, None] - u) ** 2).sum(axis=2) / (2 * version.variance) for u in theirs])
        whole = logsumexp(np.concatenate([part for parts in logits for part in parts], axis=1), axis=1)
        best = [[np.sort(part, axis=1)[:, -comparison.k :] for part in parts] for parts in logits]
        found.append([sum(np.exp(part - whole[:, None]).sum() for part in parts) for parts in best])
    return np.array(found)


@st.composite
def pictures_of_many_shapes(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shapes = draw(st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=5))
    channels = draw(st.integers(1, 4))
    made = [rng.uniform(-1, 1, (channels, *shape)).astype(np.float32) for shape in (*shapes, *shapes[:1])]
    other = rng.uniform(-1, 1, (channels, draw(SIDES), draw(SIDES))).astype(np.float32)
    return made[:-1], draw(st.sampled_from([made[0], made[-1], other]))


@pytest.mark.parametrize("engine", ENGINES)
@given(pictures_of_many_shapes(), st.booleans(), st.sampled_from([0.2, 0.8, 0.999]))
def test_only_patches_within_a_picture_have_weight(engine, case, flips, signal):
    pictures, clean = case
    job = job_of(clean, signal, versions=2, views=(View(mirrored=True),) if flips else ())
    found = masses(job, as_set(pictures, (10, 10)), engine)
    np.testing.assert_allclose(found, by_the_formula(job, pictures), rtol=1e-4, atol=1e-7)


@given(pictures_of_many_shapes())
def test_shares_sum_to_one_over_the_patches_of_the_query(case):
    pictures, clean = case
    count = (clean.shape[1] - PATCH + 1) * (clean.shape[2] - PATCH + 1)
    found = masses(job_of(clean, k=10_000, views=(View(zoom=1.5),)), as_set(pictures, (9, 9)))
    np.testing.assert_allclose(found.sum(axis=1), count, rtol=1e-5)


@given(pictures_of_many_shapes(), st.integers(0, 30), st.floats(-5, 5, width=32))
def test_no_bit_depends_on_the_frame_or_on_what_lies_in_it(case, more, beside):
    pictures, clean = case
    job = job_of(clean)
    plain = masses(job, as_set(pictures, (9, 9)), "blocked")
    other = masses(job, as_set(pictures, (9 + more, 9), beside), "blocked")
    np.testing.assert_array_equal(plain, other)


def test_pictures_of_one_shape_are_compared_as_ever():
    rng = np.random.default_rng(0)
    pictures = list(rng.uniform(-1, 1, (6, 3, 8, 7)).astype(np.float32))
    plain = ImageSet(np.stack(pictures), tuple("abcdef"))
    job = job_of(pictures[2], views=(View(mirrored=True), View(zoom=1.5)))
    np.testing.assert_array_equal(masses(job, as_set(pictures, (12, 12)), "native"), masses(job, plain, "native"))


@pytest.mark.parametrize("memory", [0, 1 << 30])
def test_blocks_with_several_shapes_merge_exactly(memory):
    rng = np.random.default_rng(0)
    shapes = [(9, 4), (5, 7), (9, 4), (6, 6), (5, 7), (3, 8)]
    pictures = [rng.uniform(-1, 1, (2, *shape)).astype(np.float32) for shape in shapes]
    job = job_of(pictures[3])
    found = masses(job, as_set(pictures, (10, 10)), "blocked", memory)
    np.testing.assert_allclose(found, by_the_formula(job, pictures), rtol=1e-5)


@pytest.mark.parametrize("channels", [3, 32])
def test_a_frame_changes_no_precision(monkeypatch, channels):
    """What lies beside pictures is large, and must not make the engine believe that they are."""
    rng = np.random.default_rng(0)
    pictures = [rng.uniform(-1, 1, (channels, *shape)).astype(np.float32) for shape in ((20, 30), (30, 20), (24, 24))]
    chosen, real = [], native.query_terms

    def recorded(*arguments):
        chosen.append(real(*arguments))
        return chosen[-1]

    monkeypatch.setattr(native, "query_terms", recorded)
    job = job_of(pictures[0], signal=0.6, k=100)
    found = masses(job, as_set(pictures, (40, 40)), "native")
    assert [terms.dtype for terms in chosen] == [np.float32] * 3
    np.testing.assert_allclose(found, by_the_formula(job, pictures), rtol=1e-5, atol=1e-7)


def test_what_would_be_painted_has_nothing_from_beside_a_picture():
    rng = np.random.default_rng(0)
    pictures = [rng.uniform(-1, 1, (3, *shape)).astype(np.float32) for shape in ((9, 5), (5, 9))]
    for engine in ENGINES:
        work = LocalWork(get_engine(Compute(engine=engine, threads=1)), as_set(pictures, (9, 9)), Budget(1 << 30))
        with work.compared(job_of(pictures[0]), colours=True) as blocks:
            colours = sum((part[..., None, None] * block.colour).sum(axis=2) for _, part, block in blocks)
        assert np.abs(colours).max() <= 1


def test_patches_over_a_border_are_refused():
    pictures = [np.zeros((1, 5, 6), np.float32), np.zeros((1, 6, 5), np.float32)]
    with pytest.raises(PatchtraceError, match="border='valid'"):
        masses(job_of(pictures[0], border="match"), as_set(pictures, (6, 6)))
