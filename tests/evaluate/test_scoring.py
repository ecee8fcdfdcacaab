"""Methods by their names, and settings that are chosen on queries that are not reported."""

from __future__ import annotations

import numpy as np
import pytest
from evaluate.toys import truth_that

from patchtrace import PatchtraceError
from patchtrace.evaluate.scoring import MethodScores, fitted, judge, requires_model, score_queries, usual_recipe
from patchtrace.evaluate.truth import split
from patchtrace.images import ImageSet
from patchtrace.methods.base import METHODS, Requires, Resources


@pytest.fixture
def pictures() -> ImageSet:
    return ImageSet.open(np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8))


def test_scores_are_kept_and_found_again(pictures, tmp_path):
    resources = Resources(train=pictures)
    first = score_queries("pixel", resources, pictures.subset([0, 1]), directory=tmp_path)
    (file,) = (tmp_path / "scores").iterdir()
    before = file.stat().st_mtime_ns
    again = score_queries("pixel", resources, pictures.subset([0, 1]), directory=tmp_path)
    assert file.stat().st_mtime_ns == before
    assert (again.variants[""] == first.variants[""]).all()
    assert again.seconds == first.seconds
    score_queries("pixel", resources, pictures.subset([0, 2]), directory=tmp_path)
    score_queries("pixel-dot", resources, pictures.subset([0, 1]), directory=tmp_path)
    assert len(list((tmp_path / "scores").iterdir())) == 3


def test_damaged_scores_are_computed_again(pictures, tmp_path):
    resources, queries = Resources(train=pictures), pictures.subset([0, 1])
    first = score_queries("pixel", resources, queries, directory=tmp_path)
    (file,) = (tmp_path / "scores").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.warns(UserWarning, match="scores of pixel in .* is damaged and computed again") as warned:
        again = score_queries("pixel", resources, queries, directory=tmp_path)
    assert len(warned) == 1
    assert (again.variants[""] == first.variants[""]).all()
    assert score_queries("pixel", resources, queries, directory=tmp_path).seconds == again.seconds


def test_a_setting_is_chosen_on_the_tuning_queries_alone():
    rng = np.random.default_rng(0)
    right, wrong = rng.random((2, 6, 30))
    tuning, reported = split(6, 0.5)
    # a is right where it is chosen, b where it is reported: choosing must not see the latter
    a, b = wrong.copy(), wrong.copy()
    a[tuning], b[reported] = right[tuning], right[reported]
    method = MethodScores("trak", {"b": b, "a": a}, {})
    report = judge([method], truth_that(right), tuning=0.5)
    assert report.chosen == {"trak": "a"}
    assert report.comparison.results["trak"].per_query.tolist() == (
        judge([MethodScores("a", {"": a[reported]}, {})], truth_that(right).select(reported))
        .comparison.results["a"]
        .per_query.tolist()
    )
    with pytest.raises(PatchtraceError, match="leave some queries"):
        method.chosen(truth_that(right), tuning[:0])


def test_a_split_shares_no_query():
    tuning, reported = split(21, 0.5, seed=3)
    assert sorted([*tuning, *reported]) == list(range(21))
    assert len(split(21, 0.0)[0]) == 0


def test_errors_say_what_would_be_right(pictures, tmp_path):
    resources = Resources(train=pictures)
    with pytest.raises(PatchtraceError, match="nda"):
        score_queries("shapley", resources, pictures)
    for name in ("gradient-dot", "tracincp", "dtrak"):
        with pytest.raises(PatchtraceError, match="give its directory"):
            score_queries(name, resources, pictures)
    assert "machine-influence" in METHODS


def test_nda_has_the_usual_recipe_unless_there_is_another(pictures):
    assert fitted("nda", Resources(train=pictures)).recipe_ == usual_recipe(pictures)
    assert (usual_recipe(pictures).draws, usual_recipe(pictures).views) == (4, ("flips",))


def test_what_a_method_requires_is_what_its_class_says():
    of_models = {"gradient-dot", "gradient-cosine", "tracincp", "gas", "trak", "dtrak"}
    assert {name for name in METHODS if requires_model(name)} == of_models
    assert METHODS["trak"][0].requires is Requires.RETRAINING
