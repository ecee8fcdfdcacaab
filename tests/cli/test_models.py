"""From a folder of pictures to a judged table: train, sample, lds, with real models of a few thousand parameters."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from networks import TINY
from PIL import Image

from patchtrace.evaluate.truth import GroundTruth
from patchtrace.methods.base import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def pictures(tmp_path):
    """Two classes of little pictures in folders, others as queries, and a network for them."""
    rng = np.random.default_rng(0)
    for folder, count in (("train/dark", 10), ("train/light", 10), ("others", 6)):
        (tmp_path / folder).mkdir(parents=True)
        for number in range(count):
            coarse = rng.integers(0, 128, (4, 4, 3)) + 128 * ("light" in folder)
            pixels = coarse.astype(np.uint8).repeat(2, axis=0).repeat(2, axis=1)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    return ["--train", tmp_path / "train", "--size", 8, "--model", tmp_path / "tiny.json", "--batch", 8, "--epochs", 2]


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


def test_train_and_sample(call, pictures, tmp_path):
    code, _, err = call("train", *pictures, "-o", tmp_path / "model", "--checkpoints", 2)
    assert code == 0, err
    assert "parameters" in err
    assert len(list((tmp_path / "model" / "checkpoints").iterdir())) == 1
    assert call("train", *pictures, "-o", tmp_path / "model", "--checkpoints", 2)[0] == 0  # it is there
    code, _, err = call("train", *pictures, "-o", tmp_path / "model", "--train-seed", 1)
    assert (code, "other images or settings" in err) == (1, True)
    made = tmp_path / "made"
    assert call("sample", tmp_path / "model", "-n", 5, "--steps", 3, "-o", made)[0] == 0
    assert call("sample", tmp_path / "model", "-n", 3, "--steps", 3, "-o", made)[0] == 0
    assert sorted(path.name for path in made.iterdir()) == [f"sample-000{i}.png" for i in range(3)]
    assert size_of(made / "sample-0000.png") == (8, 8)
    code, _, err = call("sample", tmp_path, "-o", made)
    assert (code, "ddpm-small" in err) == (1, True)


def test_the_whole_pipeline(call, pictures, tmp_path):
    """Eight subsets, every method there is, queries of others and of the model's own."""
    how = [
        "--subsets",
        8,
        "--classes",
        "folders",
        "--loss-timesteps",
        3,
        "--loss-draws",
        1,
        "--threads",
        1,
        "--draws",
        2,
        "--shortlist",
        10,
    ]
    every = [argument for name in METHODS for argument in ("--method", name)]
    out = tmp_path / "lds"
    code, table, err = call("lds", *pictures, *how, *every, "--queries", tmp_path / "others", "-o", out)
    assert code == 0, err
    assert [line.split()[0] for line in table.splitlines()[1:]].count("nda") == 1
    assert "chosen on 3 other queries: trak" in table
    with (out / "lds.csv").open() as stream:
        rows = {row["method"]: row for row in csv.DictReader(stream)}
    assert set(rows) == set(METHODS)
    assert {row["queries"] for row in rows.values()} == {"3"}
    assert all(float(row["low"]) <= float(row["lds"]) <= float(row["high"]) for row in rows.values())
    assert size_of(out / "lds.png")[0] > 400
    truth = GroundTruth.load(out / "truth.npz")
    assert truth.subsets.shape == (8, 20)
    dark = [name.startswith("dark") for name in truth.train_ids]
    assert (truth.subsets[:, dark].sum(axis=1) == 5).all()
    models = set((out / "models").iterdir())
    # the same models serve other queries
    code, table, err = call("lds", *pictures, *how, "--generated", 3, "--method", "pixel", "-o", out)
    assert code == 0, err
    assert set((out / "models").iterdir()) == models
    assert GroundTruth.load(out / "truth.npz").query_ids[0] == "generated-0000"


def test_parts_of_the_work(call, pictures, tmp_path):
    how = [
        "--subsets",
        3,
        "--loss-timesteps",
        2,
        "--loss-draws",
        1,
        "--queries",
        tmp_path / "others",
        "-o",
        tmp_path / "o",
    ]
    code, out, err = call("lds", *pictures, *how, "--shard", "1/2")
    assert (code, out) == (0, "")
    assert "1 of 3 models are left" in err
    code, out, _ = call("lds", *pictures, *how, "--shard", "2/2", "--method", "random")
    assert (code, "random" in out) == (0, True)
    assert call("lds", *pictures, *how, "--shard", "3/2")[0] == 2


FEW = ["--loss-timesteps", 2, "--loss-draws", 1, "--method", "random"]


def test_published_subsets_in_packed_bits(call, pictures, tmp_path):
    subsets = np.random.default_rng(0).random((4, 20)) < 0.5
    np.save(tmp_path / "subsets.npy", np.packbits(subsets, axis=1))
    how = [*pictures, *FEW, "--queries", tmp_path / "others"]
    code, _, err = call("lds", *how, "--subsets", tmp_path / "subsets.npy", "-o", tmp_path / "o")
    assert code == 0, err
    np.testing.assert_array_equal(GroundTruth.load(tmp_path / "o" / "truth.npz").subsets, subsets)
    # a truth is a file of subsets too
    code, _, err = call("lds", *how, "--subsets", tmp_path / "o" / "truth.npz", "-o", tmp_path / "o")
    assert code == 0, err
    np.save(tmp_path / "other.npy", subsets[:, :19])
    code, _, err = call("lds", *how, "--subsets", tmp_path / "other.npy", "-o", tmp_path / "o")
    assert (code, "subsets have 19 columns: use 20" in err) == (1, True)


def test_a_dry_run_prints_how_long_it_will_take_and_writes_nothing(call, pictures, tmp_path):
    how = [*pictures, *FEW, "--subsets", 3, "-o", tmp_path / "new" / "out"]
    for queries in (["--queries", tmp_path / "others"], ["--generated", 2]):
        code, out, err = call("lds", *how, *queries, "--dry-run")
        assert (code, err) == (0, "")
        assert out.startswith("3 models to train, 3 steps each: ")
        assert ("for the model of all images" in out) == ("--generated" in queries)
    assert not (tmp_path / "new").exists()
    code, out, err = call("lds", *how, "--queries", tmp_path / "others")
    assert code == 0, err
    assert "3 models to train, 3 steps each: " in err
    assert call("lds", *how, "--queries", tmp_path / "others", "--dry-run")[1] == "all models are trained already\n"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--generated", 2, "--subsets", "2"], "'2' is neither a number from 3 on nor a file"),
        (["--generated", 2, "--subsets", "none.npy"], "is neither a number from 3 on nor a file"),
        (["--generated", 2, "--subsets", __file__, "--fraction", "0.3"], "--fraction has no meaning with --subsets"),
        (["--generated", 2, "--subsets", __file__, "--classes", "folders"], "--classes has no meaning with --subsets"),
        ([], "--queries PATH or --generated N"),
        (["--generated", 2, "--queries", "."], "--queries PATH or --generated N"),
        (["--generated", 2, "--classes", "label"], "folders"),
    ],
)
def test_wrong_usage(call, pictures, tmp_path, more, told):
    code, _, err = call("lds", *pictures, *more, "-o", tmp_path / "out")
    assert (code, told in err) == (2, True)
