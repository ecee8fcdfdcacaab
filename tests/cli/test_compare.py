"""patchtrace compare: which run predicts retraining best, in a table, a CSV and a figure."""

from __future__ import annotations

import csv
import json
import sys

import numpy as np
import pytest
from PIL import Image

from patchtrace import Attribution, ImageSet, PixelSimilarity
from patchtrace.evaluate import GroundTruth, lds, make_subsets

pytestmark = pytest.mark.slow

TRAIN, QUERIES = tuple(f"train/{i}.png" for i in range(30)), tuple(f"query {i}" for i in range(6))


@pytest.fixture
def truth():
    """Losses that are minus the sum of `scores` and noise of about the same size."""
    rng = np.random.default_rng(0)
    subsets = make_subsets(30, 24)
    losses = rng.normal(0, 1.5, (24, 6)) - subsets @ scores().T
    return GroundTruth(subsets, losses, TRAIN, QUERIES, {"seeds": 1})


def scores():
    return np.random.default_rng(1).random((6, 30)).astype(np.float32)


def saved(directory, values, query_ids=QUERIES, train_ids=TRAIN):
    return Attribution(values, values / 30, query_ids, train_ids, "made-up", {"k": 3}).save(directory)


@pytest.fixture
def runs(tmp_path):
    rng = np.random.default_rng(2)
    near = scores() + rng.normal(0, 0.2, (6, 30)).astype(np.float32)
    saved(tmp_path / "runs" / "good", scores())
    saved(tmp_path / "runs" / "near", near)
    saved(tmp_path / "runs" / "chance", rng.random((6, 30)).astype(np.float32))
    return tmp_path / "runs"


@pytest.fixture
def file(truth, tmp_path):
    return truth.save(tmp_path / "truth.npz")


def test_a_table_on_stdout_the_best_first(call, file, runs, truth):
    code, out, err = call("compare", file, runs / "chance", runs / "good", f"close={runs / 'near'}")
    assert (code, err) == (0, "")
    header, *lines = out.splitlines()
    assert " ".join(header.split()) == "method LDS % 95 % interval p against good 95 % interval p"
    assert [line.split()[0] for line in lines] == ["good", "close", "chance"]
    found = lds(scores(), truth.subsets, truth.losses)
    expected = ["good", *(f"{100 * value:.1f}" for value in (found.mean, found.interval[0])), "to"]
    assert lines[0].split()[:4] == expected
    assert lines[0].split()[-1] == "<0.001"  # nothing stands beside the one that all are compared with
    assert "-" in lines[2].split("to")[-2]


def test_everything_is_written_with_output(call, file, runs, tmp_path, truth):
    out = tmp_path / "new" / "out"
    code, _, err = call("compare", file, runs / "good", runs / "chance", "-o", out, "--against", "chance")
    assert code == 0
    assert f"written to {out}" in err
    assert sorted(path.name for path in out.iterdir()) == ["compare.csv", "compare.json", "compare.png"]
    with (out / "compare.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    found = lds(scores(), truth.subsets, truth.losses)
    assert [row["method"] for row in rows] == ["good", "chance"]
    assert (float(rows[0]["lds"]), float(rows[0]["low"])) == (found.mean, found.interval[0])
    assert {row["against"] for row in rows} == {"chance"}
    assert float(rows[1]["difference"]) == 0
    record = json.loads((out / "compare.json").read_text())
    assert record["per_query"]["good"] == found.per_query.tolist()
    assert record["queries"] == list(QUERIES)
    assert record["runs"]["good"] == {"directory": str(runs / "good"), "method": "made-up", "settings": {"k": 3}}
    assert (record["facts"], record["resamples"], record["seed"]) == ({"seeds": 1}, 2000, 0)
    with Image.open(out / "compare.png") as picture:
        picture.load()
        assert picture.width > 500


def test_json_on_stdout_can_be_read(call, file, runs):
    options = ("--json", "--resamples", 50, "--seed", 3)
    data = json.loads(call("compare", file, runs / "good", runs / "chance", *options)[1])
    assert [row["method"] for row in data["methods"]] == ["good", "chance"]
    assert data["methods"][1]["difference"] == data["methods"][1]["lds"] - data["methods"][0]["lds"]
    assert (data["resamples"], data["seed"]) == (50, 3)


def test_one_run_and_one_query(call, truth, runs, tmp_path):
    file = truth.select([0]).save(tmp_path / "one.npz")
    saved(tmp_path / "one", scores()[:1], query_ids=QUERIES[:1])
    code, out, _ = call("compare", file, tmp_path / "one", "--json")
    assert code == 0
    assert json.loads(out, parse_constant=pytest.fail)["methods"][0]["query_error"] is None


def test_a_published_truth_without_ids_in_packed_bits(call, truth, runs, tmp_path):
    np.savez(tmp_path / "plain.npz", subsets=np.packbits(truth.subsets, axis=1), losses=truth.losses)
    code, out, _ = call("compare", tmp_path / "plain.npz", runs / "good")
    assert code == 0
    assert out == call("compare", truth.save(tmp_path / "truth.npz"), runs / "good")[1]


def test_a_file_of_scores_is_judged_like_a_run(call, file, runs, tmp_path):
    np.save(tmp_path / "mine.npy", scores())
    code, out, err = call("compare", file, runs / "chance", f"good={tmp_path / 'mine.npy'}")
    assert (code, err) == (0, "")
    assert out == call("compare", file, runs / "chance", runs / "good")[1]
    data = json.loads(call("compare", file, runs / "chance", tmp_path / "mine.npy", "--json")[1])
    assert data["runs"]["mine"] == {"file": str(tmp_path / "mine.npy"), "settings": {}}


def test_a_file_of_scores_says_how_many_images_a_packed_truth_is_about(call, truth, tmp_path):
    np.savez(tmp_path / "plain.npz", subsets=np.packbits(truth.subsets, axis=1), losses=truth.losses)
    np.savez(tmp_path / "mine.npz", scores=scores())
    code, out, _ = call("compare", tmp_path / "plain.npz", tmp_path / "mine.npz")
    assert code == 0
    assert out == call("compare", truth.save(tmp_path / "truth.npz"), tmp_path / "mine.npz")[1]


def test_a_file_of_other_scores_is_refused_in_a_line(call, file, tmp_path):
    np.save(tmp_path / "mine.npy", scores().T)
    code, out, err = call("compare", file, f"mine={tmp_path / 'mine.npy'}")
    assert (code, out) == (1, "")
    assert "shape (30, 6), and the truth is about 6 queries and 30 images: transpose them" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_ids": ("other.png", *TRAIN[1:])}, "number 0 is 'train/0.png' in the truth and 'other.png'"),
        ({"query_ids": (*QUERIES[:4], "x", QUERIES[5])}, "of the queries, number 4 is 'query 4' in the truth and 'x'"),
    ],
)
def test_runs_about_other_images_are_refused(call, file, runs, tmp_path, change, says):
    saved(tmp_path / "other", scores(), **change)
    code, out, err = call("compare", file, runs / "good", f"mine={tmp_path / 'other'}", "-o", tmp_path / "out")
    assert (code, out) == (1, "")
    assert says in err
    assert "mine" in err
    assert not (tmp_path / "out").exists()


def test_fewer_images_or_queries_than_the_truth_are_refused(call, file, tmp_path):
    saved(tmp_path / "few", scores()[:, :20], train_ids=TRAIN[:20])
    code, _, err = call("compare", file, tmp_path / "few")
    assert code == 1
    assert "30 images, not about 20" in err
    saved(tmp_path / "some", scores()[:2], query_ids=QUERIES[:2])
    code, _, err = call("compare", file, tmp_path / "some")
    assert code == 1
    assert "about 6 queries, the result about 2" in err


def test_names_tell_runs_apart(call, file, runs, tmp_path):
    saved(tmp_path / "again" / "good", scores())
    code, _, err = call("compare", file, runs / "good", tmp_path / "again" / "good")
    assert code == 2
    assert "two runs have the name 'good'" in err
    assert call("compare", file, runs / "good", f"second={tmp_path / 'again' / 'good'}")[0] == 0
    saved(tmp_path / "k=3", scores())  # a directory with an equals sign is a directory
    assert "\nk=3 " in call("compare", file, tmp_path / "k=3")[1]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["truth.npz"], 2, "RUN"),
        (["truth.npz", "nowhere"], 2, "nowhere is not a directory"),
        (["nothing.npz", "runs/good"], 2, "nothing.npz"),
        (["truth.npz", "runs/good", "--against", "bad"], 2, "there is no such run or method, use one of good"),
        (["truth.npz", "runs"], 1, "no readable result"),
        (["runs/good/scores.npy", "runs/good"], 1, "single array"),
    ],
)
def test_wrong_usage_and_wrong_files(call, file, runs, tmp_path, monkeypatch, arguments, code, says):
    monkeypatch.chdir(tmp_path)
    found, out, err = call("compare", *arguments)
    assert (found, out) == (code, "")
    assert says in err


def test_without_matplotlib_there_is_a_table_and_no_figure(call, file, runs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert call("compare", file, runs / "good")[0] == 0
    code, out, err = call("compare", file, runs / "good", "-o", tmp_path / "out")
    assert (code, out) == (1, "")  # said before the work begins
    assert "pip install" in err


# --- methods that are scored now ---


@pytest.fixture
def pictures(tmp_path):
    """Two folders of pictures, and a truth about them that pixels predict to some degree."""
    rng = np.random.default_rng(0)
    for folder, count in (("train", 12), ("others", 4)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number:02d}.png")
    train = ImageSet.open(tmp_path / "train")
    queries = train.open_like(tmp_path / "others")
    result = PixelSimilarity().fit(train).attribute(queries)
    result.save(tmp_path / "saved")
    subsets = make_subsets(12, 16)
    losses = rng.normal(0, 0.1, (16, 4)) - subsets @ result.scores.T
    facts = {"train": train.fingerprint(), "queries": queries.fingerprint()}
    GroundTruth(subsets, losses, train.ids, queries.ids, facts).save(tmp_path / "truth.npz")
    return ["--train", tmp_path / "train", "--queries", tmp_path / "others", "--size", 8]


def test_methods_are_scored_next_to_saved_runs(call, pictures, tmp_path):
    scored = [tmp_path / "truth.npz", tmp_path / "saved", "--method", "pixel", "--method", "random", *pictures]
    code, out, err = call("compare", *scored, "--json", "-o", tmp_path / "out")
    assert code == 0, err
    data = json.loads(out, parse_constant=pytest.fail)
    rows = {row["method"]: row for row in data["methods"]}
    assert set(rows) == {"saved", "pixel", "random"}
    assert rows["pixel"]["lds"] == rows["saved"]["lds"] > rows["random"]["lds"]
    assert (rows["pixel"]["requires"], rows["saved"]["requires"], rows["saved"]["seconds"]) == ("nothing", "", None)
    assert data["settings"]["pixel"] == {"metric": "cosine"}
    code, out, _ = call("compare", tmp_path / "truth.npz", "--method", "pixel", *pictures)  # without any run
    assert (code, out.splitlines()[1].split()[0]) == (0, "pixel")


def test_the_pictures_have_to_be_those_of_the_truth(call, pictures, tmp_path):
    (tmp_path / "others" / "00.png").rename(tmp_path / "others" / "99.png")
    code, _, err = call("compare", tmp_path / "truth.npz", "--method", "pixel", *pictures)
    assert code == 1
    assert "'00.png' in the truth" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "RUN, or --method NAME"),
        (["--method", "pixel"], "--train and --method belong together"),
        (["saved", "--train", "train"], "--train and --method belong together"),
        (["--method", "trak", "--train", "train", "--queries", "others"], "add --model DIR"),
        (["pixel=saved", "--method", "pixel"], "that name is taken"),
    ],
)
def test_what_scoring_needs_is_said(call, pictures, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = call("compare", "truth.npz", *arguments)
    assert (code, out) == (2, "")
    assert says in err
