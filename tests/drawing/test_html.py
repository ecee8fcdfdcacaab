"""What a notebook shows of results: pictures, small and few, names that are no markup, and never an error."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

import patchtrace as pt
from patchtrace.demo import postcards
from patchtrace.display import html_of, shown
from patchtrace.drawing.html import MOST_IMAGES, MOST_QUERIES, SIDE, STORED
from patchtrace.provenance import Provenance, Samples

TAGS = {"div", "span", "img", "b", "i", "p", "table", "tr", "th", "td"}
ATTRIBUTES = {"style", "src", "alt"}
HOSTILE = [
    "<script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    '" style="position:fixed',
    "</div></div></table>",
    "&lt;b&gt;&amp;",
    "\x00\x1b[31m\u202egnp.exe\u2028",
    "a" * 1_000_000,
    "",
]


class Page(HTMLParser):
    """Tags, attributes, text and pictures of some HTML; every tag is closed by its own."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.open, self.pictures = set(), set(), "", [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "img":
            kind, _, data = dict(attrs)["src"].partition(",")
            assert kind == "data:image/png;base64"
            with Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=["PNG"]) as picture:
                picture.load()
                self.pictures.append(picture)
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"


@pytest.fixture(scope="module")
def cards():
    return postcards(9, size=16)


@pytest.fixture(scope="module")
def result(cards):
    return pt.NDA(pt.Recipe.for_size(16, 16)).fit(cards).attribute(cards.subset([3, 5]))


def about(queries, images, train=None):
    scores = np.random.default_rng(0).random((len(queries), len(images))).astype(np.float32)
    return pt.Attribution(scores, scores / scores.sum(), tuple(queries), tuple(images), "nda", pictures=train)


def test_a_result_shows_each_query_beside_its_first_images(cards, result):
    page = Page(result._repr_html_())
    assert len(page.pictures) == 2 * (1 + MOST_IMAGES)
    for text in ("nda: 2 queries, 9 images", "card-003", "card-005", *(hit.id for hit in result.top(6)[0])):
        assert text in page.text
    first = np.asarray(page.pictures[0])
    np.testing.assert_array_equal(first, np.asarray(cards.picture(3)))


def test_shares_are_shown_with_their_errors_and_remarks(cards):
    result = pt.NDA(replace(pt.Recipe.for_size(16, 16), draws=4)).fit(cards).attribute(cards.subset([3]))
    text = Page(result._repr_html_()).text
    hit = result.top(1)[0][0]
    assert f"{100 * hit.share:.1f} %" in text
    assert "± " in text
    assert all(remark in text for remark in result.remarks(0))


def test_a_method_without_shares_shows_scores(cards):
    result = pt.PixelSimilarity().fit(cards).attribute(cards.subset([3]))
    text = Page(result._repr_html_()).text
    assert f"{result.top(1)[0][0].score:.4g}" in text
    assert "%" not in text


def test_a_verdict_is_shown(cards, result):
    found = result.with_verdicts(cards.subset([3, 5]), cards, top=2)
    assert "same picture" in Page(found._repr_html_()).text


def test_a_loaded_result_is_a_table_until_it_has_its_pictures(cards, result, tmp_path):
    loaded = pt.Attribution.load(result.save(tmp_path))
    page = Page(loaded._repr_html_())
    assert page.pictures == []
    assert "table" in page.tags
    assert all(hit.id in page.text for hits in result.top(6) for hit in hits)
    assert "result.with_pictures(queries, train)" in page.text
    assert loaded.with_pictures(cards.subset([3, 5]), cards)._repr_html_() == result._repr_html_()


def test_other_pictures_are_refused(cards, result):
    with pytest.raises(pt.PatchtraceError, match="not the images of the result"):
        result.with_pictures(cards.subset([3]), cards)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("pictures", [True, False])
def test_names_are_no_markup(name, pictures):
    cards = postcards(3, size=8)
    hostile = replace(cards, ids=(name, name + "1", name + "2"))
    result = replace(about([name], hostile.ids), method=name[:20] or "m")
    if pictures:
        result = result.with_pictures(replace(cards.subset([0]), ids=(name,)), hostile)
    html = result._repr_html_()
    page = Page(html)
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    assert len(page.pictures) == (4 if pictures else 0)
    assert html.isprintable()
    assert len(html) < 30_000


def test_hostile_names_in_explanations_and_samples_are_no_markup():
    cards = postcards(3, size=16)
    train = replace(cards, ids=tuple(HOSTILE[:3]))
    query = train.subset([1])
    result = pt.NDA(pt.Recipe.for_size(16, 16)).fit(train).attribute(query)
    samples = pt.ScoreMachine(train).sample(1, steps=3)
    for shown_ in (pt.explain(result, query, train), samples):
        page = Page(shown_._repr_html_())
        assert page.tags <= TAGS
        assert page.attributes <= ATTRIBUTES
        assert HOSTILE[0] in page.text


def test_large_results_stay_small():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 150, 200, 3), dtype=np.uint8)  # noise does not compress
    train = pt.ImageSet.open(pixels)
    html = about(train.ids, train.ids, (train, train))._repr_html_()
    page = Page(html)
    assert len(page.pictures) == MOST_QUERIES * (1 + MOST_IMAGES)
    assert {picture.size for picture in page.pictures} == {(STORED, STORED * 3 // 4)}
    assert "and 35 more queries" in page.text
    assert len(html) < 500_000
    assert max(int(width) for width in re.findall(r"width:(\d+)px", html)) == SIDE + 12


def test_pictures_that_cannot_be_read_are_left_out(cards, result, monkeypatch):
    def gone(self, index):
        raise OSError("the store is gone")

    monkeypatch.setattr(pt.ImageSet, "picture", gone)
    page = Page(result._repr_html_())
    assert page.pictures == []
    assert "card-003" in page.text


def test_what_cannot_be_drawn_is_not_shown_and_raises_nothing(cards, result):
    broken = replace(result)
    object.__setattr__(broken, "scores", None)
    with pytest.raises(TypeError):
        html_of(broken)
    assert broken._repr_html_() is None
    assert shown(object()) is None


@pytest.mark.parametrize("queries", [0, 1])
def test_few_images_and_no_query(queries):
    train = postcards(1, size=8)
    page = Page(about(train.ids[:queries], train.ids)._repr_html_())
    assert f"nda: {queries} quer" in page.text


def test_scores_that_are_all_zero():
    train = postcards(2, size=8)
    zero = np.zeros((1, 2), np.float32)
    result = pt.Attribution(zero, zero, train.ids[:1], train.ids, "nda", pictures=(train.subset([0]), train))
    assert "0 %" in Page(result._repr_html_()).text


def test_float_arrays_of_four_channels_are_shown_without_failing():
    latents = pt.ImageSet.open(np.random.default_rng(0).normal(size=(4, 4, 8, 8)).astype(np.float32), layout="NCHW")
    page = Page(about(latents.ids[:1], latents.ids, (latents.subset([0]), latents))._repr_html_())
    assert "nda: 1 query, 4 images" in page.text


def test_an_explanation_shows_where_the_shares_are(cards, result):
    explanation = pt.explain(result, cards.subset([3, 5]), cards, images=4)
    page = Page(explanation._repr_html_())
    assert len(page.pictures) == 2 + 2 * 4
    assert "4 images of 9 explained" in page.text
    assert "card-003" in page.text
    np.testing.assert_array_equal(np.asarray(page.pictures[0]), np.asarray(cards.picture(3)))
    # what the query is made of, the card itself accounts for everywhere
    assert len(np.unique(np.asarray(page.pictures[1]).reshape(-1, 3), axis=0)) > 1


def test_samples_show_their_sources(cards):
    samples = pt.ScoreMachine(cards).sample(2, steps=3, seed=1)
    page = Page(samples._repr_html_())
    best = int(samples.shares[0].argmax())
    assert cards.ids[best] in page.text
    assert "2 samples, from 9 images" in page.text
    assert len(page.pictures) > 2 * 2


def test_samples_whose_training_images_are_not_at_hand_show_numbers(cards):
    known = pt.ScoreMachine(cards).sample(7, steps=2, seed=1)
    page = Page(Samples(known.images, known.provenance)._repr_html_())
    assert len(page.pictures) == 2 * MOST_QUERIES
    assert f"image {int(known.shares[0].argmax())}" in page.text
    assert "and 2 more samples" in page.text


def test_samples_of_latents_show_the_map_only():
    weights = np.float32([[[0.25, 0.75]] * 16])
    samples = Samples(np.zeros((1, 4, 4, 4), np.float32), Provenance.of(weights, 4, 4))
    assert len(Page(samples._repr_html_()).pictures) == 1
