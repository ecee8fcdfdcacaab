"""Ablation: each axis finds what made the truth, work is done once, and a wrong truth is refused."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from evaluate.toys import ONE, QUERIES, TRAIN, TWO, counted_calls, truth_of
from PIL import Image

from patchtrace import NDA, ImageSet, Level, PatchtraceError, Scale
from patchtrace.compute import Compute
from patchtrace.evaluate.ablation import Ablation, draw, write_rows
from patchtrace.evaluate.axes import AXES, Axes, with_gamma
from patchtrace.evaluate.lds import lds

ONE_THREAD = Compute(threads=1)
pytestmark = pytest.mark.slow

#: Fewer values than by default, so that tests are short.
VALUES = {"timestep": [100, 300, 700], "patch": [3, 5], "pooled-patch": [4, 6], "k": [1, 7, 30], "draws": [1, 2, 4]}


def ablation(truth, train=TRAIN, queries=QUERIES, **options):
    return Ablation(
        train, queries, truth, **{"base": TWO, "values": VALUES, "resamples": 20, "compute": ONE_THREAD, **options}
    )


@pytest.mark.parametrize(
    ("axis", "value", "true"),
    [
        ("gamma", 0.25, with_gamma(TWO, 0.25)),
        ("gamma", 0, with_gamma(TWO, 0)),
        ("k", 1, replace(TWO, k=1)),
        ("largest-t", 100, replace(TWO, levels=TWO.levels[:1])),
        ("largest-t", 700, replace(TWO, levels=(*TWO.levels, Level(700, TWO.levels[1].scales)))),
        ("border", "zero", replace(TWO, border="zero")),
        ("pooling", "mean", replace(TWO, pooling="mean")),
        ("draws", 4, replace(TWO, draws=4)),
        ("flips", "with", replace(TWO, views=("flips",))),
        ("exponent", 2, replace(TWO, exponent=2)),
    ],
)
def test_an_axis_finds_the_setting_that_made_the_truth(axis, value, true):
    rows = [row for row in ablation(truth_of(true)).run([axis]) if row.series == "all levels"]
    assert {row.value: row.lds == pytest.approx(1) for row in rows} == {row.value: row.value == value for row in rows}
    assert [row.value for row in rows if row.is_base] == [own(axis)]


def own(axis):
    """The value of TWO."""
    named = {"gamma": 0.75, "largest-t": 300, "flips": "without"}
    return named[axis] if axis in named else getattr(TWO, axis)


@pytest.mark.parametrize(("axis", "patch", "pool"), [("patch-timestep", 5, 1), ("pooled-patch-timestep", 6, 2)])
def test_patch_size_and_timestep_that_made_the_truth(axis, patch, pool):
    rows = ablation(truth_of(replace(TWO, levels=(Level(100, (Scale(patch, pool),)),)))).run([axis])
    assert len(rows) == 3 * 2
    best = max(rows, key=lambda row: row.lds)
    assert (best.series, best.value) == ("t = 100", patch)
    assert best.lds == pytest.approx(1)


def test_rows_are_the_lds_of_nda():
    truth = truth_of(TWO, noise=2.0)
    rows = ablation(truth).run(["k"])
    recipe = replace(TWO, k=30, levels=TWO.levels[1:])
    scores = NDA(recipe, compute=Compute(threads=1)).fit(TRAIN).attribute(QUERIES).scores
    expected = lds(scores, truth.subsets, truth.losses, resamples=20)
    (row,) = [row for row in rows if (row.series, row.value) == ("t = 300", 30)]
    assert (row.lds, row.low, row.high) == pytest.approx((expected.mean, *expected.interval))
    assert row.low < row.lds < row.high
    (base,) = [row for row in rows if row.is_base]
    assert (base.gain, base.gain_low, base.gain_high) == (0, 0, 0)
    assert row.gain == pytest.approx(row.lds - base.lds)
    assert row.gain_low < row.gain < row.gain_high


def test_a_run_over_all_axes_and_the_next_one(tmp_path, monkeypatch):
    truth, reported = truth_of(TWO, noise=1.0), []
    rows = ablation(truth, cache=tmp_path / "parts").run(progress=lambda done, total: reported.append((done, total)))
    assert {row.axis for row in rows} == set(AXES)
    assert reported[-1][0] == reported[-1][1] > 0
    assert all(row.seconds > 0 for row in rows)
    calls = counted_calls(monkeypatch)
    again = ablation(truth, cache=tmp_path / "parts")
    assert again.plan().missing == 0
    assert again.run() == rows
    assert calls == []

    write_rows(rows, tmp_path / "ablation.csv")
    with (tmp_path / "ablation.csv").open(newline="") as stream:
        read = list(csv.DictReader(stream))
    assert [(row["axis"], row["value"]) for row in read] == [(row.axis, str(row.value)) for row in rows]
    np.testing.assert_allclose([float(row["lds"]) for row in read], [row.lds for row in rows])
    written = draw(rows, tmp_path)
    assert [path.stem for path in written] == list(AXES)
    for path in written:
        with Image.open(path) as picture:
            picture.load()
            assert min(picture.size) > 200


def test_what_a_plan_says_is_what_lies_on_the_disk(tmp_path):
    study = ablation(truth_of(TWO), cache=tmp_path)
    plan = study.plan(["gamma", "exponent"])
    assert plan.missing == len(plan.parts) == 4  # two levels of two scales, whatever the weights and the exponent
    study.run(["gamma", "exponent"])
    files = list(tmp_path.iterdir())
    assert len(files) == 4
    assert plan.bytes <= sum(file.stat().st_size for file in files) < plan.bytes + 4 * 2000


def test_an_axis_without_meaning_is_left_out_or_refused():
    study = ablation(truth_of(ONE), base=ONE)
    assert {setting.axis for setting in study.plan().settings} == set(AXES) - {"gamma", "pooling"}
    with pytest.raises(PatchtraceError, match="full and a pooled scale"):
        study.plan(["k", "gamma"])


@pytest.mark.parametrize(
    ("values", "axis", "match"),
    [
        ({}, "kk", "patch-timestep"),
        ({"kk": [1]}, "k", "pooled-patch"),
        ({"k": []}, "k", "give some"),
        ({"k": [1.5]}, "k", "k is 1.5: use whole numbers"),
        ({"gamma": [1.5]}, "gamma", "from 0 to 1"),
        ({"exponent": [0]}, "exponent", "greater than 0"),
    ],
)
def test_names_and_values_that_cannot_be_are_refused(values, axis, match):
    with pytest.raises(PatchtraceError, match=match):
        Axes(TWO, (8, 8), values).of(axis)


def test_values_that_pictures_or_schedule_do_not_have_are_left_out():
    axes = Axes(TWO, (8, 10), {"timestep": [100, 5000], "patch": [3, 9], "k": [7, 80, 500, 600]})
    assert {setting.series for setting in axes.of("patch-timestep")} == {"t = 100"}
    assert axes.patches() == [3]
    assert axes.ks() == [7, 80]  # there are 8 x 10 patches of 3


@pytest.mark.parametrize("wrong", ["fewer images", "fewer queries", "order", "pixels"])
def test_a_truth_of_other_pictures_is_refused(wrong):
    truth = truth_of(ONE)
    train = {"fewer images": TRAIN.subset(range(20)), "order": TRAIN.subset(range(23, -1, -1))}.get(wrong, TRAIN)
    queries = QUERIES.subset(range(5)) if wrong == "fewer queries" else QUERIES
    if wrong == "pixels":
        train = ImageSet(np.roll(TRAIN.pixels, 1, axis=0), TRAIN.ids)
    with pytest.raises(PatchtraceError, match="about other pictures than these"):
        ablation(truth, train, queries).run(["exponent"])
