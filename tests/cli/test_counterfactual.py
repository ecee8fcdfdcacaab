"""patchtrace counterfactual from a folder of images to tables, figures and sheet."""

from __future__ import annotations

import csv
import json

import pytest
from networks import TINY
from PIL import Image

from patchtrace import Attribution
from patchtrace.demo import postcards
from patchtrace.evaluate import retraining

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def cards(tmp_path):
    folder = tmp_path / "cards"
    folder.mkdir()
    drawn = postcards(12, size=8)
    for number, name in enumerate(drawn.ids):
        drawn.picture(number).save(folder / f"{name}.png")
    return folder


@pytest.fixture
def remove(call, cards, tmp_path):
    """The command on the cards with a tiny network, into tmp_path/out."""
    network = tmp_path / "tiny.json"
    network.write_text(json.dumps(TINY))

    def run(*arguments):
        fixed = ["--train", cards, "--size", 8, "--model", network, "--epochs", 1, "--batch", 8, "--steps", 2]
        return call("counterfactual", *fixed, "--queries", 2, "--encoder", "none", "-o", tmp_path / "out", *arguments)

    return run


@pytest.fixture
def trained(monkeypatch):
    """How many images each model is trained on, as they are trained."""
    seen = []

    def counted(images, place, settings, **more):
        if not (place / "training.json").is_file():
            seen.append(len(images))
        return train(images, place, settings, **more)

    train = retraining.train
    monkeypatch.setattr(retraining, "train", counted)
    return seen


def rows_of(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_from_images_to_tables_figures_and_sheet(remove, trained, tmp_path):
    out = tmp_path / "out"
    code, printed, said = remove("--method", "nda", "--method", "pixel", "--chance-models", 1)
    assert code == 0
    assert (trained[0], trained.count(12), set(trained)) == (12, 2, {10, 12})  # a fifth of twelve is removed
    assert [line.split("  ")[0] for line in printed.splitlines()[2:]] == ["nda", "pixel", "chance", "other seed"]
    assert "1 random removals, which 2 queries share" in said
    rows = rows_of(out / "counterfactual.csv")
    assert [(row["method"], row["query"]) for row in rows[:3]] == [
        ("nda", "query-000.png"),
        ("nda", "query-001.png"),
        ("pixel", "query-000.png"),
    ]
    assert all(float(row["l2"]) >= 0 for row in rows)
    assert len(rows_of(out / "summary.csv")) == 4
    assert json.loads((out / "counterfactual.json").read_text())["facts"]["training"]["epochs"] == 1
    assert Attribution.load(out / "attributions" / "nda").scores.shape == (2, 12)
    for name in ("l2", "sheet"):
        with Image.open(out / f"{name}.png") as picture:
            picture.load()
    before = len(trained)
    assert remove("--method", "nda", "--method", "pixel", "--chance-models", 1)[1] == printed
    assert len(trained) == before


def test_other_methods_come_in_by_a_saved_run_about_the_originals(remove, call, cards, tmp_path):
    originals, run = tmp_path / "out" / "originals", tmp_path / "influence"
    code, printed, said = remove("--originals-only")
    assert (code, printed) == (0, "")
    assert str(originals) in said
    assert sorted(path.name for path in originals.iterdir()) == ["query-000.png", "query-001.png"]
    attribute = ["attribute", originals, "--train", cards, "--size", 8, "--method", "machine-influence", "--draws", 1]
    assert call(*attribute, "-o", run)[0] == 0
    code, printed, _ = remove("--run", f"influence={run}", "--remove", 3)
    assert code == 0
    assert [line.split("  ")[0] for line in printed.splitlines()[2:]] == ["influence", "chance", "other seed"]
    code, _, said = remove("--run", run, "--queries", 1)
    assert code == 1
    assert "the scores of influence have shape (2, 12): use (1, 12)" in said


def test_shards_say_what_they_did_and_the_last_ends_with_the_table(remove, tmp_path):
    arguments = ["--method", "random", "--chance-models", 1]
    code, printed, said = remove(*arguments, "--shard", "1/2")
    assert (code, printed) == (0, "")
    assert "part 1 of 2 is done" in said
    assert not (tmp_path / "out" / "counterfactual.csv").exists()
    code, printed, _ = remove(*arguments, "--shard", "2/2")
    assert code == 0
    assert "random" in printed


def test_trak_with_a_lambda(remove):
    code, out, _ = remove("--method", "trak", "--method", "dtrak", "--lam", 0.1, "--remove", 3)
    assert code == 0
    assert {"trak", "dtrak", "chance"} <= {line.split()[0] for line in out.splitlines() if line.strip()}


def test_images_that_cannot_be_read_are_named_and_change_the_exit_code(remove, cards):
    (cards / "broken.png").write_bytes(b"no picture")
    code, _, said = remove("--originals-only")
    assert code == 3
    assert "broken.png" in said


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--remove", 12], 1, "of 12 images, 1 to 11 can be removed"),
        (["--shard", "3/2"], 2, "is not a part"),
        (["--shard", "two"], 2, "is not a part"),
        (["--chance-models", 3], 2, "at most the number of queries"),
        (["--method", "pixel", "--preset", "quick"], 2, "no meaning without --method nda"),
        (["--method", "embedding"], 2, "requires an encoder"),
        (["--preset", "quick", "--recipe", __file__], 2, "use one of them"),
        (["--method", "dtrak"], 2, "--lam is for --method trak and dtrak"),
        (["--method", "pixel", "--lam", 1], 2, "and with no others"),
        (["--run", "nowhere"], 2, "not a directory"),
        (["--model", "unheard-of"], 1, "there is no model 'unheard-of'"),
    ],
)
def test_what_cannot_be_is_refused_before_any_training(remove, trained, arguments, code, says):
    found, _, said = remove(*arguments)
    assert found == code
    assert says in said
    assert trained == []


def test_a_run_may_not_have_the_name_of_something_else(remove, tmp_path):
    (tmp_path / "chance").mkdir()
    code, _, said = remove("--run", tmp_path / "chance")
    assert code == 2
    assert "that name is taken" in said


def test_help_has_examples(remove, call):
    code, printed, _ = call("counterfactual", "--help")
    assert code == 0
    assert "patchtrace counterfactual --train" in printed
