"""Tuning finds what is better, by the tuning queries alone, and says how it does on the others."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from evaluate.toys import ONE, QUERIES, TRAIN, TWO, counted_calls, truth_of
from PIL import Image

from patchtrace import Level, PatchtraceError, Recipe, Scale
from patchtrace.compute import Compute
from patchtrace.evaluate.lds import lds
from patchtrace.evaluate.partial_scores import PartialScores
from patchtrace.evaluate.tuning import Tuning

VALUES = {"timestep": [20, 100, 300], "patch": [3, 5, 7], "pooled-patch": [4, 6], "k": [1, 7, 30]}


def tuning(truth, base=TWO, **options):
    return Tuning(TRAIN, QUERIES, truth, base=base, values=VALUES, resamples=50, compute=Compute(threads=1), **options)


def test_it_finds_the_better_setting_through_noise():
    better = replace(TWO, views=("flips",), exponent=2)
    found = tuning(truth_of(better, noise=0.5)).run(["flips", "border", "exponent"])
    assert found.recipe == better
    assert [step.change for step in found.steps] == ["flips with", "exponent 2"]
    assert found.held_out.gain.interval[0] > 0


def test_it_finds_levels_and_patches():
    base, better = Recipe((Level(20, (Scale(7),)),)), Recipe((Level(300, (Scale(3),)),))
    found = tuning(truth_of(better), base).run(["levels", "patch"], rounds=4)
    assert found.recipe == better
    assert found.held_out.chosen.mean == pytest.approx(1)


def test_a_gain_that_may_be_chance_is_not_taken():
    truth = truth_of(replace(TWO, views=("flips",)), noise=4.0)
    assert tuning(truth).run(errors=0).steps
    assert tuning(truth).run(errors=100).steps == ()


def test_where_nothing_is_better_the_base_recipe_stays():
    found = tuning(truth_of(TWO)).run(["flips", "patch", "gamma", "k", "exponent"])
    assert found.recipe == TWO
    assert found.steps == ()
    assert found.held_out.gain.mean == 0
    assert "nothing that was tried was better" in found.summary()[0]


def test_queries_that_report_have_no_say():
    truth = truth_of(replace(TWO, views=("flips",)), noise=1.0)
    found = tuning(truth).run()
    losses = truth.losses.copy()
    losses[:, found.held_out.queries] = np.random.default_rng(0).standard_normal((48, 5))
    other = tuning(replace(truth, losses=losses)).run()
    assert sorted([*found.tuning.queries, *found.held_out.queries]) == list(range(10))
    assert other.recipe == found.recipe
    assert other.steps == found.steps
    assert other.held_out.chosen.mean != found.held_out.chosen.mean


def test_the_search_costs_the_queries_that_report_nothing(monkeypatch, tmp_path):
    truth = truth_of(ONE)
    calls = counted_calls(monkeypatch)
    found = tuning(truth, ONE, cache=tmp_path).run(["k"], fraction=0.3)
    # four k (three, and the base recipe's own) on the three that choose; on the seven others only the base recipe
    assert sum(calls) == 3 * 4 + 7
    assert found.steps == ()
    calls.clear()
    tuning(truth, ONE, cache=tmp_path).run(["k"], fraction=0.3)
    assert calls == []


def test_figures_are_those_of_the_queries_they_name():
    truth = truth_of(replace(TWO, views=("flips",)), noise=1.0)
    found = tuning(truth).run(["flips", "gamma"], seed=3)
    store = PartialScores(TRAIN, QUERIES, compute=Compute(threads=1))
    for judged in (found.tuning, found.held_out):
        for recipe, given in ((TWO, judged.base), (found.recipe, judged.chosen)):
            some = truth.select(judged.queries)
            expected = lds(store.scores(recipe, judged.queries), some.subsets, some.losses, resamples=50)
            assert (given.mean, given.interval) == (pytest.approx(expected.mean), pytest.approx(expected.interval))
        assert judged.gain.mean == pytest.approx(judged.chosen.mean - judged.base.mean)
    assert found.steps[-1].lds == pytest.approx(found.tuning.chosen.mean)


def test_the_recipe_file_says_how_it_was_chosen(tmp_path):
    found = tuning(truth_of(replace(TWO, views=("flips",)), noise=0.5)).run(["flips"])
    written = found.save(tmp_path / "best.toml")
    assert [path.name for path in written] == ["best.toml", "best.csv", "best-steps.csv", "best.png"]
    assert Recipe.load(tmp_path / "best.toml") == found.recipe == replace(TWO, views=("flips",))
    comments = [line for line in written[0].read_text().splitlines() if line.startswith("#")]
    assert any("flatters" in line for line in comments)
    assert any("had no say" in line and str(found.held_out.chosen) in line for line in comments)
    with written[1].open(newline="") as stream:
        rows = {(row["recipe"], row["queries"]): row for row in csv.DictReader(stream)}
    assert float(rows["gain", "held out"]["lds"]) == pytest.approx(found.held_out.gain.mean)
    assert rows["chosen", "tuning"]["count"] == "5"
    with written[2].open(newline="") as stream:
        assert [row["change"] for row in csv.DictReader(stream)] == ["flips with"]
    with Image.open(written[3]) as picture:
        picture.load()
        assert min(picture.size) > 200


@pytest.mark.parametrize(
    ("options", "match"),
    [({"fraction": 0.01}, "leaves none on one side"), ({"coordinates": ["flip"]}, "flips, border")],
)
def test_a_search_that_cannot_be_is_refused(options, match):
    with pytest.raises(PatchtraceError, match=match):
        tuning(truth_of(ONE), ONE).run(**options)
