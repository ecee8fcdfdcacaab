"""Shrunken pictures: how they are made, that they find what was enlarged, and that a run reads them again."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchtrace import NDA, ImageSet, PatchtraceError, Recipe, shrunken
from patchtrace.demo import postcards
from patchtrace.images.shrunken import repeated
from patchtrace.images.write import write_pictures

SIDE = 48


@pytest.fixture(scope="module")
def cards():
    return postcards(24, size=SIDE)


@pytest.fixture(scope="module")
def folder(cards, tmp_path_factory):
    place = tmp_path_factory.mktemp("cards")
    write_pictures(cards, place, "card")
    return place


def enlarged(picture, times):
    """The middle of a picture, so many times larger."""
    side = round(SIDE / times)
    first = (SIDE - side) // 2
    return picture.crop((first, first, first + side, first + side)).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def test_a_picture_is_repeated_until_it_fills_the_frame():
    wave = np.sin(np.arange(96) / 96 * 2 * np.pi)
    pixels = np.uint8(np.rint(127 + 100 * wave[:, None] * wave))
    made = np.asarray(repeated(Image.fromarray(pixels), 3))
    assert made.shape == pixels.shape
    small = np.asarray(Image.fromarray(pixels).resize((32, 32), Image.Resampling.LANCZOS))
    np.testing.assert_array_equal(made, np.tile(small, (3, 3)))
    uneven = np.asarray(repeated(Image.fromarray(pixels[:60]), 1.5))
    np.testing.assert_array_equal(uneven[40:], uneven[:20])
    np.testing.assert_array_equal(uneven[:, 64:], uneven[:, :32])


@pytest.mark.parametrize("grey", [False, True])
def test_colour_and_grey_keep_their_channels(cards, folder, grey):
    from_array = ImageSet.open(np.asarray(cards.picture(3).convert("L"))[None, :, :, None])
    images = from_array if grey else ImageSet.open(folder, size=SIDE).subset([3])
    both = shrunken(images, [2])
    assert both.shape == images.shape == (1 if grey else 3, SIDE, SIDE)
    np.testing.assert_array_equal(both.pixels[0], images.pixels[0])
    upper, lower = both.pixels[1][:, 3 : SIDE // 2 - 3], both.pixels[1][:, SIDE // 2 + 3 : -3]
    np.testing.assert_array_equal(upper, lower)  # but for the seam, where a picture of a file is resampled
    assert upper.std() > 5


def test_what_was_enlarged_is_found_in_the_smaller_picture(cards):
    """A crop that was enlarged twice, brought down to half of its size, has its own size again."""
    recipe = Recipe.for_size(SIDE, SIDE)
    shares = []
    for number in (2, 5, 11, 17):
        query = shrunken(cards.open_like(enlarged(cards.picture(number), 2.0)), [2])
        shares.append(NDA(recipe).fit(cards).attribute(query).shares[:, number])
    plain, smaller = np.array(shares).T
    assert (smaller > plain).all()


def test_pictures_stand_behind_their_originals_with_names_of_their_own(folder):
    images = ImageSet.open(folder, size=SIDE).subset([1, 4])
    both = shrunken(images, ["1.5", 3])
    assert both.ids == tuple(
        f"{name}{words}" for words in ("", ", 1.5 times smaller", ", 3 times smaller") for name in images.ids
    )
    assert both.frame(0, 480).size == both.frame(2, 480).size == (480, 480)
    np.testing.assert_array_equal(both.subset([4]).pixels[0], both.pixels[4])


@pytest.mark.parametrize("times", [[1], [0.5], [5], [float("nan")], [True], ["x"], [None], None, "1.5,", [[2]]])
def test_other_numbers_are_refused(cards, times):
    with pytest.raises(PatchtraceError, match="use numbers of more than 1, up to 4"):
        shrunken(cards.subset([0]), times)


def test_what_is_no_picture_is_refused():
    floats = ImageSet.open(np.zeros((1, 4, 8, 8), np.float32))
    with pytest.raises(PatchtraceError, match="only pictures"):
        shrunken(floats, [2])
