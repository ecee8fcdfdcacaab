"""NDA on pictures that keep their shapes: shares, explanations, shortlists, and what cover would cut off."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import clouds
from PIL import Image

from patchtrace import NDA, Decoding, ImageSet, Level, Recipe, Scale, Stopping, Store, explain
from patchtrace.errors import PatchtraceError
from patchtrace.nda import NDAShortlist
from patchtrace.viewer.data import look_closer

SIZE = 16
KEEP = Decoding(size=(SIZE, SIZE), fit="keep")
RECIPE = Recipe((Level(100, (Scale(3),)), Level(300, (Scale(5),))))
#: Width and height of files, in turn.
SHAPES = ((64, 64), (64, 42), (42, 64), (64, 32), (32, 64))


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Fifteen pictures of five shapes."""
    folder = tmp_path_factory.mktemp("photos")
    for number, pixels in enumerate(clouds(15, 64)):
        width, height = SHAPES[number % 5]
        Image.fromarray(pixels[:height, :width]).save(folder / f"{number:02d}.png")
    return folder


@pytest.fixture(scope="module")
def train(photos):
    return ImageSet.open(photos, decoding=KEEP)


def pasted(photos):
    """A picture of 2:1 whose middle half are both ends of picture 4, of 1:2, which cover cuts off."""
    picture = Image.fromarray(clouds(20, 64)[-1][:32])
    with Image.open(photos / "04.png") as source:
        picture.paste(source.crop((0, 0, 32, 16)), (16, 0))
        picture.paste(source.crop((0, 48, 32, 64)), (16, 16))
    return picture


def test_every_picture_finds_itself_whatever_its_shape(train):
    result = NDA(RECIPE).fit(train).attribute(train)
    assert result.scores.argmax(axis=1).tolist() == list(range(15))
    assert result.settings["recipe"]["border"] == "valid"


@pytest.mark.parametrize("draws", [1, 2, "auto"])
def test_shares_sum_to_one(train, draws):
    recipe = replace(RECIPE, k=10_000, draws=draws, views=("flips",))
    result = NDA(recipe, stopping=Stopping(top=3, most_draws=4)).fit(train).attribute(train.subset([1, 4]))
    np.testing.assert_allclose(result.shares.sum(axis=1), 1, rtol=1e-5)


def test_pictures_of_one_shape_have_the_scores_that_they_have_without(photos):
    square = [photos / f"{number:02d}.png" for number in (0, 5, 10)]
    kept, plain = ImageSet.open(square, decoding=KEEP), ImageSet.open(square, size=SIZE)
    whole = replace(RECIPE, border="valid")
    results = [NDA(recipe).fit(images).attribute(square[1]) for recipe, images in ((RECIPE, kept), (whole, plain))]
    np.testing.assert_array_equal(results[0].scores, results[1].scores)


def test_what_cover_cuts_off_is_found(photos, train):
    query = pasted(photos)
    kept = NDA(RECIPE).fit(train).attribute(query)
    assert kept.ranking(0)[0] == 4
    cover = ImageSet.open(photos, size=SIZE)
    covered = NDA(RECIPE).fit(cover).attribute(query)
    assert covered.ranking(0)[0] != 4


def test_a_mirrored_picture_of_another_shape_is_found(photos, train):
    query = pasted(photos).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    result = NDA(replace(RECIPE, views=("flips",))).fit(train).attribute(query)
    assert result.ranking(0)[0] == 4
    explained = explain(result, train.open_like(query), train)
    match = explained.pair(4).matches[0]
    assert match.view == "flips"
    height, width = train.size_of(4)
    assert match.train[0] + match.train_size <= height
    assert match.train[1] + match.train_size <= width


@pytest.mark.parametrize("views", [(), ("flips", "zoom:1.5")])
def test_an_explanation_adds_up_at_the_pictures_own_shapes(photos, train, views):
    queries = train.open_like(pasted(photos))
    recipe = replace(RECIPE, draws=2, views=views)
    result = NDA(recipe).fit(train).attribute(queries)
    found = explain(result, queries, train, draws=None)
    assert found.maps().shape == (15, *queries.size_of(0))
    np.testing.assert_allclose(found.whole().sum(), 1)
    np.testing.assert_allclose(found.maps().sum(axis=(1, 2)), result.shares[0, found.images], rtol=1e-4, atol=1e-7)
    for index in (0, 1, 4):
        pair = found.pair(index)
        assert [heat.shape for heat in pair.heat] == [train.size_of(index)] * 2
        np.testing.assert_allclose(pair.share, result.shares[0, index], rtol=1e-3, atol=1e-6)
        np.testing.assert_allclose(sum(heat.sum() for heat in pair.heat), pair.share, rtol=1e-6)


def test_a_store_gives_the_same_bits(photos, train, tmp_path):
    Store(tmp_path / "store").update([photos], decoding=KEEP, jobs=1)
    kept = ImageSet.open(tmp_path / "store")
    one, other = (NDA(RECIPE).fit(images).attribute(photos / "07.png") for images in (train, kept))
    np.testing.assert_array_equal(one.scores, other.scores)


def test_a_shortlist_finds_it_too(photos, train):
    result = NDAShortlist(5, RECIPE).fit(train).attribute(pasted(photos))
    assert result.method == "nda-shortlist"
    assert result.ranking(0)[0] == 4


def test_a_run_resumes_and_queries_of_several_shapes_go_together(photos, train, tmp_path):
    queries = train.subset([1, 4, 0])
    whole = NDA(replace(RECIPE, draws=2)).fit(train).attribute(queries)
    for _ in range(2):
        kept = NDA(replace(RECIPE, draws=2), checkpoint=tmp_path).fit(train).attribute(queries)
        np.testing.assert_array_equal(kept.scores, whole.scores)
    single = NDA(replace(RECIPE, draws=2)).fit(train).attribute(train.subset([4]))
    np.testing.assert_array_equal(single.scores[0], whole.scores[1])


def test_decoys_keep_their_shapes(photos, train):
    others = train.open_like(photos / "02.png")
    result = NDA(RECIPE).fit(train.with_decoys(others)).attribute(train.subset([2]))
    assert result.decoys == 1
    assert result.ranking(0)[0] == 2


def test_a_patch_has_to_fit_into_every_shape(train):
    with pytest.raises(PatchtraceError, match="use a patch of at most 11"):
        NDA(Recipe((Level(100, (Scale(12),)),))).fit(train)


def test_the_page_shows_each_picture_in_its_own_shape(photos, train):
    queries = train.open_like(pasted(photos))
    result = NDA(replace(RECIPE, views=("flips",))).fit(train).attribute(queries)
    answer = look_closer(result, queries, train)
    view = answer.view
    assert (view["query"]["height"], view["query"]["width"]) == queries.size_of(0)
    for image, evidence in zip(view["images"], answer.evidence, strict=False):
        size = train.size_of(image["index"])
        assert (image["height"], image["width"]) == size
        assert answer.pictures[image["pixels"]].size == size[::-1]
        assert evidence["heat"][0]["shape"] == list(size)
        assert ("crops" in evidence) == (size != queries.size_of(0))
    (row,) = [row for row in view["facts"] if row[0] == "Compared at"]
    assert "own shapes" in row[1]
