"""patchtrace ablate and patchtrace tune, on folders of pictures and a truth that a known recipe made."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from patchtrace import Compute, ImageSet, Level, Recipe, Scale
from patchtrace.evaluate.partial_scores import PartialScores
from patchtrace.evaluate.truth import GroundTruth, make_subsets

pytestmark = pytest.mark.slow

BASE = Recipe((Level(100, (Scale(3, weight=0.75), Scale(4, pool=2, weight=0.25))),), k=5)


@pytest.fixture
def study(tmp_path):
    """Arguments for a truth of 20 images and 8 queries that the base recipe with flips predicts."""
    rng = np.random.default_rng(0)
    for folder, count in (("train", 20), ("queries", 8)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            coarse = rng.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse.repeat(2, axis=0).repeat(2, axis=1)).save(tmp_path / folder / f"{number:02d}.png")
    train, queries = (ImageSet.open(tmp_path / folder) for folder in ("train", "queries"))
    subsets = make_subsets(20, 32)
    losses = -(
        subsets @ PartialScores(train, queries, compute=Compute(threads=1)).scores(replace(BASE, views=("flips",))).T
    )
    losses += 0.3 * losses.std(axis=0) * rng.standard_normal(losses.shape)
    GroundTruth(subsets, losses, train.ids, queries.ids, {"train": train.fingerprint()}).save(tmp_path / "truth.npz")
    (tmp_path / "base.toml").write_text(BASE.to_toml())
    where = ["--train", tmp_path / "train", "--queries", tmp_path / "queries", "--size", "8"]
    how = ["--recipe", tmp_path / "base.toml", "--resamples", 20, "--threads", 1]
    return [tmp_path / "truth.npz", *where, *how]


def test_ablate_ends_in_tables_and_figures(call, study, tmp_path):
    few = ["--axes", "gamma,flips, pooled-patch-timestep", "--values", "timestep=100,200", "--values", "gamma=0.1,0.75"]
    code, out, err = call("ablate", *study, *few, "-o", tmp_path / "out")
    assert code == 0
    assert "* is the base recipe" in out
    assert "to be computed" in err
    with (tmp_path / "out" / "ablation.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {row["axis"] for row in rows} == {"gamma", "flips", "pooled-patch-timestep"}
    assert [row["value"] for row in rows if row["axis"] == "gamma"] == ["0.1", "0.75"]
    flips = {row["value"]: float(row["lds"]) for row in rows if row["axis"] == "flips"}
    assert flips["with"] > flips["without"]
    assert f"{100 * flips['with']:.1f}" in out
    assert {path.name for path in (tmp_path / "out").glob("*.png")} == {
        "gamma.png",
        "flips.png",
        "pooled-patch-timestep.png",
    }
    code, again, err = call("ablate", *study, *few, "-o", tmp_path / "out")
    assert again == out  # the seconds too: they are those of the parts, which are kept
    assert " 0 to be computed" in err
    assert call("ablate", *study, "--axes", "flips", "-o", tmp_path / "out", "-q")[0] == 0
    assert [path.name for path in (tmp_path / "out").glob("*.png")] == ["flips.png"]


def test_tune_writes_a_recipe_that_attribute_takes(call, study, tmp_path):
    best = tmp_path / "best" / "recipe.toml"
    code, out, err = call("tune", *study, "--search", "flips,exponent", "-o", best)
    assert code == 0
    assert "flips with" in out
    assert "flatters" in out
    assert "had no say" in out
    assert str(best) in err
    assert Recipe.load(best).views == ("flips",)
    assert {path.name for path in best.parent.iterdir()} == {
        "recipe.toml",
        "recipe.csv",
        "recipe-steps.csv",
        "recipe.png",
        "parts",
    }
    query = tmp_path / "queries" / "00.png"
    assert call("attribute", query, "--train", tmp_path / "train", "--size", 8, "--recipe", best)[0] == 0


def test_tune_uses_the_parts_of_ablate(call, study, tmp_path):
    out = tmp_path / "out"
    call("ablate", *study, "--axes", "flips", "-o", out)
    made = {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()}
    assert call("tune", *study, "--search", "flips", "--cache", out / "parts", "-o", tmp_path / "recipe.toml")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "parts").iterdir()} == made


def test_a_truth_of_other_pictures_is_refused(call, study, tmp_path):
    code, _, err = call("ablate", *study, "--limit", 19, "-o", tmp_path / "out")
    assert code == 1
    assert "19" in err
    (tmp_path / "queries" / "00.png").rename(tmp_path / "queries" / "99.png")
    code, _, err = call("ablate", *study, "-o", tmp_path / "out")
    assert code == 1
    assert "'01.png'" in err
    assert not (tmp_path / "out" / "parts").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--axes", "gama"], "largest-t"),
        (["--values", "k"], "NAME=NUMBER"),
        (["--values", "size=3"], "pooled-patch"),
        (["--preset", "cifar"], "use one of them"),
        (["--memory", "lots"], "memory"),
    ],
)
def test_wrong_usage_is_said_before_the_work(call, study, tmp_path, arguments, said):
    code, _, err = call("ablate", *study, *arguments, "-o", tmp_path / "out")
    assert code == 2
    assert said in err


def test_draws_auto_and_endings_that_are_no_recipe(call, study, tmp_path):
    (tmp_path / "base.toml").write_text(replace(BASE, draws="auto").to_toml())
    code, _, err = call("tune", *study, "-o", tmp_path / "recipe.toml")
    assert code == 2
    assert "--draws N" in err
    code, _, err = call("tune", *study, "--draws", 2, "-o", tmp_path / "recipe.txt")
    assert code == 2
    assert ".toml" in err
    code, _, _ = call("tune", *study, "--draws", 2, "--search", "exponent", "-o", tmp_path / "recipe.toml", "-q")
    assert code == 0
    assert Recipe.load(tmp_path / "recipe.toml").draws == 2


@pytest.mark.parametrize("verb", ["ablate", "tune"])
def test_help_has_examples(call, verb):
    code, out, _ = call(verb, "--help")
    assert code == 0
    assert f"patchtrace {verb} truth.npz" in out
    assert "flatters" in out
