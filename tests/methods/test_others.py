"""Every method has one face; the plain ones do what they say."""

from __future__ import annotations

import numpy as np
import pytest

from patchtrace import (
    NDA,
    Attribution,
    Level,
    MachineInfluence,
    PatchtraceError,
    PixelSimilarity,
    RandomScores,
    Recipe,
    Scale,
    ScoreMachine,
)
from patchtrace.methods.base import positive_shares

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(0, 256, (1500, 6, 7, 3), dtype=np.uint8)
QUERIES = TRAIN[[3, 1200]]
METHODS = [
    NDA(Recipe((Level(100, (Scale(3),)),))),
    MachineInfluence(timesteps=[200, 400], draws=1),
    PixelSimilarity(),
    PixelSimilarity("dot"),
    RandomScores(),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{getattr(m, 'metric', '')}")
def test_all_methods_take_and_give_the_same_types(method, tmp_path):
    seen = []
    result = method.fit(TRAIN[:20]).attribute(QUERIES, progress=lambda done, total: seen.append((done, total)))
    assert isinstance(result, Attribution)
    assert result.scores.shape == result.shares.shape == (2, 20)
    assert result.scores.dtype == result.shares.dtype == np.float32
    assert (result.shares >= 0).all()
    assert (result.shares.sum(axis=1) <= 1 + 1e-5).all()
    assert result.method == method.name
    assert seen[-1][0] == seen[-1][1]
    assert Attribution.load(result.save(tmp_path)).settings == result.settings


@pytest.mark.parametrize("method", METHODS, ids=lambda m: f"{m.name}-{getattr(m, 'metric', '')}")
def test_no_method_works_before_it_has_a_training_set(method):
    with pytest.raises(PatchtraceError, match=r"fit\(train\)"):
        type(method)().attribute(QUERIES)


def test_pixel_cosine_is_the_cosine_of_all_pixels():
    result = PixelSimilarity().fit(TRAIN).attribute(QUERIES)
    a, b = (x.reshape(len(x), -1) / 127.5 - 1 for x in (QUERIES, TRAIN))
    expected = (a / np.linalg.norm(a, axis=1)[:, None]) @ (b / np.linalg.norm(b, axis=1)[:, None]).T
    np.testing.assert_allclose(result.scores, expected, atol=1e-6)
    assert result.scores.argmax(axis=1).tolist() == [3, 1200]


def test_pixel_dot_is_the_inner_product():
    result = PixelSimilarity("dot").fit(TRAIN).attribute(QUERIES)
    a, b = (x.reshape(len(x), -1) / 127.5 - 1 for x in (QUERIES, TRAIN))
    np.testing.assert_allclose(result.scores, a @ b.T, rtol=1e-5, atol=1e-4)


def test_a_picture_without_direction_resembles_nothing():
    grey = np.zeros((2, 3, 4, 4), np.float32)
    assert (PixelSimilarity().fit(grey).attribute(grey).scores == 0).all()


def test_an_unknown_metric_is_refused():
    with pytest.raises(PatchtraceError, match="cosine, dot"):
        PixelSimilarity("l2").fit(TRAIN)


def test_random_scores_repeat_with_their_seed_only():
    first, again, other = (RandomScores(seed).fit(TRAIN).attribute(QUERIES).scores for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(PatchtraceError, match="whole number"):
        RandomScores(seed).fit(TRAIN).attribute(QUERIES)


def test_shares_of_scores_count_what_is_above_zero():
    shares = positive_shares(np.array([[3.0, 1.0, -5.0], [-1.0, -2.0, -3.0]]))
    assert shares.tolist() == [[0.75, 0.25, 0.0], [0.0, 0.0, 0.0]]


def test_influence_scores_are_the_derivative_with_the_sign_turned():
    method = MachineInfluence(timesteps=[200], draws=2, seed=3, patches=3).fit(TRAIN[:20])
    expected = -ScoreMachine(TRAIN[:20], patches=3).influence(QUERIES, timesteps=[200], draws=2, seed=3)
    result = method.attribute(QUERIES)
    np.testing.assert_allclose(result.scores, expected, rtol=1e-5, atol=1e-7)
    assert (result.scores < 0).any()
    assert result.settings["patches"] == {"0": 3}
    assert result.settings["draws"] == 2


def test_influence_refuses_what_the_machine_refuses_before_the_work_begins():
    with pytest.raises(PatchtraceError, match="odd"):
        MachineInfluence(patches=4).fit(TRAIN)
