"""The shortlist: approximate, and by how much; exact where it can be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from patchtrace import NDA, Compute, Level, Recipe, Scale
from patchtrace.compute import Budget
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.nda import query_run
from patchtrace.nda.coarse import MEASURED_RECALL, coarse_recipe, measured_recall
from patchtrace.nda.plan import Plan
from patchtrace.nda.shortlist import NDAShortlist
from patchtrace.progress import Watch

RECIPE = Recipe((Level(100, (Scale(3), Scale(4, pool=2))), Level(300, (Scale(9),))), draws=2)


def smooth(count, seed=0, side=32):
    """Pictures that look a little like pictures: noise at several scales."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((count, side, side, 3))
    for size in (2, 4, 8, 16, 32):
        coarse = rng.normal(0, 30 if size < 16 else 6, (count, size, size, 3))
        pixels += coarse.repeat(side // size, axis=1).repeat(side // size, axis=2)
    return np.clip(pixels + 128, 0, 255).astype(np.uint8)


TRAIN = smooth(80)
QUERIES = np.clip(
    TRAIN[[7, 30]].astype(int) + np.random.default_rng(1).integers(-20, 20, (2, 32, 32, 3)), 0, 255
).astype(np.uint8)


@pytest.fixture(scope="module")
def exact():
    return NDA(RECIPE).fit(TRAIN).attribute(QUERIES)


@pytest.fixture(scope="module")
def listed():
    return NDAShortlist(16, RECIPE).fit(TRAIN).attribute(QUERIES)


def test_a_shortlist_of_all_is_exact(exact):
    whole = NDAShortlist(80, RECIPE).fit(TRAIN).attribute(QUERIES)
    np.testing.assert_array_equal(whole.scores, exact.scores)
    assert "shortlist" not in whole.settings
    assert whole.nda.shortlist is None
    assert whole.method == "nda"


def test_the_best_are_found_and_their_shares_are_near(exact, listed):
    for query, source in enumerate((7, 30)):
        assert listed.top(1)[query][0].index == source
        assert listed.shares[query][source] == pytest.approx(exact.shares[query][source], rel=0.25)
        scored = np.argsort(-listed.shares[query])[:16]
        np.testing.assert_allclose(listed.shares[query][scored], exact.shares[query][scored], rtol=0.5)


def test_if_all_others_are_in_the_sample_the_shortlist_is_exact(exact):
    found = NDAShortlist(16, RECIPE).fit(TRAIN).attribute(QUERIES)
    for query in range(2):
        scored = np.argsort(-found.scores[query])[:16]
        np.testing.assert_allclose(found.scores[query][scored], exact.scores[query][scored], rtol=1e-4)


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["patchtrace", "cifar", "celeba"])
def test_the_coarse_recipe_is_the_same_one_at_another_size(name, factor):
    recipe = Recipe.preset(name)
    coarse = coarse_recipe(recipe, factor)
    assert coarse.draws == 1
    assert len(coarse.levels) == len(recipe.levels)
    for small, level in zip(coarse.levels, recipe.levels, strict=True):
        noises = [sigma / signal for signal, sigma in (recipe.noise_at(level.t), coarse.noise_at(small.t))]
        assert noises[0] / noises[1] == pytest.approx(factor, rel=0.05)
        largest = max(scale.patch for scale in level.scales)
        assert abs(max(scale.patch for scale in small.scales) - largest / factor) <= 1
        weights = [sum(weight for _, weight in one.weighted_scales()) for one in (small, level)]
        assert weights == pytest.approx([1, 1])


def test_levels_that_fall_together_are_one():
    near = Recipe((Level(1, (Scale(5),)), Level(2, (Scale(5, weight=2), Scale(9))), Level(3, (Scale(9),))))
    coarse = coarse_recipe(near, 4)
    assert [(level.t, [scale.patch for scale in level.scales]) for level in coarse.levels] == [(0, [1, 3])]


def test_an_interrupted_run_keeps_its_shortlist(listed, tmp_path, monkeypatch):
    monkeypatch.setattr("patchtrace.nda.checkpoint.Checkpoint.due", lambda self: True)
    chosen = []
    choose = query_run.QueryRun._choose
    monkeypatch.setattr(query_run.QueryRun, "_choose", lambda run, clock: (chosen.append(1), choose(run, clock))[1])

    def stop(done, total):
        if done > 0.9 * total:
            raise KeyboardInterrupt

    method = NDAShortlist(16, RECIPE, checkpoint=tmp_path).fit(TRAIN)
    with pytest.raises(KeyboardInterrupt):
        method.attribute(QUERIES[:1], progress=stop)
    again = method.attribute(QUERIES[:1])
    np.testing.assert_array_equal(again.scores[0], listed.scores[0])
    assert len(chosen) == 1


def test_it_says_what_it_is(listed):
    assert listed.method == "nda-shortlist"
    facts = listed.nda.shortlist
    assert (facts.images, facts.of) == (16, 80)
    assert facts.sampled == 64
    assert facts.coarse == coarse_recipe(RECIPE, 4, draws=2)
    assert facts.recall == measured_recall(0.2)
    assert listed.query_ids == ("0", "1")
    assert listed.nda.ended == ["fixed", "fixed"]


def test_shares_of_all_images_make_up_one(listed):
    total = listed.shares.sum(axis=1)
    assert (total <= 1 + 1e-5).all()
    for query in range(2):
        order = np.argsort(-listed.shares[query], kind="stable")
        inside = set(np.flatnonzero(listed.nda.chances[query] > 0))
        assert inside <= set(order[:16])


def test_an_exponent_ranks_as_shares_do():
    found = NDAShortlist(10, replace(RECIPE, exponent=0.5)).fit(TRAIN[:40]).attribute(QUERIES[:1])
    order = np.argsort(-found.shares[0], kind="stable")
    assert (np.diff(found.scores[0][order]) <= 1e-6).all()


def test_it_goes_on_after_a_stop(tmp_path, listed):
    again = [NDAShortlist(16, RECIPE, checkpoint=tmp_path).fit(TRAIN).attribute(QUERIES) for _ in range(2)]
    np.testing.assert_array_equal(again[0].scores, listed.scores)
    np.testing.assert_array_equal(again[1].scores, listed.scores)
    assert len(list(tmp_path.iterdir())) == 2


def test_progress_and_finished_queries():
    seen, told = [], []
    watch = Watch(lambda *state: seen.append(state))
    watch.finished = told.append
    NDAShortlist(16, RECIPE).fit(TRAIN).attribute(QUERIES, progress=watch)
    assert seen[-1] == (1000, 1000)
    assert seen == sorted(seen)
    assert [one.query_ids for one in told] == [("0",), ("1",)]


@pytest.mark.parametrize("shortlist", [0, -3])
def test_a_shortlist_of_nobody_is_refused(shortlist):
    with pytest.raises(PatchtraceError, match="shortlist"):
        NDAShortlist(shortlist, RECIPE).fit(TRAIN)


def test_small_pictures_are_held_where_there_is_room_for_them(listed, monkeypatch):
    cascade = NDAShortlist(16, RECIPE).fit(TRAIN)
    plan, budget = Plan.of(RECIPE, (32, 32)), Compute().budget
    small = cascade._small(plan, cascade.train_, budget)
    assert isinstance(small.pixels, np.ndarray)
    on_a_cluster = NDAShortlist(16, RECIPE, compute=Compute(cluster="local:2")).fit(TRAIN)
    assert not isinstance(on_a_cluster._small(plan, cascade.train_, budget).pixels, np.ndarray)
    monkeypatch.setattr(Budget, "cached", small.pixels.nbytes - 1)
    lazy = cascade._small(plan, cascade.train_, budget)
    assert not isinstance(lazy.pixels, np.ndarray)
    np.testing.assert_array_equal(NDAShortlist(16, RECIPE).fit(TRAIN).attribute(QUERIES).scores, listed.scores)


def test_the_recall_that_is_told_is_the_one_that_was_measured():
    kept = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "recall.json"
    measured = json.loads(kept.read_text())["coarse pass"]
    assert {float(part): tuple(found) for part, found in measured.items()} == MEASURED_RECALL
    shortest = min(MEASURED_RECALL)
    assert measured_recall(shortest * 0.99) is None
    assert measured_recall(shortest * 1.01).best_100 == MEASURED_RECALL[shortest][1]


def test_smaller_pictures_are_means_read_as_they_are_needed():
    images = ImageSet.open(TRAIN[:6])
    smaller = images.smaller(2)
    means = TRAIN[:6].reshape(6, 16, 2, 16, 2, 3).mean(axis=(2, 4)).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(smaller.pixels[:], np.rint(means))
    assert smaller.shape == (3, 16, 16)
    np.testing.assert_array_equal(smaller.subset([4, 1]).pixels[:], np.rint(means)[[4, 1]])
    np.testing.assert_array_equal(smaller.block(2, 4), np.rint(means)[2:4].astype(np.float32) / np.float32(127.5) - 1)
    assert smaller.fingerprint() != images.fingerprint()
    with pytest.raises(PatchtraceError, match="smaller"):
        smaller.smaller(2)
