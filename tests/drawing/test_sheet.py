"""The picture of a result shows what it says."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageColor

from patchtrace import Attribution, ImageSet, Provenance
from patchtrace.drawing.palette import PAPER, SOURCES
from patchtrace.drawing.sheet import (
    CAPTION,
    GAP,
    HEADER,
    MARGIN,
    TILE,
    contact_sheet,
    provenance_map,
    source_colours,
)

COLOURS = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200]], np.uint8)


def flat(colours, size=(8, 8)):
    pixels = np.broadcast_to(colours[:, :, None, None], (len(colours), 3, *size)).copy()
    return ImageSet(pixels, tuple(f"a/long/path/that/does/not/fit/{i}.png" for i in range(len(colours))))


def result(queries, train, shares):
    shares = np.float32(shares)
    return Attribution(shares, shares, queries.ids, train.ids, "nda")


def middle_of_tile(sheet, row, place):
    """The colour in the middle of the query (place -1) or of a ranked image."""
    x = MARGIN if place < 0 else MARGIN + TILE + 3 * GAP + place * (TILE + GAP)
    y = MARGIN + HEADER + row * (TILE + CAPTION + GAP)
    return sheet.getpixel((x + TILE // 2, y + TILE // 2))


def test_queries_stand_on_the_left_and_images_by_rank_on_the_right():
    train = flat(COLOURS)
    queries = train.subset([2, 0])
    sheet = contact_sheet(result(queries, train, [[0.1, 0.2, 0.7], [0.6, 0.3, 0.1]]), queries, train, top=2)
    for row, tiles in enumerate([(2, 2, 1), (0, 0, 1)]):
        for place, image in enumerate(tiles, start=-1):
            assert middle_of_tile(sheet, row, place) == tuple(COLOURS[image].tolist())


@pytest.mark.parametrize("size", [(8, 8), (4, 16), (300, 200)])
def test_pictures_of_any_shape_fit_their_tiles(size):
    train = flat(COLOURS, size)
    queries = train.subset([0])
    sheet = contact_sheet(result(queries, train, [[0.5, 0.3, 0.2]]), queries, train)
    assert middle_of_tile(sheet, 0, 0) == tuple(COLOURS[0].tolist())


@pytest.mark.parametrize("pixels", [np.zeros((2, 1, 6, 6), np.uint8), np.zeros((2, 4, 6, 6), np.float32)])
def test_grey_pictures_and_latents_can_be_shown(pixels):
    train = ImageSet(pixels, ("a", "b"))
    sheet = contact_sheet(result(train, train, [[1, 0], [0, 0]]), train, train)
    assert isinstance(sheet, Image.Image)
    assert middle_of_tile(sheet, 0, 0) in ((0, 0, 0), (128, 128, 128))


def test_one_image_is_enough_for_the_heading_to_fit():
    train = flat(COLOURS[:1])
    assert contact_sheet(result(train, train, [[1.0]]), train, train).width >= 560


def test_many_queries_are_cut_to_what_can_be_looked_at():
    queries = flat(COLOURS).subset([0] * 60)
    train = flat(COLOURS)
    sheet = contact_sheet(result(queries, train, [[0.5, 0.3, 0.2]] * 60), queries, train)
    assert sheet.height < 24 * 200 + 200


def origin(sources, weights, shares):
    sources = np.pad(np.array(sources, np.int32)[None, :, :, None], ((0, 0), (0, 0), (0, 0), (0, 3)))
    weights = np.pad(np.array(weights, np.float32)[None, :, :, None], ((0, 0), (0, 0), (0, 0), (0, 3)))
    return Provenance(np.array([shares], np.float32), sources, weights)


def test_a_map_has_the_colours_of_the_sources_and_pales_with_their_weight():
    provenance = origin([[0, 2]], [[1.0, 0.0]], [0.7, 0.01, 0.29])
    colours = source_colours(provenance, 0)
    assert colours == {0: SOURCES[0], 2: SOURCES[1]}  # the one between has too little to be named
    shown = provenance_map(provenance, 0, colours)
    assert tuple(shown[0, 0]) == ImageColor.getrgb(SOURCES[0])
    assert tuple(shown[0, 1]) == ImageColor.getrgb(PAPER)


def test_a_query_with_provenance_has_its_map_beside_it_and_sources_have_frames():
    train = flat(COLOURS)
    queries = train.subset([2])
    provenance = origin(np.full((8, 8), 1), np.ones((8, 8)), [0.0, 1.0, 0.0])
    sheet = contact_sheet(result(queries, train, [[0.1, 0.2, 0.7]]), queries, train, 2, provenance)
    y = MARGIN + HEADER + TILE // 2
    map_left = MARGIN + TILE + GAP
    assert sheet.getpixel((map_left + TILE // 2, y)) == ImageColor.getrgb(SOURCES[0])
    second = map_left + TILE + 3 * GAP + TILE + GAP
    assert sheet.getpixel((second + TILE // 2, y)) == tuple(COLOURS[1].tolist())
    assert sheet.getpixel((second - 3, y)) == ImageColor.getrgb(SOURCES[0])
