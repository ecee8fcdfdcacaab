"""Scores from parts are NDA's scores, and no part is computed twice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from evaluate.toys import ONE, QUERIES, TRAIN, TWO, counted_calls, pictures

from patchtrace import NDA, Compute, Level, PatchtraceError, Recipe, Scale
from patchtrace.engines import get_engine
from patchtrace.evaluate import partial_scores
from patchtrace.evaluate.axes import with_gamma
from patchtrace.evaluate.partial_scores import PartialScores, terms_of


@pytest.fixture
def calls(monkeypatch):
    """How many versions of a query the engine compares, one entry for each call."""
    return counted_calls(monkeypatch)


RECIPES = {
    "two scales": TWO,
    "another gamma": with_gamma(TWO, 0.4),
    "one scale alone": with_gamma(TWO, 0),
    "patchworks": replace(TWO, draws=3),
    "many draws": replace(TWO, draws=20),
    "flips": replace(TWO, views=("flips",), draws=2),
    "exponent": replace(TWO, exponent=1.5),
    "zero, mean": replace(TWO, border="zero", pooling="mean", seed=3),
    "valid, all patches": replace(TWO, border="valid", k=10**6),
    "cosine": replace(TWO, schedule="cosine"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_scores_from_parts_are_those_of_nda(name):
    recipe = RECIPES[name]
    queries = QUERIES.subset(range(3))
    expected = NDA(recipe, compute=Compute(threads=1)).fit(TRAIN).attribute(queries).scores
    np.testing.assert_allclose(
        PartialScores(TRAIN, queries, compute=Compute(threads=1)).scores(recipe), expected, rtol=1e-5
    )


@pytest.mark.parametrize("draws", [1, 2, 5])
def test_scores_from_parts_are_those_of_nda_where_draws_come_in_pairs(draws):
    train, queries = pictures(5, (1, 20, 20)), pictures(2, (1, 20, 20), seed=1)
    recipe = replace(TWO, draws=draws)
    expected = NDA(recipe, compute=Compute(threads=1)).fit(train).attribute(queries).scores
    np.testing.assert_allclose(
        PartialScores(train, queries, compute=Compute(threads=1)).scores(recipe), expected, rtol=1e-5
    )


def test_recipes_share_what_they_have_in_common(calls):
    store = PartialScores(TRAIN, QUERIES, compute=Compute(threads=1))
    store.scores(replace(TWO, draws=8))
    calls.clear()
    for recipe in (replace(TWO, draws=4), replace(TWO, draws=8, exponent=2), with_gamma(replace(TWO, draws=8), 0.1)):
        store.scores(recipe)
        store.scores(replace(recipe, levels=recipe.levels[1:]))
    assert calls == []
    store.scores(replace(TWO, draws=10))
    assert sum(calls) == len(QUERIES) * 4 * 2  # four scales, two more draws


def test_settings_that_cannot_matter_make_no_parts():
    a, b = (terms_of(replace(ONE, k=k, pooling=how), (8, 8)) for k, how in ((64, "mean"), (999, "orthonormal")))
    assert a == b


def test_levels_of_one_patch_size_go_through_the_engine_together(calls):
    levels = tuple(Level(t, (Scale(3),)) for t in (50, 100, 200, 300))
    PartialScores(TRAIN, QUERIES, compute=Compute(threads=1)).scores(Recipe(levels))
    assert calls == [4] * len(QUERIES)


def test_a_second_run_computes_nothing(tmp_path, calls):
    first = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1))
    expected, seconds = first.scores(TWO), first.seconds(TWO)
    assert calls
    calls.clear()
    again = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1))
    np.testing.assert_array_equal(again.scores(TWO), expected)
    assert again.seconds(TWO) == seconds > 0
    assert calls == []


def test_rows_are_made_for_the_queries_asked_for(calls):
    store = PartialScores(TRAIN, QUERIES, compute=Compute(threads=1))
    some = store.scores(ONE, [7, 2])
    assert len(calls) == 2
    np.testing.assert_array_equal(store.scores(ONE)[[7, 2]], some)
    assert len(calls) == len(QUERIES)


@pytest.mark.parametrize("changed", ["train", "queries", "seed"])
def test_parts_of_other_pictures_or_noise_are_not_used(tmp_path, calls, changed):
    PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
    calls.clear()
    pixels = TRAIN.pixels.copy()
    pixels[3, 0, 0, 0] ^= 1
    train = replace(TRAIN, pixels=pixels) if changed == "train" else TRAIN
    queries = QUERIES.subset(range(9, -1, -1)) if changed == "queries" else QUERIES
    recipe = replace(ONE, seed=1) if changed == "seed" else ONE
    store = PartialScores(train, queries, directory=tmp_path, compute=Compute(threads=1))
    np.testing.assert_allclose(
        store.scores(recipe), NDA(recipe, compute=Compute(threads=1)).fit(train).attribute(queries).scores, rtol=1e-5
    )
    assert calls


def test_a_damaged_file_is_made_anew(tmp_path):
    expected = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
    (path,) = tmp_path.glob("*.npz")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 255
    for content in (raw, raw[:100]):
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="damaged and computed again"):
            again = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
        np.testing.assert_array_equal(again, expected)


def test_parts_beyond_the_memory_are_read_from_their_files(tmp_path, monkeypatch, calls):
    recipe = replace(TWO, draws=4)
    expected = PartialScores(TRAIN, QUERIES, compute=Compute(threads=1)).scores(recipe)
    calls.clear()
    monkeypatch.setattr(PartialScores, "_most_held", 2)
    store = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1))
    store.scores(recipe)
    assert len(store._held) == 2
    calls.clear()
    np.testing.assert_allclose(store.scores(recipe), expected, rtol=1e-6)
    assert calls == []


def test_a_full_disk_is_said_before_the_work(tmp_path, monkeypatch, calls):
    monkeypatch.setattr(partial_scores.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 100})())
    with pytest.raises(PatchtraceError, match="1 parts of scores need"):
        PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
    assert calls == []


def test_draws_that_are_not_a_number_are_refused():
    with pytest.raises(PatchtraceError, match="draws=4"):
        terms_of(replace(ONE, draws="auto"), (8, 8))


def test_an_interrupted_run_keeps_what_it_has_made(tmp_path, calls, monkeypatch):
    engine = type(get_engine(Compute()))
    compare = engine.compare

    def interrupted(self, *arguments, **more):
        if len(calls) == 4:
            raise KeyboardInterrupt
        return compare(self, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(engine, "compare", interrupted)
        with pytest.raises(KeyboardInterrupt):
            PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
    calls.clear()
    scores = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(ONE)
    assert len(calls) == len(QUERIES) - 4
    np.testing.assert_array_equal(scores, PartialScores(TRAIN, QUERIES, compute=Compute(threads=1)).scores(ONE))


KILLED = """
import sys
from pathlib import Path
from evaluate.toys import QUERIES, TRAIN, TWO
from patchtrace import Compute
from patchtrace.evaluate import partial_scores
partial_scores.SECONDS_BETWEEN_SAVES = 0.0
make = partial_scores.LocalWork.masses
made = 0
def stalling(self, jobs):
    global made
    for found in make(self, jobs):
        made += 1
        if made == 9:
            print("stalled", flush=True)
            sys.stdin.read()
        yield found
partial_scores.LocalWork.masses = stalling
partial_scores.PartialScores(TRAIN, QUERIES, directory=Path(sys.argv[1]), compute=Compute(threads=1)).scores(TWO)
"""


def test_a_killed_run_goes_on_where_it_was(tmp_path, calls):
    tests = Path(__file__).parent.parent
    command = [sys.executable, "-c", KILLED, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tests) as process:
        assert process.stdout.readline() == b"stalled\n"
        process.kill()
    scores = PartialScores(TRAIN, QUERIES, directory=tmp_path, compute=Compute(threads=1)).scores(TWO)
    assert len(calls) == 4 * len(QUERIES) - 8
    np.testing.assert_array_equal(scores, PartialScores(TRAIN, QUERIES, compute=Compute(threads=1)).scores(TWO))
