"""Attribution where the truth is known: the score machine says what its pictures are from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import spearmanr

from patchtrace import NDA, ImageSet, MachineInfluence, PixelSimilarity, RandomScores, Recipe, ScoreMachine
from patchtrace.demo import painted_from, postcards

CARDS = postcards(60)
#: One level of each kind is enough here, and quick.
RECIPE = Recipe.preset("quick")


def ranks(method, queries, train=CARDS):
    scores = method.fit(train).attribute(queries).scores
    return np.argsort(np.argsort(-scores, axis=1), axis=1)


def test_drawn_cards_are_the_same_every_time_and_differ():
    again = postcards(60)
    np.testing.assert_array_equal(again.pixels, CARDS.pixels)
    assert len(np.unique(CARDS.pixels.reshape(60, -1), axis=0)) == 60
    assert postcards(2, size=64).shape == (3, 64, 64)
    assert not np.array_equal(postcards(2, seed=1).pixels, CARDS.pixels[:2])


def test_a_painted_query_is_from_its_handful_only():
    queries, provenance = painted_from(CARDS, [(3, 50, 9), (7, 8)], steps=4, seeds=[5, 6])
    assert queries.pixels.dtype == np.uint8
    for shares, handful in zip(provenance.shares, [(3, 50, 9), (7, 8)], strict=True):
        assert np.nonzero(shares)[0].tolist() == sorted(handful)
        assert shares.sum() == pytest.approx(1, rel=1e-5)
    assert set(provenance.sources[1][provenance.weights[1] > 0]) == {7, 8}
    again = painted_from(CARDS, [(7, 8)], steps=4, seeds=[6])
    np.testing.assert_array_equal(again.queries.pixels[0], queries.pixels[1])


def test_pictures_painted_from_one_half_are_attributed_to_that_half():
    half = CARDS.subset(range(30))
    samples = ScoreMachine(half).sample(3, seed=1)
    queries = ImageSet(samples.images, ("a", "b", "c"))
    shares = NDA(RECIPE).fit(CARDS).attribute(queries).shares
    assert (shares[:, :30].sum(axis=1) > 1.5 * shares[:, 30:].sum(axis=1)).all()
    found = ranks(NDA(RECIPE), queries)
    assert (found[:, :30] < 2).sum() == 6  # the first two of each


def test_the_main_source_of_a_painted_picture_comes_first():
    handfuls = [(4, 17, 31), (40, 22, 11), (55, 2, 36), (28, 47, 14)]
    queries, provenance = painted_from(CARDS, handfuls)
    main = provenance.shares.argmax(axis=1)
    found = ranks(NDA(RECIPE), queries)[np.arange(4), main]
    assert (found < 3).all()
    assert (found == 0).sum() >= 3


def test_a_planted_copy_is_found():
    queries = CARDS.subset([23, 51])
    for method in (NDA(RECIPE), MachineInfluence(timesteps=[200], draws=2), PixelSimilarity()):
        assert ranks(method, queries)[[0, 1], [23, 51]].tolist() == [0, 0]


def test_a_planted_patch_is_found_with_its_place(collection):
    train = ImageSet.open(collection["train"][:80])
    query = ImageSet.open(collection["val"][:1]).pixels.copy()
    square = np.s_[8:22, 12:26]
    query[0][:, *square] = train.pixels[17][:, *square]
    queries = ImageSet(query, ("query",))
    assert ranks(NDA(RECIPE), queries, train)[0, 17] == 0
    first = ScoreMachine(train).trace(queries, timesteps=[10, 30, 50]).sources[0, :, :, 0] == 17
    inside = np.zeros((32, 32), dtype=bool)
    inside[square] = True
    assert first[inside].mean() > 0.6
    assert first[~inside].mean() < 0.05


def test_provenance_and_nda_agree_in_rank():
    samples = ScoreMachine(CARDS).sample(4, seed=2)
    queries = ImageSet(samples.images, tuple("abcd"))
    scores = NDA(RECIPE).fit(CARDS).attribute(queries).scores
    correlations = [spearmanr(a, b).statistic for a, b in zip(scores, samples.shares, strict=True)]
    by_chance = RandomScores().fit(CARDS).attribute(queries).scores
    chance = [spearmanr(a, b).statistic for a, b in zip(by_chance, samples.shares, strict=True)]
    assert min(correlations) > 0.4
    assert abs(np.mean(chance)) < 0.2


def test_scores_foretell_the_retraining_of_the_machine():
    """Linear datamodeling scores on 32 machines with half of the cards each."""
    rng = np.random.default_rng(0)
    masks = np.zeros((32, 60), dtype=bool)
    for mask in masks:
        mask[rng.choice(60, 30, replace=False)] = True
    queries = postcards(64).subset(range(60, 64))
    times = [150, 450, 750]
    losses = ScoreMachine(CARDS).loss(queries, timesteps=times, draws=2, seed=9, weights=masks)

    def lds(method):
        predicted = method.fit(CARDS).attribute(queries).scores.astype(float) @ masks.T
        return np.mean([spearmanr(-a, b).statistic for a, b in zip(predicted, losses.T, strict=True)])

    assert lds(MachineInfluence(timesteps=times, draws=2)) > 0.4
    assert lds(NDA(replace(RECIPE, draws=2))) > 0.4
    assert abs(lds(RandomScores())) < 0.25
