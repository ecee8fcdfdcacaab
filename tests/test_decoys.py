"""Decoys: the share of none of the images, and the false discovery rate of a list."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from command import run
from hypothesis import given
from hypothesis import strategies as st

from patchtrace import NDA, Attribution, ImageSet, PatchtraceError, Recipe, Stopping, calibrate
from patchtrace.decoys import Decoys
from patchtrace.demo import postcards
from patchtrace.images.pixels import JoinedPixels
from patchtrace.viewer.data import look_closer

SIDE, IMAGES, DECOYS = 16, 12, 6
shares = st.lists(st.integers(0, 20), min_size=1, max_size=12)


@pytest.fixture(scope="module")
def cards():
    return postcards(IMAGES + DECOYS + 2, size=SIDE)


@pytest.fixture(scope="module")
def train(cards):
    return cards.subset(range(IMAGES))


@pytest.fixture(scope="module")
def decoys(cards):
    return cards.subset(range(IMAGES, IMAGES + DECOYS))


@pytest.fixture(scope="module")
def result(cards, train, decoys):
    queries = cards.subset([3, IMAGES + 1, len(cards) - 1])
    return NDA(Recipe.preset("patchtrace")).fit(train.with_decoys(decoys)).attribute(queries)


@given(shares, shares)
def test_the_false_discovery_rate_is_that_of_its_definition(own, others):
    own, others = np.float64(own), np.float64(others)
    found = Decoys(own, others).rates()

    expected = [min(1, (others >= share).sum() / (own >= share).sum() * len(own) / len(others)) for share in own]
    np.testing.assert_allclose(found, expected)


def test_decoys_are_in_the_softmax_and_in_no_list(cards, train, decoys, result):
    alone = NDA(Recipe.preset("patchtrace")).fit(cards.subset(range(IMAGES + DECOYS))).attribute(cards.subset([3]))
    np.testing.assert_allclose(result.shares[0], alone.shares[0], rtol=1e-5)
    assert result.decoys == DECOYS
    assert sorted(result.ranking(0)) == list(range(IMAGES))
    assert all(not hit.id.startswith("decoy") for hits in (result.top(99), result.bottom(3)) for hit in hits[0])
    assert result.nobody(0).share == pytest.approx(alone.shares[0, IMAGES:].sum(), rel=1e-5)


def test_a_picture_of_the_decoys_goes_to_none_of_the_images(result):
    member, decoy = result.nobody(0), result.nobody(1)
    assert member.share < 0.3 < 0.5 < decoy.share
    first = result.top(1)
    assert first[0][0].fdr == 0 < first[1][0].fdr
    assert result.nobody(1).about(5)["as_large"] >= 1


def test_a_saved_result_and_its_tables_know_the_decoys(result, tmp_path):
    loaded = Attribution.load(result.save(tmp_path))
    assert loaded.decoys == DECOYS
    assert loaded.to_json(4)["queries"] == result.to_json(4)["queries"]
    about = result.to_json(4)["queries"][1]["decoys"]
    assert about == result.nobody(1).about(4)
    rows = list(csv.DictReader(result.export(tmp_path / "list.csv").read_text().splitlines()))
    assert len(rows) == 3 * IMAGES
    assert [float(row["fdr"]) for row in rows[:3]] == [hit.fdr for hit in result.top(3)[0]]


def test_a_number_of_decoys_that_cannot_be_is_refused(result, tmp_path):
    result.save(tmp_path)
    path = tmp_path / "attribution.json"
    manifest = json.loads(path.read_text())
    manifest.pop("manifest_sha256")
    manifest["facts"]["train"]["decoys"] = IMAGES + DECOYS
    path.write_text(json.dumps(manifest))
    with pytest.raises(PatchtraceError, match="no number of decoys"):
        Attribution.load(tmp_path)


def test_without_decoys_nothing_is_known_of_them(cards, train):
    result = NDA(Recipe.preset("patchtrace")).fit(train).attribute(cards.subset([3]))
    assert result.nobody(0) is None
    assert result.top(1)[0][0].fdr is None
    assert result.to_json(1)["queries"][0]["decoys"] is None


@pytest.mark.parametrize(
    "places", [[0, 1], [12, 17], [3, 14], [14, 3], [0, 13, 2]], ids=["own", "decoys", "both", "turned round", "mixed"]
)
def test_joined_pixels_are_those_of_both(train, decoys, places):
    both, whole = JoinedPixels(train.pixels, decoys.pixels), np.concatenate([train.pixels[:], decoys.pixels[:]])
    np.testing.assert_array_equal(both.select(np.array(places))[:], whole[places])
    np.testing.assert_array_equal(both[np.array(places)], whole[places])
    np.testing.assert_array_equal(both[10:14], whole[10:14])
    for key in (-1, slice(-9, -7), np.array([-15, 2]), np.arange(len(whole)) % 5 == 0):
        np.testing.assert_array_equal(both[key], whole[key])
    np.testing.assert_array_equal(np.asarray(both), whole)


def test_decoys_of_another_kind_are_refused(train, decoys):
    floats = ImageSet.open(decoys.pixels[:].astype(np.float32) / 127.5 - 1)
    with pytest.raises(PatchtraceError, match="they are float arrays, and it holds 8-bit pictures"):
        train.with_decoys(floats)


def test_a_list_is_settled_without_its_decoys(cards, train):
    query = cards.subset([3])
    alike = cards.subset([3] * 4)  # far ahead of the images
    stopping = Stopping(top=3, most_draws=16)
    result = (
        NDA(replace(Recipe.preset("patchtrace"), draws="auto"), stopping=stopping)
        .fit(train.subset([n for n in range(IMAGES) if n != 3]).with_decoys(alike))
        .attribute(query)
    )
    assert result.nobody(0).share > 0.5
    assert sum(hit.chance for hit in result.top(3)[0]) > 1
    assert not result.nda.chances[0, -4:].any()


def test_without_a_list_nothing_is_said_of_decoys(result):
    assert result.to_json(0)["queries"][0]["decoys"] is None


def test_decoys_of_another_shape_are_refused(train):
    with pytest.raises(PatchtraceError, match="cannot be put behind"):
        train.with_decoys(postcards(2, size=20))


@pytest.fixture(scope="module")
def place(cards, tmp_path_factory):
    place = tmp_path_factory.mktemp("decoys")
    for number in range(len(cards)):
        folder = "train" if number < IMAGES else "decoys" if number < IMAGES + DECOYS else "queries"
        (place / folder).mkdir(exist_ok=True)
        cards.picture(number).save(place / folder / f"{number:02}.png")
    return place


@pytest.mark.parametrize("store", [False, True], ids=["folder", "store"])
def test_the_command_has_decoys_in_table_json_report_and_refined_run(place, tmp_path, capsys, store):
    train = place / "train"
    if store:
        train = tmp_path / "train.store"
        assert run(["index", str(place / "train"), "-o", str(train), "--size", str(SIDE)]) == 0
    asked = ["attribute", str(place / "queries" / "18.png"), "--train", str(train), "--size", str(SIDE)]
    asked = asked[:4] if store else asked
    asked += ["--decoys", str(place / "decoys"), "--draws", "2", "--seed", "1"]
    run_at, report = tmp_path / "run", tmp_path / "report.html"
    assert run([*asked, "-o", str(run_at), "--report", str(report), "--group-by", "folder"]) == 0
    shown = capsys.readouterr().out
    result = Attribution.load(run_at)
    assert f"the share of {DECOYS} decoys (33.3 % if all pictures had the same)" in shown
    assert "(decoys)" in shown
    assert f"({IMAGES} images" in shown
    assert "None of them: " in report.read_text()
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["queries"][0]
    assert found["decoys"]["share"] == pytest.approx(result.nobody(0).share)
    assert run(["refine", str(run_at), "--draws", "4", "--json"]) == 0
    refined = json.loads(capsys.readouterr().out)["queries"][0]
    assert refined["decoys"]["decoys"] == DECOYS
    assert run(["summarize", str(run_at)]) == 0
    assert f"the share of {DECOYS} decoys" in capsys.readouterr().out


def test_a_null_is_of_the_collection_without_decoys(place, tmp_path, capsys):
    asked = ["attribute", str(place / "queries" / "18.png"), "--train", str(place / "train"), "--size", str(SIDE)]
    asked += ["--draws", "1", "--controls", str(place / "decoys"), "--json"]
    assert run(asked) == 0
    without = json.loads(capsys.readouterr().out)["queries"][0]["null"]
    assert run([*asked, "--decoys", str(place / "decoys"), "--group-by", "folder"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"][0]["null"] == without


def test_a_null_judges_a_collection_with_decoys_as_without(cards, train, decoys):
    null, queries = calibrate(train, count=9), cards.subset([3, IMAGES + 1])
    alone, both = (null.judge(queries, images, rate=0.1) for images in (train, train.with_decoys(decoys)))
    np.testing.assert_array_equal(both.z[:, :IMAGES], alone.z)
    np.testing.assert_array_equal(both.z[:, IMAGES:].T, np.tile(alone.z.min(axis=1), (DECOYS, 1)))
    assert (both.as_large, both.remark) == (alone.as_large, "")


def test_numbers_of_images_are_without_decoys(cards, train, decoys, result):
    shares = result.shares[0, :IMAGES] / result.shares[0, :IMAGES].sum()
    assert result.effective_sources()[0] == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-4)
    queries = cards.subset([3, IMAGES + 1, len(cards) - 1])
    view = look_closer(result, queries, train.with_decoys(decoys), 0).view
    assert view["summary"]["images"] == IMAGES
    assert ["Collection", f"{IMAGES} images"] in view["facts"]
    assert ["Decoys", f"{DECOYS} pictures"] in view["facts"]
    assert f"of {IMAGES}." in " ".join(view["headline"]["sentences"])


def test_other_methods_refuse_decoys(place, capsys):
    asked = ["attribute", str(place / "queries"), "--train", str(place / "train"), "--method", "pixel"]
    assert run([*asked, "--decoys", str(place / "decoys")]) == 2
    assert "take a part of the shares, and --method pixel has none" in capsys.readouterr().err
