"""Views: what is compared beside a picture itself, and where it comes from in that picture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from patchtrace.views import WHOLE, View

ZOOMS = st.sampled_from([1.1, 1.25, 1.5, 2.0, 3.0])


def pictures(count, height, width, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, 3, height, width)).astype(np.float32)


@given(ZOOMS, st.integers(4, 40), st.integers(4, 40), st.data())
def test_crops_together_have_each_patch_of_the_enlarged_picture(zoom, height, width, data):
    view, patch = View(zoom=zoom), data.draw(st.integers(1, min(height, width)))
    crops = view.crops((height, width), patch)
    for axis, side in enumerate((height, width)):
        starts = sorted({crop[1 + axis] for crop in crops})
        there = {start + place for start in starts for place in range(side - patch + 1)}
        assert there == set(range(view.side(side) - patch + 1))
    assert len(set(crops)) == len(crops)


def test_crops_are_no_more_than_the_patches_need():
    assert [len(View(zoom=1.5).crops((32, 32), patch)) for patch in (1, 5, 16, 17, 21, 31)] == [4, 4, 4, 4, 9, 81]
    assert len(View(mirrored=True).crops((32, 32), 31)) == 1


@pytest.mark.parametrize("zoom", [1.25, 1.5, 2.0])
def test_enlarged_pictures_are_those_of_pillow_inside(zoom):
    """Pillow cuts its filter off at the edge, where pixels are repeated here; two pixels inside they agree."""
    (picture,) = pictures(1, 16, 20)
    view = View(zoom=zoom)
    size = view.side(20), view.side(16)
    theirs = np.stack([np.asarray(Image.fromarray(one).resize(size, Image.Resampling.BICUBIC)) for one in picture])
    edge = int(np.ceil(2 * zoom))
    inside, seen = np.zeros((size[1], size[0]), bool), np.zeros((size[1], size[0]), bool)
    inside[edge:-edge, edge:-edge] = True
    for crop in view.crops((16, 20), 5):
        part = np.s_[crop.top : crop.top + 16, crop.left : crop.left + 20]
        ours, expected = crop.of(picture[None])[0], theirs[:, *part]
        np.testing.assert_allclose(ours[:, inside[part]], expected[:, inside[part]], atol=1e-5)
        seen[part] = True
    assert seen.all()


def test_an_even_picture_stays_even_up_to_its_edges():
    for crop in View(zoom=1.5).crops((9, 12), 4):
        np.testing.assert_allclose(crop.of(np.full((1, 3, 9, 12), 0.7, np.float32)), 0.7, rtol=1e-6)


def test_no_bit_of_a_view_depends_on_what_goes_together():
    block = pictures(70, 9, 12)
    for view in (View(mirrored=True), View(zoom=1.5)):
        for crop in view.crops((9, 12), 3):
            alone = np.concatenate([crop.of(block[n : n + 1]) for n in range(len(block))])
            np.testing.assert_array_equal(crop.of(block), alone)


@pytest.mark.parametrize("view", [View(), View(mirrored=True), View(zoom=1.5), View(zoom=1.3)])
def test_places_and_heat_are_where_the_pixels_come_from(view):
    """A bright square on black: where it is in a crop, mapped back, is where it is in the picture."""
    picture = np.zeros((1, 1, 24, 30), np.float32)
    picture[0, 0, 12:16, 6:10] = 1
    whole = 0
    for crop in view.crops((24, 30), 7):
        shown = crop.of(picture)[0, 0]
        heat = crop.onto_picture(np.maximum(shown, 0).astype(np.float64))
        assert heat.sum() == pytest.approx(np.maximum(shown, 0).sum())
        rows, columns = np.nonzero(shown > 0.5)
        extent = round(4 * view.zoom)
        if len(rows) < extent**2 * 0.9:  # the square is not whole in this crop
            continue
        row, column = crop.in_picture(rows.min(), columns.min(), extent, (24, 30))
        assert (row, column) == (pytest.approx(12, abs=0.5), pytest.approx(6, abs=0.5))
        assert heat[11:17, 5:11].sum() > 0.97 * heat.sum()
        whole += 1
    assert whole


def test_the_picture_itself_is_not_copied():
    block = pictures(2, 5, 5)
    assert WHOLE.of(block) is block
