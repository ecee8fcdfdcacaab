"""Samples that stand for all other images."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchtrace.demo import postcards
from patchtrace.nda.sample import chances_of, drawn, rest_of

MASSES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60).map(np.array)


@given(MASSES, st.integers(1, 80))
def test_chances_are_probabilities_that_sum_to_the_size_of_the_sample(masses, count):
    chances = chances_of(masses, count)
    assert ((chances > 0) & (chances <= 1)).all()
    assert chances.sum() == pytest.approx(min(count, len(masses)))
    order = np.argsort(masses)
    assert (np.diff(chances[order]) >= -1e-12).all()  # who has more is no less likely


@given(MASSES, st.integers(1, 80), st.integers(0, 100))
def test_a_sample_has_its_size_and_nobody_twice(masses, count, seed):
    chances = chances_of(masses, count)
    taken = drawn(chances, np.random.default_rng(seed))
    assert abs(len(taken) - chances.sum()) <= 1
    assert len(set(taken)) == len(taken)
    assert set(np.flatnonzero(chances == 1)) <= set(taken)


def test_everybody_is_in_the_sample_as_often_as_its_chance_says():
    chances = chances_of(np.random.default_rng(0).lognormal(0, 2, 40), 12)
    times = np.zeros(40)
    rng = np.random.default_rng(1)
    for _ in range(4000):
        times[drawn(chances, rng)] += 1
    np.testing.assert_allclose(times / 4000, chances, atol=0.03)


def test_a_sum_over_a_sample_with_its_weights_is_right_in_the_mean():
    cards = postcards(30, 8)
    values, places = np.random.default_rng(0).lognormal(0, 1, 30), np.arange(4, 30)
    chances = chances_of(values[places], 8)
    sums = []
    for seed in range(500):
        _, rest = rest_of(cards, places, chances, np.random.default_rng(seed))
        sums.append(values[[cards.ids.index(name) for name in rest.images.ids]] @ rest.weights)
    assert np.mean(sums) == pytest.approx(values[places].sum(), rel=0.05)
