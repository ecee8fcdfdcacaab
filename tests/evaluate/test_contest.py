"""Methods by their names, and settings that are chosen on queries that are not reported."""

from __future__ import annotations

import numpy as np
import pytest

from patchtrace import PatchtraceError
from patchtrace.evaluate.contest import CONTESTANTS, Entry, Workbench, chosen_scores, enter
from patchtrace.evaluate.truth import GroundTruth, make_subsets, split
from patchtrace.images import ImageSet


@pytest.fixture
def pictures() -> ImageSet:
    return ImageSet.open(np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8))


def truth_that(scores: np.ndarray) -> GroundTruth:
    """The truth that these scores foretell exactly."""
    subsets = make_subsets(scores.shape[1], 20)
    ids = tuple(map(str, range(scores.shape[1])))
    return GroundTruth(subsets, -(subsets @ scores.T), ids, ids[: len(scores)])


def test_scores_are_kept_and_found_again(pictures, tmp_path):
    bench = Workbench(train=pictures, directory=tmp_path)
    first = enter("pixel", bench, pictures.subset([0, 1]))
    (file,) = (tmp_path / "scores").iterdir()
    before = file.stat().st_mtime_ns
    again = enter("pixel", bench, pictures.subset([0, 1]))
    assert file.stat().st_mtime_ns == before
    assert (again.variants[""] == first.variants[""]).all()
    assert again.seconds == first.seconds
    enter("pixel", bench, pictures.subset([0, 2]))
    enter("pixel-dot", bench, pictures.subset([0, 1]))
    assert len(list((tmp_path / "scores").iterdir())) == 3


def test_a_setting_is_chosen_on_the_tuning_queries_alone():
    rng = np.random.default_rng(0)
    right, wrong = rng.random((2, 6, 30))
    tuning, reported = np.array([0, 1, 2]), np.array([3, 4, 5])
    # a is right where it is chosen, b where it is reported: choosing must not see the latter
    a, b = wrong.copy(), wrong.copy()
    a[tuning], b[reported] = right[tuning], right[reported]
    entry = Entry("trak", "", 1.0, {}, {"b": b, "a": a})
    scores, chosen = chosen_scores([entry], truth_that(right), tuning)
    assert chosen == {"trak": "a"}
    assert (scores["trak"] == a).all()
    with pytest.raises(PatchtraceError, match="leave some queries"):
        entry.chosen(truth_that(right), tuning[:0])


def test_a_split_shares_no_query():
    tuning, reported = split(21, 0.5, seed=3)
    assert sorted([*tuning, *reported]) == list(range(21))
    assert len(split(21, 0.0)[0]) == 0


def test_errors_say_what_would_be_right(pictures, tmp_path):
    bench = Workbench(train=pictures, directory=tmp_path)
    with pytest.raises(PatchtraceError, match="nda"):
        enter("shapley", bench, pictures)
    for name in ("gradient-dot", "tracincp", "dtrak"):
        with pytest.raises(PatchtraceError, match="say which"):
            enter(name, bench, pictures)
    assert "machine-influence" in CONTESTANTS
