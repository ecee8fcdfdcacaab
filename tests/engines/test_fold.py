"""Blocks merge exactly, whatever their size and order, in memory or through a file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from engines.strategies import cases
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from patchtrace import Compute
from patchtrace.compute import Budget
from patchtrace.engines import Comparison, Job, LocalWork, NoisyQuery, Question, fold, get_engine
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.views import View

ROOMY = 1 << 30


def as_set(block):
    return ImageSet(block, tuple(map(str, range(len(block)))))


def masses(case, block=None, views=(), memory=ROOMY, engine="reference", progress=None):
    train = as_set(case.block if block is None else block)
    job = Job(case.query, replace(case.comparison, views=views), progress)
    (found,) = LocalWork(get_engine(Compute(engine=engine)), train, Budget(memory)).masses([job])
    return found


@given(cases(most_images=6))
def test_one_image_at_a_time_equals_all_at_once(case):
    # a budget of nothing means blocks of one image, and every share through the temporary file
    np.testing.assert_allclose(masses(case, memory=0), masses(case), rtol=1e-5, atol=1e-9)


def test_a_budget_of_nothing_does_use_the_file(monkeypatch):
    written = []

    class Recording(fold.Blocks):
        def close(self):
            written.append(self._file.seek(0, 2))
            super().close()

    monkeypatch.setattr(fold, "Blocks", Recording)
    rng = np.random.default_rng(0)
    block = rng.uniform(-1, 1, (4, 1, 5, 5)).astype(np.float32)
    query = NoisyQuery.of(block[0], rng.standard_normal((1, 1, 5, 5)), 0.9, 0.4)
    for memory in (0, ROOMY):
        work = LocalWork(get_engine(Compute(engine="blocked")), as_set(block), Budget(memory))
        list(work.masses([Job(query, Comparison(3, 1, "mean", "zero", 5))]))
    assert written == [4 * (25 * 4 + 25 * 8), 0]  # four blocks of one image: its shares, and a normaliser


@given(cases(most_images=6), st.randoms(use_true_random=False))
def test_permuting_images_permutes_masses(case, random):
    order = list(range(len(case.block)))
    random.shuffle(order)
    np.testing.assert_allclose(masses(case, case.block[order], memory=0), masses(case)[:, order], rtol=1e-5, atol=1e-9)


@given(cases())
def test_a_mirror_is_one_more_image_whose_mass_goes_to_its_image(case):
    both = np.concatenate([case.block, case.block[..., ::-1]])
    separate = masses(case, both)
    expected = separate[:, : len(case.block)] + separate[:, len(case.block) :]
    np.testing.assert_allclose(masses(case, views=(View(mirrored=True),)), expected, rtol=1e-5, atol=1e-9)


@given(cases())
def test_a_second_copy_takes_its_part_of_every_patch(case):
    """Without the cut at k, a patch share s becomes s / (1 + s) for each copy, and r / (1 + s) for any other."""
    case = case._replace(comparison=replace(case.comparison, k=10_000))
    once = get_engine(Compute(engine="reference")).compare(Question(*case, memory=ROOMY))
    twice = get_engine(Compute(engine="reference")).compare(
        Question(*case._replace(block=np.concatenate([case.block, case.block[:1]])), memory=ROOMY)
    )
    share = once.share
    expected = share / (1 + share[:, :, :1])
    np.testing.assert_allclose(twice.share[:, :, :-1], expected, rtol=1e-8)
    np.testing.assert_allclose(twice.share[:, :, -1], expected[:, :, 0], rtol=1e-8)


@given(cases())
def test_doubling_the_whole_set_halves_every_mass(case):
    doubled = masses(case, np.concatenate([case.block, case.block]))
    np.testing.assert_allclose(2 * doubled[:, : len(case.block)], masses(case), rtol=1e-5, atol=1e-9)


@given(cases())
def test_masses_sum_to_the_number_of_patches_without_the_cut_and_to_less_with_it(case):
    patches = case.comparison.patches(*case.block.shape[2:])
    assert (masses(case).sum(axis=1) <= patches * (1 + 1e-6)).all()
    whole = case._replace(comparison=replace(case.comparison, k=10_000))
    np.testing.assert_allclose(masses(whole).sum(axis=1), patches, rtol=1e-6)


@given(cases(most_images=4))
def test_normalisers_of_blocks_add_up(case):
    engine = get_engine(Compute(engine="blocked"))
    whole = engine.compare(Question(*case, memory=ROOMY)).log_normaliser
    singles = [
        engine.compare(Question(*case._replace(block=case.block[n : n + 1]), memory=ROOMY)).log_normaliser
        for n in range(len(case.block))
    ]
    np.testing.assert_allclose(logsumexp(singles, axis=0), whole, rtol=1e-6, atol=1e-4)


@settings(max_examples=20)
@given(cases(most_images=6))
def test_progress_counts_every_image_once_for_each_version(case):
    seen = []
    masses(case, memory=0, progress=seen.append)
    assert sum(seen) == len(case.block) * len(case.query)


@pytest.mark.parametrize("patchwork", [False, True])
@pytest.mark.parametrize("views", [(), (View(mirrored=True),), (View(zoom=1.5),)])
@pytest.mark.parametrize("size", [(9, 8), (16, 15)])  # the first is small enough for float64 throughout
def test_no_bit_depends_on_threads_or_on_what_goes_together(monkeypatch, patchwork, views, size):
    """Blocks are the same for everybody; how many versions are compared at once is not."""
    rng = np.random.default_rng(1)
    train = as_set(rng.uniform(-1, 1, (60, 3, *size)).astype(np.float32))
    noise = rng.standard_normal((6, 3, *size)).astype(np.float32)
    query = NoisyQuery.of(train.pixels[7], noise, 0.8, 0.6, patchwork=patchwork)
    comparison = Comparison(3, 1, "orthonormal", "match", 5, views)
    monkeypatch.setattr(fold, "MOST_IMAGES", 16)
    cuts, found = set(), []
    scale = size[0] * size[1] / 72
    for threads, memory in ((1, ROOMY), (2, ROOMY), (3, int(scale * 600_000)), (1, int(scale * 400_000))):
        engine = get_engine(Compute(engine="native", threads=threads))
        work, job = LocalWork(engine, train, Budget(memory)), Job(query, comparison)
        cuts.add(work.cut(job))
        found.extend(work.masses([job]))
    assert {images for images, _, _ in cuts} == {16}
    assert len({together for _, _, together in cuts}) == 3
    for masses in found[1:]:
        np.testing.assert_array_equal(masses, found[0])


def test_an_unknown_engine_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(PatchtraceError, match="blocked"):
        get_engine(Compute(engine="warp"))


@given(cases(most_images=6))
def test_a_rest_of_all_others_gives_what_a_comparison_with_all_gives(case):
    """Where each image of the sample stands for itself alone, nothing is estimated."""
    some, others = case.block[: len(case.block) // 2 + 1], case.block
    rest = fold.Rest(as_set(others), np.ones(len(others)))
    engine = get_engine(Compute(engine="reference"))
    job = Job(case.query, case.comparison)
    sampled = fold.sampled_masses(LocalWork(engine, as_set(some), Budget(ROOMY)), job, [rest] * len(case.query))
    whole = masses(case, np.concatenate([some, others]))
    np.testing.assert_allclose(sampled.masses, whole[:, : len(some)], rtol=1e-5, atol=1e-9)
    all_patches = case._replace(comparison=replace(case.comparison, k=10**6))
    everything = masses(all_patches, np.concatenate([some, others]))
    np.testing.assert_allclose(np.stack(sampled.seen), everything[:, len(some) :], rtol=1e-5, atol=1e-9)


def bias_of_samples(size, unseen):
    """Of 2,000 others a few hold most: how far the part of the listed ones is off, corrected and plain."""
    rng = np.random.default_rng(0)
    others = rng.lognormal(0, 2.5, 2000)
    listed = others.sum() / 4
    drawn = np.stack([2000 / size * rng.choice(others, size, replace=False) for _ in range(2000)])
    groups = drawn.reshape(1, 2000, 10, -1).sum(axis=-1) / listed  # as 2,000 patches of one version
    of_listed = np.full((1, 2000, 1), 1e-300)
    found, _ = fold.part_of_listed(np.log(np.concatenate([of_listed, groups], axis=-1)), unseen)
    plain = 1 / (1 + groups.sum(axis=-1))
    truth = listed / (listed + others.sum())
    return found.mean() / truth - 1, plain.mean() / truth - 1


def test_a_sample_is_hardly_biased_where_one_over_its_sum_would_be():
    bias, plain_bias = bias_of_samples(200, unseen=0.9)
    assert plain_bias > 0.05  # what is corrected is there
    assert abs(bias) < 0.3 * plain_bias


def test_a_sample_of_half_the_others_is_corrected_by_half_as_much():
    bias, _ = bias_of_samples(1000, unseen=0.5)
    too_much, _ = bias_of_samples(1000, unseen=1)
    assert abs(bias) < 0.01 < abs(too_much)


def test_the_part_that_a_sample_has_not_seen():
    cards = as_set(np.zeros((5, 3, 4, 4), np.float32))
    assert fold.Rest(cards, np.array([1.0, 4.0, 4.0, 8.0, 8.0])).unseen == pytest.approx(1 - 4 / 24)
    assert fold.Rest(cards, np.ones(5)).unseen == 0


@pytest.mark.parametrize("engine", ["blocked", "reference", "native"])
def test_pictures_that_need_far_more_memory_than_there_is_are_refused_with_what_is_enough(engine):
    chosen, large = get_engine(Compute(engine=engine)), np.zeros((1, 3, 1000, 1000), np.float32)
    comparison = Comparison(51, 1, "orthonormal", "match", 100)
    work = LocalWork(chosen, as_set(large), Budget(10**9))
    job = Job(NoisyQuery.of(large[0], large, 0.5, 0.5), comparison)
    with pytest.raises(PatchtraceError, match=r"1000 x 1000 need .* GB at once.*memory='[\d.]+GB'"):
        next(work.masses([job]))
    needed = chosen.least_bytes(comparison, (3, 1000, 1000))
    fold.check_room(chosen, [comparison], (3, 1000, 1000), Budget(2 * needed + 4))


def test_small_pictures_are_compared_under_any_budget():
    for engine in ("blocked", "native"):
        comparison = Comparison(5, 1, "orthonormal", "match", 100)
        fold.check_room(get_engine(Compute(engine=engine)), [comparison], (3, 64, 64), Budget(0))


VIEWS = (View(mirrored=True), View(zoom=1.5))


@given(cases(most_images=3), st.sampled_from(["reference", "blocked", "native", "torch", "convolution"]))
def test_views_are_further_images_whose_masses_go_to_their_image(case, engine):
    """The oracle of any engine's views: the reference, with each of their pictures as an image of the set."""
    size = case.block.shape[2:]
    assume(sum(len(view.crops(size, case.comparison.patch)) for view in VIEWS) <= 20)
    crops = case._replace(comparison=replace(case.comparison, views=VIEWS)).comparison.crops(*size)
    separate = masses(case, np.concatenate([crop.of(case.block) for crop in crops]))
    expected = separate.reshape(len(separate), len(crops), -1).sum(axis=1)
    found = masses(case, views=VIEWS, engine=engine)
    tolerance = 3e-5 if engine == "convolution" else 1e-5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=1e-6 * expected.max())


@given(cases(most_images=3))
def test_colours_of_views_go_to_their_image(case):
    work, query = LocalWork(get_engine(Compute(engine="reference")), as_set(case.block), Budget(ROOMY)), case.query
    crops = replace(case.comparison, views=VIEWS[:1]).crops(*case.block.shape[2:])
    all_of_them = work._replace(train=as_set(np.concatenate([crop.of(case.block) for crop in crops])))
    jobs = Job(query, replace(case.comparison, views=VIEWS[:1])), Job(query, case.comparison)
    found = []
    for one, job in zip((work, all_of_them), jobs, strict=True):
        with one.compared(job, colours=True) as blocks:
            found.append(np.concatenate([part[..., None, None] * block.colour for _, part, block in blocks], axis=2))
    count = len(case.block)
    np.testing.assert_allclose(found[0], found[1][:, :, :count] + found[1][:, :, count:], rtol=1e-5, atol=1e-7)
