"""Small pictures, and truths that are known because a recipe made them."""

from __future__ import annotations

import numpy as np

from patchtrace import Compute, ImageSet, Level, Recipe, Scale
from patchtrace.engines import get_engine
from patchtrace.evaluate.partial_scores import PartialScores
from patchtrace.evaluate.truth import GroundTruth, make_subsets

ONE = Recipe((Level(100, (Scale(3),)),))
TWO = Recipe(
    (
        Level(100, (Scale(3, weight=0.75), Scale(4, pool=2, weight=0.25))),
        Level(300, (Scale(5, weight=0.75), Scale(6, pool=2, weight=0.25))),
    ),
    k=7,
)


def pictures(count, shape=(3, 8, 8), seed=0):
    """Smooth random pictures, so that weights spread over several images as they do on real ones."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 256, (count, shape[0], (shape[1] + 1) // 2, (shape[2] + 1) // 2))
    pixels = np.kron(coarse, np.ones((1, 1, 2, 2)))[:, :, : shape[1], : shape[2]].astype(np.uint8)
    return ImageSet(pixels, tuple(f"{seed}-{i}" for i in range(count)))


TRAIN, QUERIES = pictures(24), pictures(10, seed=1)


def truth_of(recipe, *, noise=0.0, train=TRAIN, queries=QUERIES):
    """Losses as a recipe predicts them, with noise of so many times their own spread."""
    scores = PartialScores(train, queries, compute=Compute(threads=1)).scores(recipe)
    subsets = make_subsets(len(train), 48)
    losses = -(subsets @ scores.T)
    losses += noise * losses.std(axis=0) * np.random.default_rng(5).standard_normal(losses.shape)
    facts = {"train": train.fingerprint(), "queries": queries.fingerprint()}
    return GroundTruth(subsets, losses, train.ids, queries.ids, facts)


def truth_that(scores):
    """The truth that these scores predict exactly."""
    subsets = make_subsets(scores.shape[1], 20)
    ids = tuple(map(str, range(scores.shape[1])))
    return GroundTruth(subsets, -(subsets @ scores.T), ids, ids[: len(scores)])


def counted_calls(monkeypatch):
    """How many versions of a query the engine compares from now on, one entry for each call."""
    seen = []
    engine = type(get_engine(Compute()))
    compare = engine.compare

    def counted(self, question):
        seen.append(len(question.query))
        return compare(self, question)

    monkeypatch.setattr(engine, "compare", counted)
    return seen
