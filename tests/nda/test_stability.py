"""Draws of the noise on cards and photographs: do errors mean what they say, and does the same answer come twice?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from patchtrace import NDA, ImageSet, Level, Recipe, Scale, Stopping
from patchtrace.demo import postcards

pytestmark = pytest.mark.slow

IMAGES = 60
#: The default but for mirrored images, which have nothing to do with draws and take as long again; and one with patches
#: as large as those of the paper, which have most of the variance.
DEFAULT = replace(Recipe.for_size(16, 16), views=())
LARGE = Recipe(
    tuple(
        Level(t, (Scale(patch, weight=0.75), Scale(pooled, 2, weight=0.25)))
        for t, patch, pooled in ((100, 3, 4), (200, 3, 4), (300, 5, 4), (400, 11, 10), (500, 11, 10))
    )
)


@pytest.fixture(scope="module", params=["cards", "photographs"])
def pictures(request):
    if request.param == "photographs":
        return request.getfixturevalue("cifar2")
    cards = postcards(302).pixels.transpose(0, 2, 3, 1)
    return {"train": cards, "val": cards[300:]}


@pytest.fixture(scope="module")
def train(pictures):
    return small(pictures["train"][:IMAGES])


@pytest.fixture(scope="module")
def queries(pictures):
    return small(pictures["val"][:2])


def small(pictures):
    resized = (Image.fromarray(one).resize((16, 16), Image.Resampling.BOX) for one in pictures)
    return ImageSet.open(np.stack([np.asarray(one) for one in resized]))


def run(train, queries, seed, draws, recipe=LARGE, **rules):
    return NDA(replace(recipe, draws=draws, seed=seed), stopping=Stopping(**rules)).fit(train).attribute(queries)


@pytest.fixture(scope="module")
def reference(train, queries):
    """As good as the truth: many draws."""
    return run(train, queries, 1000, 300)


@pytest.fixture(scope="module")
def default_reference(train, queries):
    return run(train, queries, 1000, 300, DEFAULT)


@pytest.mark.parametrize("draws", [4, 8, 16])
@pytest.mark.parametrize(
    ("recipe", "name"), [(LARGE, "reference"), (DEFAULT, "default_reference")], ids=["large", "default"]
)
def test_intervals_from_a_few_draws_hold_the_long_run(train, queries, request, draws, recipe, name):
    """95 % intervals, for the half of the images with the larger shares: those that a list may show."""
    reference, inside = request.getfixturevalue(name), []
    for seed in range(max(40, 320 // draws)):
        few = run(train, queries, seed, draws, recipe, top=5)
        wide = few.nda.errors.astype(float) ** 2 + reference.nda.errors.astype(float) ** 2
        near = np.abs(few.shares - reference.shares) < 1.96 * np.sqrt(wide)
        for query in range(len(queries.ids)):
            inside.append(near[query, reference.ranking(query)[: IMAGES // 2]])
    assert 0.93 <= np.mean(inside) <= 0.97


@pytest.fixture(scope="module")
def singles(train, queries):
    """Draws as the paper makes them, with one noise for all patches of the query: (draws, queries, train)."""
    return np.stack([run(train, queries, seed, 1).shares for seed in range(200)]).astype(float)


def test_a_patchwork_of_noise_has_the_same_mean_as_one_noise_for_all_patches(reference, singles):
    error = np.sqrt(singles.var(axis=0, ddof=1) / len(singles) + reference.nda.errors.astype(float) ** 2)
    off = (singles.mean(axis=0) - reference.shares) / error
    assert np.abs(off).max() < 4.5
    assert np.mean(off**2) < 1.5


def test_a_patchwork_is_worth_several_draws_with_one_noise_for_all_patches(train, queries, reference, singles):
    works = np.stack([run(train, queries, seed, 2).shares for seed in range(40)])
    errors = [((found - reference.shares) ** 2).mean() for found in (works, singles)]
    assert errors[0] < errors[1] / 2 / 3  # two draws each


def test_draws_go_to_the_levels_with_large_patches(collection):
    """Not on cards, whose lists are settled by the first two draws."""
    train, queries = small(collection["train"][:IMAGES]), small(collection["val"][:2])
    result = run(train, queries, 0, "auto", top=5, confidence=0.9, tolerance=0)
    for draws in result.nda.draws:
        assert min(draws[3:]) > max(draws[:3])


def test_two_runs_that_say_they_are_settled_agree(train, queries):
    one, two = (run(train, queries, seed, "auto", top=5, confidence=0.95, most_draws=400) for seed in (0, 1))
    common = [
        len({hit.index for hit in a} & {hit.index for hit in b}) / 5
        for a, b, *ended in zip(one.top(5), two.top(5), one.nda.ended, two.nda.ended, strict=True)
        if ended == ["settled", "settled"]
    ]
    assert common, "no query was settled in both runs"
    assert np.mean(common) >= 0.8
