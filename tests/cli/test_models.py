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


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], "--queries PATH or --generated N"),
        (["--generated", 2, "--queries", "."], "--queries PATH or --generated N"),
        (["--generated", 2, "--classes", "label"], "folders"),
    ],
)
def test_wrong_usage(call, pictures, tmp_path, more, told):
    code, _, err = call("lds", *pictures, *more, "-o", tmp_path / "out")
    assert (code, told in err) == (2, True)
