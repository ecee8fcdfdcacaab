"""Whether a query stands out, on the command line: calibrate, hubs, --null, --controls, --group-by, summarize."""

from __future__ import annotations

import csv
import json
import shutil
from typing import NamedTuple

import numpy as np
import pytest
from command import run
from PIL import Image

from patchtrace import Attribution, Null
from patchtrace.demo import postcards

COMMON = ("--size", "16", "--preset", "patchtrace", "--draws", "1")


class Done(NamedTuple):
    stdout: str
    stderr: str


def table(path):
    return list(csv.DictReader(path.read_text().splitlines()))


@pytest.fixture
def call(capsys):
    def run_checked(*arguments, code=0):
        found = run([str(argument) for argument in arguments])
        done = Done(*capsys.readouterr())
        assert found == code, done.stderr
        return done

    return run_checked


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A collection of two folders, controls, a query with a source and one without."""
    cards, place = postcards(42, size=16), tmp_path_factory.mktemp("evidence")
    for number in range(42):
        folder = ("train/even" if number % 2 == 0 else "train/odd") if number < 20 else "others"
        (place / folder).mkdir(parents=True, exist_ok=True)
        if number < 40:
            cards.picture(number).save(place / folder / f"{number:02}.png")
    (place / "queries").mkdir()
    cards.picture(41).save(place / "queries" / "new.png")
    Image.fromarray(np.asarray(cards.picture(5))[:, ::-1]).save(place / "queries" / "mirrored.png")
    return place


@pytest.fixture(scope="module")
def null(place):
    where = place / "null"
    arguments = ["calibrate", "--train", str(place / "train"), "--controls", str(place / "others"), "--size", "16"]
    assert run([*arguments, "-o", str(where), "-q"]) == 0
    return where


def test_a_query_with_a_source_stands_out_in_table_json_and_run(call, place, null, tmp_path):
    asked = ("attribute", place / "queries", "--train", place / "train", *COMMON, "--null", null, "--rate", "0.05")
    done = call(*asked, "-o", tmp_path / "run", "--group-by", "folder")
    assert "none of 20 control pictures had a largest z as large (p 0.048): it stands out at 5 %" in done.stdout
    assert "nothing stands out at 5 %" in done.stdout
    assert "queries stand out at a false discovery rate of 5 %" in done.stderr
    result = Attribution.load(tmp_path / "run")
    assert result.null.as_large[0] == 0 < result.null.as_large[1]
    assert result.train_ids[result.null.best(0)] == "odd/05.png"
    assert set(result.null.groups) == {"even", "odd"}
    assert result.null.groups["odd"][0] == pytest.approx(1 / 21)
    rows = table(tmp_path / "run" / "ranking.csv")
    assert max(rows[:20], key=lambda row: float(row["z"]))["id"] == "odd/05.png"
    groups = table(tmp_path / "run" / "groups.csv")
    assert sum(float(row["share"]) for row in groups[:2]) == pytest.approx(result.shares[0].sum(), rel=1e-5)
    data = json.loads(call(*asked, "--json", "--group-by", "folder").stdout)
    assert data["queries"][0]["null"]["p"] == pytest.approx(1 / 21)
    assert data["queries"][0]["null"]["stands_out"] is True
    assert {group["name"] for group in data["queries"][0]["groups"]} == {"even", "odd"}


def test_a_share_without_a_null_says_how_to_get_one(call, place):
    done = call("attribute", place / "queries" / "new.png", "--train", place / "train", *COMMON)
    assert "patchtrace calibrate" in done.stderr
    assert "stands out" not in done.stdout


def test_controls_can_be_given_at_once(call, place):
    done = call(
        "attribute", place / "queries" / "new.png", "--train", place / "train", *COMMON, "--controls", place / "others"
    )
    assert "of 20 control pictures had" in done.stdout


@pytest.mark.parametrize("kind", ["controls", "decoys"])
def test_pictures_beside_the_collection_that_cannot_be_read_are_listed(call, place, tmp_path, kind):
    shutil.copytree(place / "others", tmp_path / "others")
    (tmp_path / "others" / "bad.png").write_bytes(b"no picture")
    query = ("attribute", place / "queries" / "new.png", "--train", place / "train", *COMMON)
    call(*query, f"--{kind}", tmp_path / "others", "-o", tmp_path / "run", code=3)
    assert [row["id"] for row in table(tmp_path / "run" / "skipped.csv") if row["of"] == kind] == ["bad.png"]


def test_groups_of_a_table_that_is_damaged_are_refused(call, place, tmp_path):
    call("attribute", place / "queries", "--train", place / "train", *COMMON, "-o", tmp_path / "run", "-q")
    path = tmp_path / "artists.csv"
    for text, says in {
        "id,group\na": "a row without a group, that of 'a'",
        "id,group\na,b\na,c\n": "two groups for 'a': 'b' and 'c'",
        "": "use columns id and group, not none",
        "id,group\n" + "x" * 200_000: "use columns id and group",
    }.items():
        path.write_text(text)
        assert says in call("summarize", tmp_path / "run", "--group-by", f"csv:{path}", code=1).stderr
    for pattern in ("(" * 200_000, "a{99999999999999999999}"):
        assert "is not a way to group" in call("summarize", tmp_path / "run", "--group-by", pattern, code=1).stderr
    path.write_text("\ufeffid,group\nodd/05.png,\x1b[31mAnn\n", encoding="utf-8")  # as spreadsheets write it
    done = call("summarize", tmp_path / "run", "--group-by", f"csv:{path}")
    assert "\\x1b[31mAnn" in done.stdout
    assert "\x1b" not in done.stdout


def test_two_nulls_are_refused(call, place, null):
    asked = ("attribute", place / "queries", "--train", place / "train", "--null", null, "--controls", place / "others")
    done = call(*asked, code=2)
    assert "use one of them" in done.stderr


def test_a_stale_null_says_so(call, place, null):
    done = call(
        "attribute", place / "queries" / "new.png", "--train", place / "train", *COMMON, "--null", null, "--limit", "18"
    )
    assert "the null is stale: 2 of its images are gone and left out" in done.stdout


def test_a_null_by_members(call, place, tmp_path):
    call("calibrate", "--train", place / "train", "--size", "16", "--count", "9", "-o", tmp_path / "null")
    done = call(
        *("attribute", place / "queries" / "mirrored.png", "--train", place / "train", *COMMON),
        *("--null", tmp_path / "null", "--rate", "0.1"),
    )
    assert "none of 9 pictures of the collection, each without itself, had a largest z as large" in done.stdout


def test_hubs_are_listed(call, null):
    data = json.loads(call("hubs", null, "--json").stdout)
    assert data["controls"] == 20
    assert data["images"] == 20
    assert all(hub["first"] > 1 or hub["habit"] >= 3 for hub in data["hubs"])
    assert "hub" in call("hubs", null).stdout or "first" in call("hubs", null).stdout


def test_totals_over_a_run(call, place, tmp_path):
    call("attribute", place / "queries", "--train", place / "train", *COMMON, "-o", tmp_path / "run", "-q")
    result = Attribution.load(tmp_path / "run")
    done = call("summarize", tmp_path / "run", "--group-by", r"^(\w+)/", "--json", "-o", tmp_path / "totals.csv")
    data = json.loads(done.stdout)
    best = int(result.shares.mean(axis=0).argmax())
    assert data["images"][0]["id"] == result.train_ids[best]
    assert data["images"][0]["share"] == pytest.approx(result.shares[:, best].mean(), rel=1e-5)
    odd = next(group for group in data["groups"] if group["name"] == "odd")
    inside = [name.startswith("odd") for name in result.train_ids]
    assert odd["share"] == pytest.approx(result.shares[:, inside].sum(axis=1).mean(), rel=1e-5)
    assert len(table(tmp_path / "totals.csv")) == 20


def test_groups_come_from_a_table(call, place, tmp_path):
    (tmp_path / "artists.csv").write_text("id,group\nodd/05.png,Ann\n")
    call("attribute", place / "queries", "--train", place / "train", *COMMON, "-o", tmp_path / "run", "-q")
    data = json.loads(call("summarize", tmp_path / "run", "--group-by", f"csv:{tmp_path}/artists.csv", "--json").stdout)
    assert {group["name"]: group["images"] for group in data["groups"]} == {"Ann": 1, "(none)": 19}
    (tmp_path / "artists.csv").write_text("name,group\nodd/05.png,Ann\n")
    done = call("summarize", tmp_path / "run", "--group-by", f"csv:{tmp_path}/artists.csv", code=1)
    assert "use columns id and group" in done.stderr


def test_other_methods_show_scores_and_no_shares(call, place):
    asked = (
        "attribute",
        place / "queries" / "new.png",
        "--train",
        place / "train",
        "--size",
        "16",
        "--method",
        "pixel",
    )
    lines = call(*asked).stdout.splitlines()
    assert lines[1].split() == ["rank", "score", "id"]
    assert "effective" not in lines[0]
    data = json.loads(call(*asked, "--json").stdout)
    assert data["queries"][0]["ranking"][0]["share"] is None
    assert call(*asked, "--group-by", "folder", code=2).stderr


def test_a_small_collection_has_a_null_of_its_members_by_default(call, place, monkeypatch):
    asked = ("attribute", place / "queries" / "mirrored.png", "--train", place, "--size", "16", "--json")
    done = call(*asked, "--seconds", "1000")
    null = json.loads(done.stdout)["queries"][0]["null"]
    assert (null["kind"], null["controls"]) == ("members", 39)
    assert "leave-one-out over 39 members" in done.stderr
    done = call(*asked, "--seconds", "1000", "--no-leave-one-out")
    assert json.loads(done.stdout)["queries"][0]["null"] is None
    assert "patchtrace calibrate" in done.stderr


@pytest.mark.parametrize("limit", [("--seconds", "0.01"), ("--draws", "2"), ("--exact",)], ids=lambda given: given[0])
def test_without_time_there_is_no_null_of_members(call, place, limit):
    asked = ("attribute", place / "queries" / "new.png", "--train", place, "--size", "16", "--json")
    assert json.loads(call(*asked, *limit).stdout)["queries"][0]["null"] is None


def test_calibrate_says_whether_a_likelihood_ratio_is_earned(call, place, tmp_path):
    asked = ("calibrate", "--train", place / "train", "--controls", place / "others", "--size", "16", "-o", tmp_path)
    done = call(*asked, "--likelihood-ratio")
    known = Null.load(tmp_path).likelihood
    assert f"likelihood ratio: Cllr {known.cllr:.2f} on held-out pictures" in done.stderr
    query = place / "queries" / "mirrored.png"
    shown = call("attribute", query, "--train", place / "train", "--null", tmp_path, *COMMON).stdout
    assert ("likelihood ratio" in shown) == known.earned
