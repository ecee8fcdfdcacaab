"""Commands for a run that is there: more draws, explanations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchtrace import Attribution
from patchtrace.viewer.report import report_paths

FAST = ["--preset", "quick", "--size", "12"]


@pytest.mark.parametrize(
    "verb",
    [
        [],
        ["attribute"],
        ["refine"],
        ["generate"],
        ["recipe"],
        ["demo"],
        ["train"],
        ["sample"],
        ["lds"],
        ["compare"],
        ["counterfactual"],
        ["ablate"],
        ["tune"],
    ],
    ids=str,
)
def test_help_has_examples(call, verb):
    code, out, _ = call(*verb, "--help")
    assert code == 0
    assert "Example" in out
    assert "patchtrace " + " ".join(verb) in out


def test_refine_adds_draws_to_a_run(call, photos, query, tmp_path):
    run = tmp_path / "run"
    assert call("attribute", query, "--train", photos, *FAST, "--draws", 4, "-o", run, "--format", "json")[0] == 0
    code, out, err = call("refine", run, "--draws", 10)
    assert code == 0
    assert "belong to the list" in out
    assert "written to" in err
    assert (run / "ranking.json").exists()
    call("attribute", query, "--train", photos, *FAST, "--draws", 10, "-o", tmp_path / "at-once")
    np.testing.assert_allclose(Attribution.load(run).scores, Attribution.load(tmp_path / "at-once").scores, rtol=1e-5)
    assert call("refine", run, "-o", tmp_path / "more", "--most-draws", 40)[0] == 0
    assert Attribution.load(tmp_path / "more").settings["recipe"]["draws"] == "auto"


@pytest.mark.parametrize(
    "arguments",
    [["--draws", 2, "--exact"], ["--preset", "cifar", "--most-draws", 9], ["--draws", 3, "--confidence", 0.9]],
)
def test_rules_for_stopping_need_draws_that_can_stop(call, photos, query, arguments):
    code, _, error = call("attribute", query, "--train", photos, *arguments)
    assert code == 2
    assert "--draws auto" in error


def test_refine_lists_what_could_not_be_read(call, photos, query, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    assert call("attribute", query, "--train", photos, *FAST, "--draws", 4, "-o", tmp_path / "run")[0] == 3
    code, _, err = call("refine", tmp_path / "run", "--draws", 6)
    assert code == 3
    assert "skipped.csv" in err


def test_refine_refuses_a_run_that_it_cannot_go_on_with(call, photos, query, tmp_path):
    call("attribute", query, "--train", photos, *FAST, "-o", tmp_path / "single")
    code, _, err = call("refine", tmp_path / "single")
    assert code == 1
    assert "--draws auto" in err
    call("attribute", query, "--train", photos, *FAST, "--draws", 4, "-o", tmp_path / "run")
    (photos / "0.png").unlink()
    code, _, err = call("refine", tmp_path / "run")
    assert code == 1
    assert "changed since the result was made" in err


def test_a_run_with_smaller_queries_is_read_again(call, photos, query, tmp_path):
    run = tmp_path / "run"
    smaller = ("--shrink", "1.5,2", "--draws", 4, "-o", run, "--report", tmp_path / "report.html", "--json")
    code, out, _ = call("attribute", query, "--train", photos, *FAST, *smaller)
    assert code == 0
    names = [found["id"] for found in json.loads(out)["queries"]]
    assert names == [query.name, f"{query.name}, 1.5 times smaller", f"{query.name}, 2 times smaller"]
    assert len(list(tmp_path.glob("report*.html"))) == 4  # a page for each, and one with links to them
    assert call("refine", run, "--draws", 6)[0] == 0
    assert Attribution.load(run).query_ids == tuple(names)
    code, _, err = call("attribute", query, "--train", photos, "--shrink", "0.5")
    assert code == 2
    assert "more than 1, up to 4" in err


def test_explain_writes_pictures_and_numbers_that_add_up(call, photos, query, tmp_path):
    run, why = tmp_path / "run", tmp_path / "why"
    assert call("attribute", query, "--train", photos, *FAST, "-o", run)[0] == 0
    code, out, _ = call("explain", run, "--all-draws", "-o", why)
    assert code == 0
    found = json.loads((why / "explanation.json").read_text())
    assert len(found["pairs"]) == 3
    assert len(out.splitlines()) == 3
    for pair in found["pairs"]:
        assert pair["explained"] == pytest.approx(pair["share"], rel=1e-5)
        assert sum(step["share"] for step in pair["steps"]) == pytest.approx(pair["share"], rel=1e-5)
    for name in ("overview", "mosaic", "proponents", f"pair-{found['pairs'][0]['index']}"):
        with Image.open(why / f"{name}.png") as picture:
            picture.load()
            assert picture.width > 500


def test_explain_takes_images_by_name_and_refuses_others(call, photos, query, tmp_path):
    run, why = tmp_path / "run", tmp_path / "why"
    call("attribute", query, "--train", photos, *FAST, "-o", run)
    name = Attribution.load(run).train_ids[1]
    assert call("explain", run, "--train", name, "-o", why)[0] == 0
    assert [pair["id"] for pair in json.loads((why / "explanation.json").read_text())["pairs"]] == [name]
    code, _, error = call("explain", run, "--query", "nobody.png", "-o", why)
    assert code == 1
    assert "nobody.png" in error
    assert "use an id such as" in error


def test_a_report_for_each_query(call, photos, query, tmp_path):
    report = tmp_path / "why.html"
    code, _, err = call("attribute", query, photos / "4.png", "--train", photos, *FAST, "--report", report)
    assert code == 0
    index = report.read_text()
    assert "What 2 pictures resemble</title>" in index
    for file, name in (("why-1-query.html", "query.png"), ("why-2-photos-4.html", "photos/4.png")):
        page = (tmp_path / file).read_text()
        assert f"{name} resembles</title>" in page
        assert file in err
        assert f'<a href="{file}">{name}</a>' in index
    assert call("attribute", query, "--train", photos, *FAST, "--report", report)[0] == 0
    assert report.exists()


def test_an_index_of_reports_shows_hostile_names_as_text():
    paths = report_paths(Path("out/r.html"), ["../../<img src=x>.png", "", "🂡", *"abcdefghi"])
    assert {path.parent for path in paths} == {Path("out")}
    assert len(set(paths)) == 12
    assert paths[:3] == [Path("out/r-01-img-src-x.html"), Path("out/r-02.html"), Path("out/r-03.html")]


def test_a_report_of_a_shortlist_says_that_it_is_approximate(call, photos, query, tmp_path):
    report = tmp_path / "short.html"
    code, out, _ = call("attribute", query, "--train", photos, *FAST, "--shortlist", 3, "--report", report)
    assert code == 0
    for text in (out, report.read_text()):
        assert "approximate: a coarse pass chose 3 of the 6 images" in text


@pytest.mark.parametrize("method", ["pixel", "random"])
def test_a_report_of_a_method_that_does_not_compare_patches(call, photos, query, tmp_path, method):
    report = tmp_path / "ranking.html"
    arguments = ["--method", method, "--size", 12, "--report", report, "--json"]
    code, out, _ = call("attribute", query, "--train", photos, *arguments)
    assert code == 0
    page = report.read_text()
    assert "query.png resembles</title>" in page
    assert all(hit["id"] in page for hit in json.loads(out)["queries"][0]["ranking"])
    assert '"mosaic":null' in page  # nothing about patches


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--report", "nowhere/r.html"], "no such directory"),
        (["--shortlist", "3", "--parts"], "exact comparison"),
        (["--json", "--json-lines"], "two formats"),
    ],
)
def test_what_cannot_be_is_refused_before_the_work(call, photos, query, arguments, says):
    code, _, error = call("attribute", query, "--train", photos, *arguments)
    assert code == 2
    assert says in error


def test_a_report_is_not_written_among_the_images(call, photos, query):
    code, _, error = call("attribute", query, "--train", photos, "--report", photos / "r.html")
    assert code == 2
    assert "whose images are read" in error


def test_shares_of_a_region(call, photos, query, tmp_path):
    run, why = tmp_path / "run", tmp_path / "why"
    call("attribute", query, "--train", photos, *FAST, "-o", run)
    code, out, _ = call("explain", run, "--all-draws", "--region", 0, 0, 12, 12, "-o", why)
    assert code == 0
    assert "of the region" in out
    shares = json.loads((why / "explanation.json").read_text())["region"]["shares"]
    whole = {hit.id: hit.share for hit in Attribution.load(run).top(6)[0]}
    assert {row["id"]: pytest.approx(row["share"], rel=1e-5) for row in shares} == whole
    code, _, error = call("explain", run, "--region", 20, 20, 30, 30, "-o", why)
    assert code == 1
    assert "no pixel" in error


@pytest.mark.parametrize("verb", ["refine", "explain"])
@pytest.mark.parametrize(
    ("key", "value"),
    [("opened", None), ("opened", {"train": 5}), ("opened", []), ("train", {}), ("queries", 7), ("train", None)],
)
def test_facts_that_were_tampered_with_are_refused(call, photos, query, tmp_path, verb, key, value):
    run = tmp_path / "run"
    assert call("attribute", query, "--train", photos, *FAST, "--draws", 4, "-o", run)[0] == 0
    manifest = json.loads((run / "attribution.json").read_text())
    manifest["facts"][key] = value
    del manifest["manifest_sha256"]  # as in runs of earlier versions
    (run / "attribution.json").write_text(json.dumps(manifest))
    code, _, err = call(verb, run, "-o", tmp_path / "out")
    assert code == 1
    assert err.startswith("error: ")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("decoys", 5), ("decoys", [[]]), ("decoy_key", {}), ("train_key", [1]), ("query_key", 5), ("layout", {})],
        *[("latents", 7), ("timeout", "x"), ("timeout", float("nan")), ("size", "a"), ("size", [[[]]]), ("fit", {})],
        *[("crop", "a"), ("limit", -1), ("exif", None), ("train", ["\x1b[31m"])],
    ],
)
def test_options_of_a_run_that_were_tampered_with_are_refused(call, photos, query, tmp_path, key, value):
    run, decoys = tmp_path / "run", tmp_path / "decoys"
    decoys.mkdir()
    Image.new("RGB", (9, 9), "red").save(decoys / "a.png")
    call("attribute", query, "--train", photos, *FAST, "--draws", 2, "--decoys", decoys, "--no-verdicts", "-o", run)
    manifest = json.loads((run / "attribution.json").read_text())
    manifest["facts"]["opened"][key] = value
    del manifest["manifest_sha256"]
    (run / "attribution.json").write_text(json.dumps(manifest))
    code, _, err = call("refine", run)
    assert code in (1, 2)
    assert "\x1b" not in err


@pytest.mark.parametrize("latents", [5, {}, {"kind": "taef2"}, ["a"]])
def test_an_autoencoder_that_was_tampered_with_is_refused(call, photos, query, tmp_path, latents):
    run = tmp_path / "run"
    call("attribute", query, "--train", photos, *FAST, "--draws", 2, "--no-verdicts", "-o", run)
    manifest = json.loads((run / "attribution.json").read_text())
    manifest["facts"]["train"]["latents"] = latents
    del manifest["manifest_sha256"]
    (run / "attribution.json").write_text(json.dumps(manifest))
    code, _, err = call("refine", run)
    assert code == (1 if latents else 0)  # an empty one is none
    assert not latents or err.startswith("error: ")


def test_a_time_limit_goes_with_any_number_of_draws(call, photos, query, tmp_path):
    found = []
    for limit in ([], ["--seconds", 600]):
        run = tmp_path / str(len(limit))
        assert call("attribute", query, "--train", photos, "--size", 12, "--preset", "quick", *limit, "-o", run)[0] == 0
        found.append(Attribution.load(run))
    assert found[0].nda.draws == found[1].nda.draws == [[1]]
    np.testing.assert_array_equal(found[0].scores, found[1].scores)


@pytest.mark.parametrize(("rows", "count"), [((), 6), (("--rows", 2), 2), (("--rows", "all"), 6)])
def test_the_ranking_on_disk_has_as_many_rows_as_asked_for(call, photos, query, tmp_path, rows, count):
    run = tmp_path / "run"
    _, _, err = call("attribute", query, "--train", photos, *FAST, "--draws", 2, *rows, "-o", run)
    assert len((run / "ranking.csv").read_text().splitlines()) == 1 + count
    assert ("--rows all" in err) == (count < 6)
    assert Attribution.load(run).scores.shape == (1, 6)
    assert call("refine", run, "--draws", 4, *rows)[0] == 0
    assert len((run / "ranking.csv").read_text().splitlines()) == 1 + count


def test_by_default_a_ranking_on_disk_lists_the_first_thousand(call, tmp_path):
    data = np.random.default_rng(0).integers(0, 256, (1203, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", train=data, query=data[:2])
    keys = ["--train-key", "train", "--query-key", "query", "--layout", "NHWC", "--no-verdicts"]
    where = tmp_path / "data.npz"
    _, _, err = call("attribute", where, "--train", where, *keys, "--method", "pixel", "-o", tmp_path / "run")
    assert "1,000 of 1,203" in err
    assert len((tmp_path / "run" / "ranking.csv").read_text().splitlines()) == 1 + 2 * 1000


def test_a_number_of_rows_that_is_none_is_refused(call, photos, query):
    code, _, err = call("attribute", query, "--train", photos, "--rows", "some")
    assert code == 2
    assert "or all" in err
