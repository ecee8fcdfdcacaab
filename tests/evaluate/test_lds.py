"""LDS: against a case by hand, against SciPy, and against synthetic truth whose correlation is known."""

from __future__ import annotations

import sys
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from patchtrace import Attribution, PatchtraceError
from patchtrace.evaluate.lds import _resampled, compare, lds
from patchtrace.evaluate.truth import make_subsets

#: The function of this name hides the module of this name.
MODULE = sys.modules["patchtrace.evaluate.lds"]


def linear(rng, *, images=200, count=64, queries=50, correlation=0.5):
    """Scores, subsets, and losses that are minus the sum of scores and normal noise: (scores, subsets, losses).

    The noise has the size that gives the Pearson correlation asked for; sums over many images are normal too.
    """
    scores = rng.standard_normal((queries, images))
    subsets = make_subsets(images, count, seed=int(rng.integers(2**31)))
    spread = np.sqrt(images / 4 * scores.var(axis=1, ddof=1))
    noise = spread * np.sqrt(1 / correlation**2 - 1) * rng.standard_normal((count, queries))
    return scores, subsets, noise - subsets @ scores.T


def expected_spearman(pearson, count):
    """Of a sample of a bivariate normal: Kendall's tau and the rank correlation of all, mixed."""
    of_all, tau = 6 / np.pi * np.arcsin(pearson / 2), 2 / np.pi * np.arcsin(pearson)
    return (3 * tau + (count - 2) * of_all) / (count + 1)


# -- the number -----------------------------------------------------------------------------------------


def test_a_case_by_hand():
    scores = [[1, 2, 4, 8]]
    subsets = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=bool)
    # predicted: -3, -5, -6, -12, so ranks 4, 3, 2, 1; losses have ranks 3, 4, 2, 1; squared differences 1, 1, 0, 0
    losses = [[0.7], [0.9], [0.5], [0.1]]
    assert lds(scores, subsets, losses).mean == pytest.approx(1 - 6 * 2 / (4 * (16 - 1)))


def test_equal_losses_share_their_mean_rank():
    scores = [[1, 2, 4, 8]]
    subsets = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 1, 0], [0, 0, 1, 1]], dtype=bool)
    # ranks 4, 3, 2, 1 and 3.5, 3.5, 2, 1, about their mean: 1.5 * 1 + 0.5 * 1 + 0.5 * 0.5 + 1.5 * 1.5 = 4.5
    found = lds(scores, subsets, [[0.9], [0.9], [0.5], [0.1]]).mean
    assert found == pytest.approx(4.5 / np.sqrt(5 * 4.5))


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.booleans())
def test_each_query_has_the_correlation_that_scipy_has(seed, coarse):
    rng = np.random.default_rng(seed)
    scores, subsets = rng.integers(0, 3 if coarse else 10**6, (3, 9)), make_subsets(9, 12, fraction=0.4, seed=1)
    losses = rng.integers(0, 4 if coarse else 10**6, (12, 3))
    losses[0], losses[1] = 0, 9  # not all the same
    sums = subsets @ scores.T
    found = lds(scores, subsets, losses, resamples=2)
    for query in range(3):
        if np.ptp(sums[:, query]):
            expected = spearmanr(-sums[:, query], losses[:, query])
            assert found.per_query[query] == pytest.approx(expected.statistic, abs=1e-12)
            assert found.p_values[query] == pytest.approx(expected.pvalue, abs=1e-9)


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.9])
def test_synthetic_truth_comes_out(correlation):
    count, queries = 64, 200
    data = linear(np.random.default_rng(1), correlation=correlation, count=count, queries=queries)
    sampling_error = 1.06 * (1 - correlation**2) / np.sqrt(count * queries)
    assert lds(*data, resamples=2).mean == pytest.approx(expected_spearman(correlation, count), abs=4 * sampling_error)


def test_scores_that_are_dealt_to_other_images_give_about_nothing():
    scores, subsets, losses = linear(np.random.default_rng(2), correlation=0.9)
    dealt = np.random.default_rng(3).permuted(scores, axis=1)
    found = lds(dealt, subsets, losses, resamples=500)
    assert abs(found.mean) < 4 / np.sqrt(64 * 50)
    assert found.interval[0] < 0 < found.interval[1]
    assert found.p_value > 0.05


def test_the_sign_more_of_what_helps_means_less_loss():
    scores, subsets, losses = linear(np.random.default_rng(4), correlation=0.9)
    found, turned = (lds(sign * scores, subsets, losses, resamples=500) for sign in (1, -1))
    assert found.mean > 0.8
    assert turned.mean == pytest.approx(-found.mean)
    assert turned.interval == pytest.approx((-found.interval[1], -found.interval[0]))
    assert turned.p_value == found.p_value < 0.001


@settings(max_examples=40)
@given(st.integers(0, 2**31), st.floats(0.1, 10), st.floats(-5, 5))
def test_it_only_knows_the_order_of_losses_and_sums(seed, factor, offset):
    scores, subsets, losses = linear(np.random.default_rng(seed), images=20, count=10, queries=3)
    once = lds(scores, subsets, losses, resamples=20)
    # subsets have one size, so that an offset of the scores moves all sums alike
    again = lds(factor * scores + offset, subsets, np.exp(losses / 10), resamples=20)
    np.testing.assert_allclose(again.per_query, once.per_query, atol=1e-12)
    assert again.interval == pytest.approx(once.interval)


@pytest.mark.parametrize("constant", [0.1, -1 / 3, 0.0])
def test_scores_or_losses_that_do_not_vary_predict_nothing(constant):
    # not even when sums of equal scores differ in their last digit by the order in which they are added up
    subsets = make_subsets(1000, 32)
    losses = np.random.default_rng(5).random((32, 2))
    found = lds(np.full((2, 1000), constant), subsets, losses)
    assert found.per_query.tolist() == [0, 0]
    assert found.p_values.tolist() == [1, 1]
    assert found.interval == (0, 0)
    assert found.p_value == 1
    assert lds(np.random.default_rng(6).random((2, 1000)), subsets, np.full((32, 2), constant)).mean == 0


def test_an_attribution_is_as_good_as_its_scores():
    scores, subsets, losses = linear(np.random.default_rng(6), images=10, queries=4)
    scores = np.abs(scores).astype(np.float32)
    result = Attribution(scores, scores, tuple("pqrs"), tuple("abcdefghij"), "x")
    assert lds(result, subsets, losses).mean == lds(scores, subsets, losses).mean


# -- how sure it is -------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 2**31))
def test_ranks_in_a_resample_are_those_of_its_rows_written_out(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 9))
    predicted = [rng.integers(0, 5, (count, 3)).astype(float) for _ in range(2)]
    losses = rng.random((count, 3))
    counts = rng.multinomial(count, np.full(count, 1 / count), size=6)
    means = _resampled(predicted, losses, counts)
    for method, values in enumerate(predicted):
        for resample, times in enumerate(counts):
            rows = np.repeat(np.arange(count), times)
            pairs = [(values[rows, q], losses[rows, q]) for q in range(3)]
            expected = np.mean([spearmanr(*both).statistic if all(map(np.ptp, both)) else 0.0 for both in pairs])
            assert means[method, resample] == pytest.approx(expected, abs=1e-12)


def test_resamples_in_pieces_are_the_same(monkeypatch):
    data = linear(np.random.default_rng(7), images=20, count=12, queries=3)
    once = lds(*data, resamples=100)
    monkeypatch.setattr(MODULE, "PIECE", 70)
    again = lds(*data, resamples=100)
    assert (again.interval, again.p_value) == (once.interval, once.p_value)


def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch):
    monkeypatch.setattr(MODULE, "PERMUTATIONS", 1)  # p-values are not looked at here
    rng, correlation, inside = np.random.default_rng(8), 0.4, 0
    truth = 6 / np.pi * np.arcsin(correlation / 2)
    for _ in range(150):
        low, high = lds(*linear(rng, images=100, queries=8, correlation=correlation), resamples=200).interval
        inside += low <= truth <= high
    assert 0.90 <= inside / 150 <= 0.99


def test_more_subsets_give_a_narrower_interval():
    few, many = (lds(*linear(np.random.default_rng(9), count=count), resamples=500) for count in (16, 144))
    assert few.error == pytest.approx(3 * many.error, rel=0.5)
    assert many.interval[1] - many.interval[0] < few.interval[1] - few.interval[0]


def test_the_p_value_of_the_mean_is_that_of_all_permutations():
    scores, subsets, losses = linear(np.random.default_rng(12), images=12, count=6, queries=2, correlation=0.6)
    sums = -(subsets @ scores.T)

    def mean(order):
        return np.mean([spearmanr(sums[:, q], losses[list(order), q]).statistic for q in range(2)])

    all_means = np.array([mean(order) for order in permutations(range(6))])
    exact = (np.abs(all_means) >= abs(all_means[0]) - 1e-12).mean()
    assert 0.02 < exact < 0.98
    assert lds(scores, subsets, losses).p_value == pytest.approx(exact, abs=0.02)


def test_the_error_over_queries_is_that_of_a_mean():
    scores, subsets, losses = linear(np.random.default_rng(11))
    found = lds(scores, subsets, losses, resamples=2)
    assert found.query_error == pytest.approx(found.per_query.std(ddof=1) / np.sqrt(50))
    assert np.isnan(lds(scores[:1], subsets, losses[:, :1]).query_error)


def test_the_same_seed_gives_the_same_interval():
    data = linear(np.random.default_rng(12), queries=3)
    assert lds(*data).interval == lds(*data).interval != lds(*data, seed=1).interval


# -- several methods ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rivals():
    """Two methods that see nearly the same, the second a little worse, and one by chance."""
    rng = np.random.default_rng(13)
    scores, subsets, losses = linear(rng, correlation=0.4)
    worse = scores + 0.5 * rng.standard_normal(scores.shape)
    return compare({"good": scores, "worse": worse, "chance": rng.random(scores.shape)}, subsets, losses, resamples=500)


def test_a_paired_interval_is_narrower_than_two_apart(rivals):
    difference = rivals.difference("good", "worse")
    apart = np.hypot(rivals.results["good"].error, rivals.results["worse"].error)
    paired = (difference.interval[1] - difference.interval[0]) / 4
    assert paired < 0.8 * apart
    assert rivals.results["good"].interval[0] < rivals.results["worse"].interval[1]  # apart, nobody could tell
    assert difference.interval[0] > 0
    assert difference.p_value < 0.05


def test_a_comparison_has_the_numbers_of_each_method_alone(rivals):
    scores, subsets, losses = linear(np.random.default_rng(13), correlation=0.4)
    alone = lds(scores, subsets, losses, resamples=500)
    assert rivals.results["good"].interval == alone.interval
    assert str(rivals.results["good"]) == str(alone)
    assert rivals.best == "good"


def test_a_method_differs_from_itself_by_nothing(rivals):
    assert rivals.difference("good", "good") == (0, (0, 0), 1)
    forth, back = rivals.difference("good", "chance"), rivals.difference("chance", "good")
    assert forth.mean == -back.mean > 0.2
    assert forth.p_value == back.p_value < 1e-6


def test_rows_hold_the_same_numbers(rivals):
    best, _, chance = rivals.rows()
    assert best["against"] == chance["against"] == "good"
    assert chance["lds"] == rivals.results["chance"].mean
    assert (chance["difference_low"], chance["difference_high"]) == rivals.difference("chance", "good").interval
    assert rivals.rows(against="chance")[0]["difference"] == rivals.difference("good", "chance").mean


def test_progress_ends_at_its_total():
    seen = []
    scores, subsets, losses = linear(np.random.default_rng(14), queries=4)
    compare({"a": scores}, subsets, losses, progress=lambda *now: seen.append(now))
    assert seen[-1] == (4, 4)


# -- what is wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"scores": np.ones((3, 4))}, r"shape \(3, 4\): use \(2, 4\)"),
        ({"scores": [[1, 2, np.nan, 4]] * 2}, "finite"),
        ({"scores": [["a"] * 4] * 2}, "finite"),
        ({"subsets": np.ones((5, 3), bool)}, r"use \(2, 3\)"),
        ({"subsets": 2 * np.ones((5, 4))}, "0 and 1"),
        ({"subsets": np.ones(4, bool)}, r"\(subsets, images\)"),
        ({"losses": np.ones((4, 2))}, "one row of losses for each subset"),
        ({"losses": np.full((5, 2), np.inf)}, "subset 0 on query 0 is inf"),
        ({"losses": np.ones(5)}, r"\(subsets, queries\)"),
        ({"subsets": np.ones((2, 4), bool), "losses": np.ones((2, 2))}, "at least 3"),
        ({"resamples": 1}, "resamples is 1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_what_does_not_fit_is_refused(change, says):
    right = {"scores": np.ones((2, 4)), "subsets": np.ones((5, 4), bool), "losses": np.ones((5, 2))}
    assert lds(**right).mean == 0
    with pytest.raises(PatchtraceError, match=says):
        lds(**{**right, **change})


def test_an_error_names_the_method(rivals):
    with pytest.raises(PatchtraceError, match="scores of second"):
        compare({"first": np.ones((2, 4)), "second": np.ones((2, 5))}, np.ones((5, 4), bool), np.ones((5, 2)))
    with pytest.raises(PatchtraceError, match="at least one method"):
        compare({}, np.ones((5, 4), bool), np.ones((5, 2)))
    with pytest.raises(PatchtraceError, match="good, worse, chance"):
        rivals.difference("good", "nobody")
