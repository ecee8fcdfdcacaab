"""Means over draws, their errors, and where the next draws go."""

from __future__ import annotations

import numpy as np
import pytest

from patchtrace.nda.draws import Estimate, Moments, chance_of_top, estimate, next_pairs

RNG = np.random.default_rng(0)


def moments(values, pairs=True):
    """Of draws (draws, train), in pairs or one by one."""
    found = Moments.of(values.shape[1])
    for first in range(0, len(values), 2 if pairs else 1):
        found.add(values[first : first + (2 if pairs else 1)])
    return found


def draws(count, means, spread=0.2, seed=0):
    means = np.asarray(means, dtype=float)
    return means * (1 + spread * np.random.default_rng(seed).standard_normal((count, len(means))))


@pytest.mark.parametrize(("count", "pairs"), [(1, True), (2, True), (7, True), (8, True), (5, False)])
def test_the_mean_is_over_draws(count, pairs):
    values = draws(count, [1.0, 2.0, 3.0])
    found = moments(values, pairs)
    np.testing.assert_allclose(found.mean, values.mean(axis=0))
    assert (found.draws == count).all()


def test_a_pair_may_come_in_two_halves():
    values = draws(6, [1.0, 2.0, 3.0])
    at_once, halves = moments(values), Moments.of(3)
    halves.add(values[:1])
    halves.complete(values[1], slice(None))
    for first in (2, 4):
        halves.add(values[first : first + 2])
    for name in ("mean", "squares", "inner", "samples", "draws"):
        np.testing.assert_allclose(getattr(halves, name), getattr(at_once, name), err_msg=name)


def test_the_variance_of_pairs_is_that_of_their_means():
    values = draws(400, np.ones(200))
    samples = values.reshape(200, 2, -1).mean(axis=1)
    found = moments(values)
    np.testing.assert_allclose(found.squares / 199, samples.var(axis=0, ddof=1))
    assert found.variance().mean() == pytest.approx(0.2**2 / 2, rel=0.02)


def test_single_draws_tell_the_same_error_as_pairs_of_independent_ones():
    values = draws(300, np.ones(100))
    singles, pairs = (estimate([moments(values, in_pairs)]).error.mean() for in_pairs in (False, True))
    assert singles == pytest.approx(0.2 / np.sqrt(300), rel=0.02)
    assert pairs == pytest.approx(singles, rel=0.05)


def test_one_pair_tells_something_and_one_draw_nothing():
    values = draws(2, np.ones(500))
    assert estimate([moments(values)]).error.mean() == pytest.approx(0.2 / np.sqrt(2), rel=0.2)
    unknown = estimate([moments(values), moments(values[:1])])
    assert np.isnan(unknown.error).all()
    assert np.isfinite(unknown.mean).all()
    assert np.isnan(chance_of_top(unknown, 3)).all()


def test_errors_of_levels_add_as_squares():
    one, two = moments(draws(40, np.ones(300), 0.3)), moments(draws(40, np.ones(300), 0.4, seed=1))
    error = estimate([one, two]).error.mean()
    assert error == pytest.approx(np.hypot(0.3, 0.4) / 2 / np.sqrt(40), rel=0.05)


@pytest.mark.parametrize(("count", "most"), [(4, 2.7), (8, 1.9), (30, 1.3)])
def test_intervals_hold_the_truth_and_are_not_much_wider_than_they_must_be(count, most):
    """Normal draws are the easy case: intervals that are right for real ones (test_stability) hold a little more."""
    means, spread = np.linspace(0.5, 3, 4000), 0.2 * np.exp(0.5 * RNG.standard_normal(4000))
    found = estimate([moments(draws(count, means, spread))])
    assert (np.abs(found.mean - means) < 1.96 * found.inflated()).mean() >= 0.94
    assert 1 <= np.median(found.inflated() / (means * spread / np.sqrt(count))) < most


def test_what_is_far_ahead_is_in_the_top_and_what_is_level_shares_the_chance():
    error = np.full(6, 0.1)
    found = Estimate(np.array([9.0, 5.0, 1.0, 1.0, 1.0, -9.0]), error, np.full(6, np.inf))
    chance = chance_of_top(found, 3)
    np.testing.assert_allclose(chance[[0, 1, 5]], [1, 1, 0])
    np.testing.assert_allclose(chance[2:5], 1 / 3, atol=0.05)
    assert chance.sum() == pytest.approx(3)
    np.testing.assert_array_equal(chance_of_top(found, 3), chance)
    np.testing.assert_array_equal(chance_of_top(found, 6), np.ones(6))


def more(levels, costs, most, work=None):
    """Pairs to add for the first ten images; by default work grows by a third."""
    spent = sum(2 * level.pairs[0] * cost for level, cost in zip(levels, costs, strict=True))
    return next_pairs(levels, np.arange(10), costs, 0.3 * spent if work is None else work, most)


def test_draws_go_where_the_variance_is_for_its_cost():
    quiet, loud = moments(draws(4, np.ones(30), 0.01)), moments(draws(4, np.ones(30), 0.5))
    assert more([quiet, loud], [1, 1], 100)[0] == 0
    cheap = more([loud, moments(draws(4, np.ones(30), 0.5, seed=1))], [1, 50], 100)
    assert cheap[0] > 5 * cheap[1]


def test_a_level_that_may_have_no_more_ends_it():
    loud = [moments(draws(8, np.ones(30), 0.5))]
    assert more(loud, [1], 8) == [0]
    assert more(loud, [1], 10) == [1]


def test_each_round_adds_the_work_that_is_asked_for():
    levels = [moments(draws(60, np.ones(30), 0.5, seed=n)) for n in range(3)]
    assert sum(more(levels, [1, 1, 1], 10_000)) == pytest.approx(0.3 * 90, abs=1)


def test_images_may_differ_in_their_draws():
    values = draws(20, np.linspace(1, 2, 50))
    some = np.arange(10, 30)
    found = moments(values[:4])
    for first in range(4, 20, 2):
        found.add(values[first : first + 2][:, some], some)
    np.testing.assert_allclose(found.mean[some], values[:, some].mean(axis=0))
    np.testing.assert_allclose(found.mean[:10], values[:4, :10].mean(axis=0))
    whole, few = moments(values), moments(values[:4])
    np.testing.assert_allclose(found.squares[some], whole.squares[some])
    np.testing.assert_allclose(found.squares[30:], few.squares[30:])
    assert (found.freedom()[some] == whole.freedom()[some]).all()
    assert (found.freedom()[:10] == few.freedom()[:10]).all()


def test_after_one_draw_errors_come_from_images_that_have_more():
    values = draws(41, np.full(300, 2.0))
    some = np.arange(100)
    found = moments(values[:1], pairs=False)
    assert not found.known
    for first in range(1, 41, 2):
        found.add(values[first : first + 2][:, some], some)
    error = estimate([found]).error
    assert error[100:].mean() == pytest.approx(2 * 0.2, rel=0.1)
    assert error[some].mean() == pytest.approx(2 * 0.2 / np.sqrt(41), rel=0.1)


def test_chances_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    rng = np.random.default_rng(0)
    found = Estimate(rng.uniform(0, 1, 300), rng.uniform(0, 0.2, 300), np.full(300, 5.0))
    whole = chance_of_top(found, 10)
    monkeypatch.setattr("patchtrace.nda.draws.AT_ONCE", 1000)
    np.testing.assert_array_equal(chance_of_top(found, 10), whole)


def test_among_very_many_images_there_are_fewer_trials(monkeypatch):
    rng = np.random.default_rng(0)
    found = Estimate(rng.uniform(0, 1, 300), rng.uniform(0, 0.2, 300), np.full(300, 5.0))
    exact = chance_of_top(found, 10)
    monkeypatch.setattr("patchtrace.nda.draws.MOST_DRAWN", 1)
    fewer = chance_of_top(found, 10)
    np.testing.assert_allclose(fewer * 100, np.round(fewer * 100), atol=1e-9)
    np.testing.assert_allclose(fewer, exact, atol=0.2)
    assert fewer.sum() == pytest.approx(10)
