"""Pictures of an explanation: they show what the numbers say."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ImageColor
from PIL.ImageColor import getrgb

from patchtrace import NDA, ImageSet, Level, Recipe, Scale, explain
from patchtrace.demo import postcards
from patchtrace.drawing.explanation import (
    GAP,
    MARGIN,
    SIDE,
    Look,
    _apart,
    mosaic_picture,
    overview,
    pair_picture,
    proponents,
)
from patchtrace.drawing.palette import COMMON, SOURCES
from patchtrace.nda.pairs import Match


@pytest.fixture(scope="module")
def look():
    train = ImageSet.open(np.random.default_rng(3).integers(0, 256, (12, 16, 16, 3), dtype=np.uint8))
    pasted = train.pixels[2].copy()
    pasted[:, :, 8:] = train.pixels[5][:, :, 8:]
    queries = ImageSet(pasted[None], ("a rather long name, longer than there is room for, of a query.png",))
    result = NDA(Recipe((Level(50, (Scale(3),)),))).fit(train).attribute(queries)
    return Look(result, 0, queries, train, explain(result, queries, train))


def colours(picture, box):
    return np.asarray(picture.crop(box)).reshape(-1, 3)


def test_the_mosaic_has_the_colours_of_the_two_images(look):
    """The left half of the query is of one image, the right half of another; the larger owner has the first colour."""
    picture = mosaic_picture(look)
    left, top = MARGIN + SIDE + GAP, MARGIN + 40
    halves = [(left + 20, top + 20, left + 60, top + 200), (left + 160, top + 20, left + 200, top + 200)]
    near = []
    for box in halves:
        mean = colours(picture, box).mean(axis=0)
        distances = [np.abs(mean - ImageColor.getrgb(colour)).sum() for colour in SOURCES]
        near.append(int(np.argmin(distances)))
    assert sorted(near) == [0, 1]


def test_heat_is_where_the_image_is(look):
    pair = look.explanation.pair(5)  # the right half
    picture = pair_picture(look, pair)
    left, top = MARGIN + SIDE + GAP, MARGIN + 40
    dark, bright = (
        colours(picture, (left + x, top + 20, left + x + 60, top + 200)).astype(float).mean() for x in (20, 150)
    )
    assert bright > dark + 40


def test_patches_are_outlined_in_the_same_colour_on_both_sides(look):
    pairs = look.explanation.pairs([2, 5])
    picture = np.asarray(overview(look, pairs))
    for colour in SOURCES[:2]:
        columns = np.flatnonzero((picture == ImageColor.getrgb(colour)).all(axis=2).any(axis=0))
        assert columns.min() < MARGIN + SIDE < columns.max()


def test_largest_and_smallest_shares_have_room(look):
    assert proponents(look).width > 9 * 100


def test_matches_that_are_shown_lie_apart():
    matches = [
        Match((0, 0), (0, 0), 5, 100, 1, 0.9, "", 5),
        Match((1, 0), (1, 0), 5, 100, 1, 0.8, "", 5),
        Match((9, 9), (3, 3), 5, 100, 1, 0.7, "", 5),
    ]
    assert [match.query for match in _apart(matches)] == [(0, 0), (9, 9)]


@pytest.mark.parametrize("shape", [(1, 300), (300, 1)])
def test_pictures_of_one_row_or_column_are_drawn(shape):
    train = ImageSet.open(np.random.default_rng(3).integers(0, 256, (3, *shape, 3), dtype=np.uint8), layout="NHWC")
    queries = train.subset([0])
    result = NDA(Recipe((Level(50, (Scale(1),)),))).fit(train).attribute(queries)
    look = Look(result, 0, queries, train, explain(result, queries, train))
    assert overview(look, look.explanation.pairs([0, 1])).width > 0


def test_a_pair_with_something_in_common_is_outlined_and_called_by_its_verdict():
    cards = postcards(6, size=64)
    result = NDA(Recipe.for_size(64, 64)).fit(cards).attribute(cards.subset([2]))
    pair = explain(result, cards.subset([2]), cards, images=2).pair(2)
    explanation = explain(result, cards.subset([2]), cards, images=2)

    def orange(shown):
        picture = np.asarray(pair_picture(Look(shown, 0, cards.subset([2]), cards, explanation), pair))
        return int((picture == getrgb(COMMON)).all(axis=2).sum())

    assert orange(result) == 0
    assert orange(result.with_verdicts(cards.subset([2]), cards)) > 500
