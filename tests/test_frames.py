"""Rankings as tables of other libraries: what they hold is what ``rows`` says."""

from __future__ import annotations

import math

import numpy as np
import pytest

import patchtrace as pt
from patchtrace.attribution import Hit
from patchtrace.demo import postcards

LIBRARIES = ["pandas", "polars", "arrow"]


@pytest.fixture(scope="module")
def cards():
    return postcards(8, size=32)


@pytest.fixture(scope="module", params=["nda", "pixel"])
def result(request, cards):
    queries = cards.subset([2, 5])
    if request.param == "pixel":
        return pt.PixelSimilarity().fit(cards).attribute(queries)
    recipe = pt.Recipe((pt.Level(100, (pt.Scale(5),)),), draws=2)
    return pt.NDA(recipe).fit(cards).attribute(queries).with_verdicts(queries, cards, top=2)


def rows_of(frame):
    """Rows as dicts, with None for what is unknown."""
    if hasattr(frame, "to_pylist"):
        return frame.to_pylist()
    return frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records")


def same(one, other):
    if isinstance(other, float) and other is not None:
        return isinstance(one, float) and (one == other or (math.isnan(one) and math.isnan(other)))
    unknown = one is None or (isinstance(one, float) and math.isnan(one))
    return unknown if other is None else one == other or list(one) == list(other)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("top", [None, 3])
def test_a_frame_holds_the_rows(result, library, top):
    found, expected = rows_of(result.frame(top, library=library)), list(result.rows(top))
    assert len(found) == len(expected) == 2 * (top or 8)
    for one, row in zip(found, expected, strict=True):
        assert list(one) == list(row)
        assert all(same(one[name], value) for name, value in row.items()), (one, row)


def test_numbers_are_numbers_even_where_none_is_known(cards):
    result = pt.RandomScores().fit(cards).attribute(cards.subset([0]))
    assert result.frame().dtypes["share"] == np.float64
    assert all(result.frame().dtypes[name] == np.float64 for name in Hit._fields if name not in ("index", "id"))
    assert str(result.frame(library="polars").schema["z"]) == "Float64"
    assert str(result.frame(library="arrow").schema.field("error").type) == "double"


def test_a_dataset_of_other_pictures_is_refused(result, cards):
    with pytest.raises(pt.PatchtraceError, match="not the images of the result"):
        result.dataset(train=cards.subset([1, 0, 2, 3, 4, 5, 6, 7]))


def test_a_result_is_copied_without_its_pictures(result):
    assert result.pictures
    state = result.__getstate__()
    assert state["pictures"] is None
    assert state["scores"] is result.scores


def test_an_unknown_library_is_refused_with_the_nearest(result):
    with pytest.raises(pt.PatchtraceError, match="did you mean 'pandas'"):
        result.frame(library="panda")


@pytest.mark.parametrize(("library", "extra"), [("polars", "polars"), ("pandas", "pandas")])
def test_a_missing_library_is_named_with_what_installs_it(result, monkeypatch, library, extra):
    monkeypatch.setitem(__import__("sys").modules, library, None)
    with pytest.raises(pt.PatchtraceError, match=rf"pip install {extra}"):
        result.frame(library=library)


def test_a_dataset_holds_the_rows_and_the_pictures(result, cards, tmp_path):
    import datasets

    queries = cards.subset([2, 5])
    found = result.dataset(queries, cards, top=3)
    assert isinstance(found, datasets.Dataset)
    assert [row["id"] for row in found] == [hit.id for hits in result.top(3) for hit in hits]
    assert isinstance(found.features["image"], datasets.Image)
    for row in found:
        assert np.array_equal(np.asarray(row["image"]), np.asarray(cards.frame(row["index"])))
        assert np.array_equal(
            np.asarray(row["query_image"]), np.asarray(queries.frame(int(row["query"] != "card-002")))
        )
    found.save_to_disk(tmp_path / "saved")
    again = datasets.load_from_disk(tmp_path / "saved")
    assert again[0]["id"] == found[0]["id"]
    # and back again: what came out can be opened
    assert len(pt.ImageSet.open(again, key="image")) == 6


def test_a_dataset_without_pictures_has_all_rows(result):
    found = result.dataset(top=None)
    assert found.num_rows == 16
    assert "image" not in found.column_names
