"""Explanations: their numbers add up to the scores, and they find what is there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from patchtrace import (
    NDA,
    Attribution,
    Compute,
    ImageSet,
    Level,
    PatchtraceError,
    PixelSimilarity,
    Recipe,
    Scale,
    explain,
)
from patchtrace.engines import NoisyQuery, Question
from patchtrace.engines.reference import ReferenceEngine
from patchtrace.nda.pairs import spread
from patchtrace.views import View

RECIPE = Recipe(
    (Level(100, (Scale(3, weight=0.75), Scale(4, pool=2, weight=0.25))), Level(300, (Scale(5), Scale(6, pool=2)))), k=7
)


def pictures(count, seed, shape=(10, 12, 3)):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


@pytest.fixture(scope="module")
def train():
    return ImageSet.open(pictures(9, 1))


@pytest.fixture(scope="module")
def queries():
    return ImageSet.open(pictures(2, 2))


def step_shares(found):
    """What each step adds to the share of each explained image: (steps, images)."""
    steps = zip(found.steps, found.grids, strict=True)
    return np.stack([step.weight * grid.sum(axis=(1, 2), dtype=np.float64) for step, grid in steps])


def made(train, queries, recipe=RECIPE, **options):
    return NDA(recipe, **options).fit(train).attribute(queries)


@pytest.mark.parametrize("border", ["match", "zero", "valid"])
@pytest.mark.parametrize(
    ("draws", "views", "exponent"), [(1, "none", 1.0), (2, "flips", 1.5), (5, "none", 1.0), (1, "flips,zoom:1.5", 1.0)]
)
def test_everything_adds_up_to_the_share_and_to_the_score(train, queries, border, draws, views, exponent):
    recipe = replace(RECIPE, border=border, draws=draws, views=views, exponent=exponent)
    result = made(train, queries, recipe)
    found = explain(result, queries, train, 1, draws=None)
    expected = result.shares[1, found.images]
    np.testing.assert_allclose(step_shares(found).sum(axis=0), expected, rtol=1e-5)
    np.testing.assert_allclose(found.maps().sum(axis=(1, 2)), expected, rtol=1e-5)
    np.testing.assert_allclose(found.whole().sum(), 1, rtol=1e-12)
    per_share = (result.scores[1] ** (1 / exponent) / result.shares[1])[0]
    for pair in found.pairs(list(found.images)):
        np.testing.assert_allclose(pair.share, result.shares[1, pair.index], rtol=1e-5)
        np.testing.assert_allclose(pair.share * per_share, result.scores[1, pair.index] ** (1 / exponent), rtol=1e-5)
        np.testing.assert_allclose(sum(heat.sum() for heat in pair.heat), pair.share, rtol=1e-9)
        place = list(found.images).index(pair.index)
        for grid, of_pair in zip(found.grids, pair.grids, strict=True):
            np.testing.assert_allclose(grid[place], of_pair, rtol=1e-4, atol=1e-7)


def forgetful(result):
    """The same as if it had been saved and loaded: normalisers are not known."""
    return replace(result, nda=replace(result.nda, normalisers=()))


@pytest.mark.parametrize("draws", [1, 2, 5])
@pytest.mark.parametrize("views", ["none", "flips,zoom:1.5"])
def test_normalisers_that_are_known_need_the_explained_images_only(train, queries, draws, views):
    result = made(train, queries, replace(RECIPE, draws=draws, views=views))
    compared = []
    found, again = (
        explain(one, queries, train, 1, images=4, progress=lambda _, total, one=one: compared.append((one, total)))
        for one in (result, forgetful(result))
    )
    assert compared[-1][1] / compared[0][1] == len(train) / 4
    for one, other in ((found.grids, again.grids), (found.normalisers, again.normalisers)):
        for known, computed in zip(one, other, strict=True):
            np.testing.assert_allclose(known, computed, rtol=1e-5, atol=1e-9)


def test_normalisers_are_known_after_a_kill_and_not_after_loading(train, queries, tmp_path):
    first, second = (made(train, queries, checkpoint=tmp_path / "unfinished") for _ in range(2))
    for one, other in zip(first.nda.normalisers, second.nda.normalisers, strict=True):
        np.testing.assert_array_equal(one, other)
    first.save(tmp_path / "run")
    assert not Attribution.load(tmp_path / "run").nda.normalisers
    assert explain(Attribution.load(tmp_path / "run"), queries, train).grids


def test_all_pairs_of_patches_are_those_of_the_oracle(train, queries):
    """With all of an image's patches counted, and asked for, the matches are the weights of the formula."""
    recipe = Recipe((Level(200, (Scale(3),)),), k=10_000, border="zero")
    result = made(train, queries, recipe)
    found = explain(result, queries, train)
    noise = np.random.default_rng((0, 200, 0)).standard_normal(train.shape)[None]
    noisy = NoisyQuery.of(queries.block(0, 1)[0], noise, *recipe.noise_at(200))
    oracle = ReferenceEngine().compare(Question(noisy, train.block(0, 9), found.steps[0].comparison, 0))
    np.testing.assert_allclose(found.normalisers[0], oracle.log_normaliser, rtol=1e-6)
    pair = found.pair(4, matches=120 * 120)
    assert len(pair.matches) == 120 * 120
    by_patch = np.zeros((10, 12))
    for match in pair.matches:
        by_patch[match.query[0] + 1, match.query[1] + 1] += match.weight / found.steps[0].weight
    np.testing.assert_allclose(by_patch.ravel(), oracle.share[0, :, 4], rtol=1e-5, atol=1e-9)


def test_pairs_that_are_compared_piece_by_piece_are_the_same(train, queries, monkeypatch):
    """Large pictures have too many pairs of patches to hold all weights of them."""
    found = explain(made(train, queries, RECIPE), queries, train)
    whole = found.pair(4)
    monkeypatch.setattr("patchtrace.nda.pairs.PAIRS_AT_ONCE", 500)
    pieces = found.pair(4)
    for name in ("grids", "heat"):
        for one, other in zip(getattr(whole, name), getattr(pieces, name), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-15)
    for one, other in zip(whole.partners, pieces.partners, strict=True):
        np.testing.assert_array_equal(one.place, other.place)
        np.testing.assert_array_equal(one.crop, other.crop)
    assert [match[:5] for match in whole.matches] == [match[:5] for match in pieces.matches]
    np.testing.assert_allclose([m.weight for m in whole.matches], [m.weight for m in pieces.matches], rtol=1e-9)


def test_fewer_images_are_compared_at_once_where_memory_is_scarce(train, queries):
    result = made(train, queries, RECIPE)
    plenty, scarce = (explain(result, queries, train, compute=Compute(threads=8, memory=m)) for m in ("1GB", "10MB"))
    assert plenty.at_once == 8
    assert 1 <= scarce.at_once < 8
    assert scarce.pair(4).share == plenty.pair(4).share


def test_fewer_draws_are_the_first_ones(train, queries):
    short, long = (made(train, queries, replace(RECIPE, draws=draws)) for draws in (2, 6))
    found = explain(long, queries, train, images=9)
    np.testing.assert_allclose(step_shares(found).sum(axis=0), short.shares[0, found.images], rtol=1e-5)


def test_a_part_that_was_pasted_is_found_where_it_is():
    """A query put together from two training images: the mosaic, the regions and the matches say so."""
    train = ImageSet.open(pictures(12, 3, (16, 16, 3)))
    pasted = train.pixels[2].copy()
    pasted[:, :, 8:] = train.pixels[5][:, :, 8:]
    query = ImageSet(pasted[None], ("q",))
    recipe = Recipe((Level(50, (Scale(3),)), Level(100, (Scale(5),))))
    found = explain(made(train, query, recipe), query, train)
    owner = found.mosaic().owner
    assert (owner[:, :6] == 2).mean() > 0.95
    assert (owner[:, 10:] == 5).mean() > 0.95
    assert found.images[found.region((0, 0, 16, 6)).argmax()] == 2
    mask = np.zeros((16, 16), bool)
    mask[4:12, 11:] = True
    assert found.images[found.region(mask).argmax()] == 5
    for index, side in ((2, slice(None, 8)), (5, slice(8, None))):
        pair = found.pair(index)
        assert all(match.query == match.train for match in pair.matches)
        heat = sum(pair.heat)
        assert heat[:, side].sum() > 0.9 * heat.sum()


def test_a_mirrored_image_is_matched_in_its_mirror_and_placed_in_the_image_itself():
    train = ImageSet.open(pictures(6, 4))
    query = ImageSet(np.ascontiguousarray(train.pixels[3:4, :, :, ::-1]), ("q",))
    recipe = Recipe((Level(50, (Scale(3),)),), views="flips")
    pair = explain(made(train, query, recipe), query, train).pair(3)
    assert {(match.view, match.train_size) for match in pair.matches} == {("flips", 3)}
    assert all(match.train == (match.query[0], 12 - 3 - match.query[1]) for match in pair.matches)
    assert (pair.partners[0].crop == 1).mean() > 0.9


def test_an_enlarged_image_is_matched_in_its_enlargement_and_placed_in_the_image_itself():
    pixels = np.random.default_rng(5).uniform(-1, 1, (6, 3, 16, 16)).astype(np.float32)
    train = ImageSet.open(pixels)
    crop = View(zoom=2.0).crops((16, 16), 3)[-1]  # the lower right of the enlarged picture
    query = ImageSet(crop.of(train.pixels[4:5]), ("q",))
    recipe = Recipe((Level(50, (Scale(3),)),), views="flips,zoom:2")
    pair = explain(made(train, query, recipe), query, train).pair(4)
    assert {(match.view, match.train_size) for match in pair.matches} == {("zoom:2", 1.5)}
    for match in pair.matches:
        assert match.train == (8 + match.query[0] / 2, 8 + match.query[1] / 2)
    heat = sum(pair.heat)  # of the pixels that were matched: those of the lower right
    assert heat[7:, 7:].sum() > 0.99 * heat.sum() > 0


def test_a_region_of_everything_is_the_share(train, queries):
    result = made(train, queries)
    found = explain(result, queries, train)
    np.testing.assert_allclose(found.region((0, 0, 10, 12)), result.shares[0, found.images], rtol=1e-5)


def test_coverage_grows_to_the_sum_of_all_shares(train, queries):
    result = made(train, queries)
    curve = explain(result, queries, train, images=3).coverage()
    assert [count for count, _ in curve] == [1, 2, 5, 9]
    assert curve[0][1] == pytest.approx(result.shares[0].max())
    assert curve[-1][1] == pytest.approx(result.shares[0].sum(), rel=1e-6)


def test_numbers_of_patches_are_spread_on_visible_pixels_alone():
    comparison = explain(*_small()).steps[0].comparison
    values = np.zeros((4, 4))
    values[0, 0] = 1  # the middle is the pixel in the corner, so four pixels are within the picture
    found = spread(values, comparison, (4, 4))
    np.testing.assert_allclose(found[:2, :2], 0.25)
    assert found.sum() == pytest.approx(1)


def _small():
    train = ImageSet.open(pictures(3, 5, (4, 4, 3)), layout="NHWC")
    return made(train, train, Recipe((Level(100, (Scale(3),)),))), train, train


def test_what_cannot_be_explained_is_refused_with_the_reason(train, queries):
    result = made(train, queries)
    with pytest.raises(PatchtraceError, match="query is 2"):
        explain(result, queries, train, 2)
    with pytest.raises(PatchtraceError, match="the images of 'train' changed"):
        explain(result, queries, train.subset(range(8)))
    with pytest.raises(PatchtraceError, match="no pixel"):
        explain(result, queries, train).region((3, 3, 3, 9))
    with pytest.raises(PatchtraceError, match="method 'pixel'"):
        explain(PixelSimilarity().fit(train).attribute(queries), queries, train)
    noise = {t: np.zeros(train.shape) for t in (100, 300)}
    with pytest.raises(PatchtraceError, match="given by the caller"):
        explain(NDA(RECIPE).fit(train).attribute(queries, noise=noise), queries, train)


def test_progress_reaches_its_total(train, queries):
    seen = []
    explain(made(train, queries), queries, train, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0


def test_a_result_of_before_there_were_views_loads_and_is_explained_as_it_was(train, queries, tmp_path):
    result = made(train, queries, replace(RECIPE, views="flips"))
    recipe = {name: value for name, value in result.settings["recipe"].items() if name != "views"} | {"flips": True}
    replace(result, settings={**result.settings, "recipe": recipe}).save(tmp_path / "run")
    loaded = Attribution.load(tmp_path / "run")
    assert loaded.nda.recipe == result.nda.recipe
    for found, expected in zip(
        explain(loaded, queries, train).grids, explain(result, queries, train).grids, strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
