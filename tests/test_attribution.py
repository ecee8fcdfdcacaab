"""The result: ranking, shares, files that notice damage, tables."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hostile import tampered

from patchtrace import (
    NDA,
    Attribution,
    ImageSet,
    Level,
    NDADetails,
    PatchtraceError,
    Recipe,
    Scale,
    Stopping,
    calibrate,
    explain,
)
from patchtrace.cache import digest
from patchtrace.cli.common import table
from patchtrace.cli.groups import group_lines
from patchtrace.cli.verdicts import verdict_lines
from patchtrace.demo import postcards
from patchtrace.images import Skipped
from patchtrace.nda_details import Ended, NoiseOrigin, Part
from patchtrace.null.groups import DECOYS, groups_of
from patchtrace.viewer.headline import headline
from patchtrace.viewer.report import json_for_script

RECIPE = Recipe((Level(100, (Scale(5),)), Level(200, (Scale(8, pool=2),))), k=3)


@pytest.fixture
def result():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(5), size=2).astype(np.float32)
    return Attribution(
        100 * shares,
        shares,
        ("first", "zweites\u2009Bild"),
        tuple("abcde"),
        "nda",
        {"recipe": RECIPE.to_dict()},
        {"versions": {"numpy": "2"}},
        (Skipped("bad.jpg", "empty file"),),
        NDADetails(
            recipe=RECIPE,
            noise=NoiseOrigin.SEED,
            top=3,
            confidence=0.9,
            draws=[[1, 1], [1, 1]],
            samples=[[1, 1], [1, 1]],
            ended=[Ended.FIXED, Ended.FIXED],
            parts=np.stack([60 * shares, 40 * shares]),
            part_names=(Part(100, 5, 1), Part(200, 8, 2)),
        ),
    )


def of(rows):
    scores = np.float32(rows)
    ids = tuple(map(str, range(scores.shape[1])))
    return Attribution(scores, scores, tuple(map(str, range(len(scores)))), ids, "x")


def test_top_is_highest_first_and_bottom_lowest_first():
    result = of([[0.1, 0.4, 0.2, 0.3]])
    assert [hit.index for hit in result.top(3)[0]] == [1, 3, 2]
    assert [hit.index for hit in result.bottom(2)[0]] == [0, 2]


def test_equal_scores_keep_the_order_of_the_set():
    assert [hit.index for hit in of([[0.2, 0.5, 0.2, 0.2]]).top(4)[0]] == [1, 0, 2, 3]


def test_scores_that_an_exponent_rounded_away_still_rank_by_share():
    scores, shares = np.float32([[0, 0, 5]]), np.float32([[1e-9, 2e-9, 0.5]])
    result = Attribution(scores, shares, ("q",), ("a", "b", "c"), "nda")
    assert [hit.id for hit in result.top(3)[0]] == ["c", "b", "a"]


def test_asking_for_more_than_there_are_gives_all():
    assert len(of([[0.1, 0.2]]).top(10)[0]) == 2


def test_a_hit_begins_with_index_id_score_share(result):
    index, name, score, share, *_ = result.top(1)[0][0]
    assert name == result.train_ids[index]
    assert score == pytest.approx(100 * share)


@pytest.mark.parametrize(
    ("shares", "sources"),
    [([0.25] * 4, 4), ([1, 0, 0, 0], 1), ([0.1] * 4, 4), ([0, 0, 0, 0], 0), ([0.5, 0.5, 0, 0], 2)],
)
def test_effective_sources_is_the_number_of_equal_images_spread_as_widely(shares, sources):
    assert of([shares]).effective_sources()[0] == pytest.approx(sources)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(PatchtraceError, match="do not match"):
        Attribution(np.zeros((1, 2), np.float32), np.zeros((1, 2), np.float32), ("q",), ("a",), "x")


def test_what_is_saved_is_loaded(result, tmp_path):
    back = Attribution.load(result.save(tmp_path / "run"))
    for one, other in ((back.scores, result.scores), (back.shares, result.shares), (back.nda.parts, result.nda.parts)):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == np.float32
    for name in ("query_ids", "train_ids", "method", "settings", "facts", "skipped"):
        assert getattr(back, name) == getattr(result, name)
    assert back.nda.part_names == result.nda.part_names
    assert back.nda.recipe == RECIPE
    assert back.nda.record() == result.nda.record()


def test_saving_again_replaces_the_older_result(result, tmp_path):
    result.save(tmp_path)
    of([[1.0, 2.0]]).save(tmp_path)
    assert Attribution.load(tmp_path).train_ids == ("0", "1")


def test_nothing_but_the_result_is_left_in_the_directory(result, tmp_path):
    result.save(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["attribution.json", "parts.npy", "scores.npy", "shares.npy"]


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["scores.npy", "shares.npy", "parts.npy"])
@pytest.mark.parametrize("damage", [flip_a_byte, lambda p: p.write_bytes(p.read_bytes()[:-8]), lambda p: p.unlink()])
def test_damage_is_noticed_and_the_file_is_named(result, tmp_path, name, damage):
    result.save(tmp_path)
    damage(tmp_path / name)
    with pytest.raises(PatchtraceError, match=name):
        Attribution.load(tmp_path)


def test_two_exchanged_arrays_are_noticed(result, tmp_path):
    result.save(tmp_path)
    (tmp_path / "scores.npy").rename(tmp_path / "x")
    (tmp_path / "shares.npy").rename(tmp_path / "scores.npy")
    (tmp_path / "x").rename(tmp_path / "shares.npy")
    with pytest.raises(PatchtraceError, match="does not match its checksum"):
        Attribution.load(tmp_path)


@pytest.mark.parametrize("manifest", ["", "{}", "[]", '{"patchtrace": "attribution"}', "null"])
def test_a_broken_manifest_is_an_error_in_words(result, tmp_path, manifest):
    result.save(tmp_path)
    (tmp_path / "attribution.json").write_text(manifest)
    with pytest.raises(PatchtraceError, match="no readable result"):
        Attribution.load(tmp_path)


def test_a_manifest_cannot_name_a_file_elsewhere(result, tmp_path):
    result.save(tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "attribution.json").read_text())
    manifest["sha256"]["../scores.npy"] = "0"
    rewritten(tmp_path / "run", manifest)
    with pytest.raises(PatchtraceError, match="unknown file"):
        Attribution.load(tmp_path / "run")


def test_a_result_of_a_later_version_is_refused_by_name(result, tmp_path):
    result.save(tmp_path)
    manifest = json.loads((tmp_path / "attribution.json").read_text()) | {"file_version": 99}
    (tmp_path / "attribution.json").write_text(json.dumps(manifest))
    with pytest.raises(PatchtraceError, match="later version"):
        Attribution.load(tmp_path)


def test_the_three_tables_hold_the_same_rows(result, tmp_path):
    expected = list(result.rows())
    assert len(expected) == 10
    with result.export(tmp_path / "t.csv").open(newline="", encoding="utf-8") as stream:
        from_csv = list(csv.DictReader(stream))
    assert [(row["query"], int(row["rank"]), row["id"]) for row in from_csv] == [
        (row["query"], row["rank"], row["id"]) for row in expected
    ]
    assert [float(row["share"]) for row in from_csv] == [row["share"] for row in expected]
    assert pq.read_table(result.export(tmp_path / "t.parquet")).to_pylist() == expected
    from_json = json.loads(result.export(tmp_path / "t.json").read_text())
    flat = [
        {"query": query["id"], "rank": rank, **hit}
        for query in from_json["queries"]
        for rank, hit in enumerate(query["ranking"], start=1)
    ]
    assert flat == expected


def test_a_table_can_be_cut_at_the_top(result, tmp_path):
    assert pq.read_table(result.export(tmp_path / "t.parquet", top=2)).num_rows == 4


def test_an_unknown_table_format_is_refused(result, tmp_path):
    with pytest.raises(PatchtraceError, match="csv, json, parquet"):
        result.export(tmp_path / "t.xlsx")
    assert list(tmp_path.iterdir()) == []


# -- results that version 0.1 saved: tests/data/runs-0.1, of 12 postcards of 16 x 16 and two queries --------------

OLD = Path(__file__).parent / "data" / "runs-0.1"
CARDS = postcards(14, 16)
TRAIN, QUERIES = CARDS.subset(range(12)), CARDS.subset([12, 3])


@pytest.mark.parametrize("name", ["auto", "parts", "given-noise", "shortlist", "pixel"])
def test_a_run_of_an_older_version_is_loaded_and_saved_anew(name, tmp_path):
    old = Attribution.load(OLD / name)
    assert old.query_ids == QUERIES.ids
    assert (old.nda is None) == (name == "pixel")
    again = Attribution.load(old.save(tmp_path))
    np.testing.assert_array_equal(again.scores, old.scores)
    assert again.method == old.method
    assert (again.nda and again.nda.record()) == (old.nda and old.nda.record())


def test_an_old_run_has_what_it_knew():
    auto = Attribution.load(OLD / "auto")
    assert auto.nda.draws == [[2, 2], [2, 2]]
    assert auto.nda.ended == [Ended.SETTLED, Ended.SETTLED]
    assert (auto.nda.top, auto.nda.confidence) == (3, 0.95)
    assert auto.remarks(0) == ["as far as noise goes, 3 of these 3 belong to the list at 95 %; the list is settled"]
    assert Attribution.load(OLD / "given-noise").nda.noise is NoiseOrigin.CALLER
    parts = Attribution.load(OLD / "parts")
    assert parts.nda.part_names == (Part(100, 5, 1), Part(100, 8, 2), Part(300, 9, 1))
    np.testing.assert_allclose(parts.nda.parts.sum(axis=0), parts.scores, rtol=1e-5)


def test_an_old_approximate_run_no_longer_calls_itself_nda():
    listed = Attribution.load(OLD / "shortlist")
    assert listed.method == "nda-shortlist"
    assert (listed.nda.shortlist.images, listed.nda.shortlist.of) == (4, 12)
    assert listed.nda.shortlist.recall.part == 0.3


def test_an_old_run_is_what_this_version_computes_and_can_be_continued():
    auto = Attribution.load(OLD / "auto")
    stopping = Stopping(top=3, most_draws=8, tolerance=0, precision=10)  # its rules, as they were
    now = NDA(auto.nda.recipe, stopping=stopping).fit(TRAIN).attribute(QUERIES)
    np.testing.assert_allclose(now.scores, auto.scores, rtol=1e-4)
    more = NDA(replace(auto.nda.recipe, draws=4), stopping=stopping).fit(TRAIN).attribute(QUERIES, start=auto)
    assert more.nda.draws == [[4, 4], [4, 4]]
    found = explain(auto, QUERIES, TRAIN, 1, draws=None)
    np.testing.assert_allclose(found.maps().sum(axis=(1, 2)), auto.shares[1][found.images], rtol=1e-4)


@pytest.mark.parametrize("tolerance", [0.0, 0.1])
def test_a_list_that_ends_within_equal_images_says_so(tolerance):
    black = np.zeros((12, 8, 8, 3), np.uint8)
    recipe = Recipe((Level(100, (Scale(3),)),), draws="auto")
    result = NDA(recipe, stopping=Stopping(top=3, tolerance=tolerance)).fit(black).attribute(black[:1])
    assert result.ranks(0, 3) == [(1, True)] * 3
    assert result.remarks(0)[0].startswith(
        "as far as noise goes, 3 of these 3 belong to the list or tie with its last at 95 %"
    )
    assert "9 images that are not in the list tie with its last" in result.remarks(0)


def test_a_list_that_ends_before_a_smaller_share_does_not_speak_of_ties(result):
    assert not any("not in the list" in line for line in result.remarks(0))


# --- tampered results ---

TAMPERED = [None, "\x1b[31m", -1, [], {}, 1e308, 10**30, [[[]]], float("nan"), True, ["\x1b[31m"], "deleted"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A saved run of NDA."""
    train = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    recipe = Recipe((Level(100, (Scale(3),)),), draws=4)
    return NDA(recipe).fit(train).attribute(train[:2]).save(tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def saved_with_evidence(tmp_path_factory):
    """A saved run of NDA with a null, groups, decoys and verdicts."""
    cards = postcards(24, size=16)
    own = cards.subset(range(20))
    train = own.with_decoys(cards.subset([20, 21]))
    query = ImageSet(cards.pixels[5:6], ("query",))
    result = NDA(Recipe((Level(100, (Scale(3),)),), draws=2)).fit(train).attribute(query)
    null = calibrate(own, count=9).judge(query, own, labels=["a", "b"] * 10)
    z = np.concatenate([null.z, np.zeros((1, 2), np.float32)], axis=1)
    result = replace(result, null=replace(null, z=z)).with_verdicts(query, train)
    return result.save(tmp_path_factory.mktemp("saved"))


def shown(result, directory):
    """All lines in which a command shows a result."""
    labels = (*("a", "b") * 10, DECOYS, DECOYS)[: len(result.train_ids)]
    groups = group_lines(groups_of(result, labels, 0), 3)
    result.export(directory / "table.csv")
    json_for_script(result.to_json(3)["queries"])
    headline(result, 0, [0, 1], [0, 1])
    return [*table(result, 3), *verdict_lines(result, 3), *groups]


def rewritten(directory, manifest):
    """Put a manifest in place of the one that is there, with a checksum that is right."""
    manifest.pop("manifest_sha256", None)
    text = json.dumps({**manifest, "manifest_sha256": digest(manifest)})
    (directory / "attribution.json").write_text(text)


def test_a_flipped_bit_in_the_manifest_is_noticed_or_changes_nothing(saved, tmp_path):
    whole, raw = Attribution.load(saved), (saved / "attribution.json").read_bytes()
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    noticed = 0
    for place in range(0, len(raw), 7):
        changed = bytearray(raw)
        changed[place] ^= 1 << place % 8
        (tmp_path / "attribution.json").write_bytes(changed)
        try:
            found = Attribution.load(tmp_path)
        except PatchtraceError:
            noticed += 1
        else:
            assert (found.train_ids, found._about()) == (whole.train_ids, whole._about())
    assert noticed > len(raw) // 10


@pytest.mark.parametrize("value", TAMPERED)
def test_a_manifest_that_was_tampered_with_gives_a_result_or_a_sentence(saved, tmp_path, value):
    text = (saved / "attribution.json").read_text()
    for name in saved.glob("*.npy"):
        shutil.copy(name, tmp_path)
    for _, manifest in tampered(text, value):
        rewritten(tmp_path, manifest)
        with suppress(PatchtraceError):  # anything else that is raised fails the test
            lines = table(Attribution.load(tmp_path), 3)
            assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize("value", TAMPERED)
def test_evidence_that_was_tampered_with_gives_a_result_or_a_sentence(saved_with_evidence, tmp_path, value):
    text = (saved_with_evidence / "attribution.json").read_text()
    for name in saved_with_evidence.glob("*.npy"):
        shutil.copy(name, tmp_path)
    for path, manifest in tampered(text, value):
        if not {"null", "verdicts", "train"} & set(path):  # of all else it is the test above
            continue
        rewritten(tmp_path, manifest)
        with suppress(PatchtraceError):  # anything else that is raised fails the test
            assert "\x1b" not in "".join(shown(Attribution.load(tmp_path), tmp_path))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("scores", np.full((2, 6), np.nan, np.float32)),
        ("shares", np.full((2, 6), np.inf, np.float32)),
        ("scores", np.zeros((2, 6), np.int64)),
        ("scores", np.zeros((6, 2), np.float32)),
        ("scores", np.array([["a"] * 6] * 2)),
        ("errors", np.zeros((2, 5), np.float32)),
        ("moments", np.full((5, 2, 1, 6), -1.0)),
        ("moments", np.zeros((5, 2, 2, 6))),
    ],
)
def test_arrays_that_were_tampered_with_are_refused_even_if_their_checksum_is_right(saved, tmp_path, name, array):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    np.save(tmp_path / f"{name}.npy", array)
    manifest = json.loads((tmp_path / "attribution.json").read_text())
    manifest["sha256"][f"{name}.npy"] = hashlib.sha256((tmp_path / f"{name}.npy").read_bytes()).hexdigest()
    rewritten(tmp_path, manifest)
    with pytest.raises(PatchtraceError):
        Attribution.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "9" * 5000, '{"a":' * 5000, "null", "[]", '"a"'])
def test_a_manifest_of_something_else_is_refused(saved, tmp_path, text):
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    (tmp_path / "attribution.json").write_text(text)
    with pytest.raises(PatchtraceError, match="no readable result"):
        Attribution.load(tmp_path)
