"""The command line as scripts see it: exit codes, what is printed where, what is written."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchtrace
from patchtrace import Attribution, ImageSet, Recipe, ScoreMachine
from patchtrace.cli import common
from patchtrace.cli.common import print_table
from patchtrace.cli.demo import HANDFULS
from patchtrace.cli.evidence import HINT
from patchtrace.cli.recipe import check

FAST = ["--preset", "quick", "--size", "12"]


def test_a_table_with_rank_share_and_id_goes_to_stdout(call, photos, query):
    code, out, err = call("attribute", query, "--train", photos, *FAST, "--top", 3)
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("query.png")
    assert lines[1].split() == ["rank", "share", "id"]
    assert len(lines) == 7
    assert lines[2].split()[0] == "1"
    assert lines[2].endswith(" %  2.png")
    assert err == f"{HINT}\n"
    assert lines[5] == "copies, and parts in common, among the first 3 images:"
    assert lines[6] == "     1  same picture  2.png"
    plain = call("attribute", query, "--train", photos, *FAST, "--top", 3, "--no-verdicts")[1]
    assert plain.splitlines() == lines[:5]


def test_everything_is_on_disk_with_output(call, photos, query, tmp_path):
    code, _, err = call("attribute", query, "--train", photos, *FAST, "-o", tmp_path / "run")
    assert code == 0
    assert "run" in err
    written = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert written == ["attribution.json", "ranking.csv", "recipe.toml", "scores.npy", "shares.npy", "sheet.png"]
    result = Attribution.load(tmp_path / "run")
    assert result.top(1)[0][0].id == "2.png"
    assert result.facts["train"]["decoding"]["exif"] == "apply"
    assert result.facts["versions"]["patchtrace"] == patchtrace.__version__
    assert Recipe.load(tmp_path / "run" / "recipe.toml") == Recipe.preset("quick")
    with (tmp_path / "run" / "ranking.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 6
    with Image.open(tmp_path / "run" / "sheet.png") as sheet:
        assert sheet.width > 200


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_the_ranking_is_written_in_the_format_asked_for(call, photos, query, tmp_path, kind):
    call("attribute", query, "--train", photos, *FAST, "-o", tmp_path / "run", "--format", kind)
    assert (tmp_path / "run" / f"ranking.{kind}").stat().st_size > 100


def test_json_on_stdout_can_be_read(call, photos, query):
    _, out, _ = call("attribute", query, "--train", photos, *FAST, "--json", "--top", 2)
    data = json.loads(out)
    assert data["queries"][0]["ranking"][0]["id"] == "2.png"
    assert len(data["queries"][0]["ranking"]) == 2
    assert data["settings"]["recipe"]["levels"][0]["t"] == 100


def test_several_queries_and_a_folder_of_queries(call, photos, query):
    _, several, _ = call("attribute", query, photos / "0.png", "--train", photos, *FAST, "--json", "--top", 1)
    _, folder, _ = call("attribute", photos, "--train", photos, *FAST, "--json", "--top", 1)
    assert len(json.loads(several)["queries"]) == 2
    queries = json.loads(folder)["queries"]
    assert [q["id"] for q in queries] == [q["ranking"][0]["id"] for q in queries]


@pytest.mark.parametrize("method", ["nda", "pixel", "random"])
def test_every_method_runs(call, photos, query, method):
    code, out, _ = call("attribute", query, "--train", photos, "--size", 12, "--method", method, "--json")
    assert code == 0
    assert json.loads(out)["method"] == method


def test_recipe_file_and_changes_to_it(call, photos, query, tmp_path):
    call("recipe", "show", "--preset", "quick")
    (tmp_path / "mine.toml").write_text(Recipe.preset("quick").to_toml().replace("k = 100", "k = 3"))
    options = (
        "--recipe",
        tmp_path / "mine.toml",
        "--draws",
        2,
        "--views",
        "zoom:1.5,flips",
        "--seed",
        9,
        "--size",
        12,
        "--json",
    )
    _, out, _ = call("attribute", query, "--train", photos, *options)
    recipe = json.loads(out)["settings"]["recipe"]
    assert (recipe["k"], recipe["draws"], recipe["views"], recipe["seed"]) == (3, 2, ["flips", "zoom:1.5"], 9)


def test_mirrored_images_are_compared_unless_there_are_to_be_no_views(call, photos, query):
    found = []
    for options in ((), ("--views", "flips"), ("--views", "none")):
        _, out, _ = call("attribute", query, "--train", photos, "--size", 12, "--draws", 1, *options, "--json")
        found.append((json.loads(out)["settings"]["recipe"]["views"], json.loads(out)["queries"]))
    assert [views for views, _ in found] == [["flips"], ["flips"], []]
    assert found[0][1] == found[1][1] != found[2][1]


def test_a_view_that_there_is_not_is_refused_with_those_there_are(call, photos, query):
    code, _, err = call("attribute", query, "--train", photos, "--views", "zoom:9")
    assert code == 2
    assert "zoom:1.5" in err


def test_parts_are_kept_on_request(call, photos, query, tmp_path):
    call("attribute", query, "--train", photos, *FAST, "--parts", "-o", tmp_path / "run")
    assert Attribution.load(tmp_path / "run").nda.parts.shape == (1, 1, 6)


def test_without_a_size_pictures_come_to_32_and_to_the_preset_s_size(call, photos, query):
    for options, side in (
        (["--method", "pixel"], 32),
        (["--preset", "quick"], 32),
        (["--preset", "celeba", "--limit", 1], 64),
    ):
        _, out, _ = call("attribute", query, "--train", photos, *options, "--json")
        assert json.loads(out)["facts"]["train"]["shape"] == [3, side, side]


def test_arrays_keep_their_size_and_keys_choose_among_them(call, tmp_path):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 9, 9, 3), dtype=np.uint8)
    np.savez(tmp_path / "data.npz", train=images, val=images[3:4])
    data = tmp_path / "data.npz"
    options = ("--train-key", "train", "--query-key", "val", "--preset", "quick", "--json")
    code, out, _ = call("attribute", data, "--train", data, *options)
    assert code == 0
    assert json.loads(out)["facts"]["train"]["shape"] == [3, 9, 9]
    assert json.loads(out)["queries"][0]["ranking"][0]["index"] == 3


def test_several_collections_are_one(call, photos, query):
    _, out, _ = call("attribute", query, "--train", photos / "sub", "--train", photos / "2.png", *FAST, "--json")
    ids = {hit["id"] for hit in json.loads(out)["queries"][0]["ranking"]}
    assert ids == {"sub/1.png", "sub/3.png", "sub/5.png", "2.png"}


def test_a_layout_can_be_given(call, tmp_path):
    np.save(tmp_path / "grey.npy", np.random.default_rng(0).integers(0, 256, (5, 9, 9), dtype=np.uint8))
    command = ("attribute", tmp_path / "grey.npy", "--train", tmp_path / "grey.npy", "--preset", "quick", "--json")
    code, _, err = call(*command)
    assert code == 1
    assert "--layout" in err
    assert json.loads(call(*command, "--layout", "NHW")[1])["facts"]["train"]["shape"] == [1, 9, 9]


def test_decoding_options_reach_collection_and_queries(call, photos, query):
    options = ("--fit", "pad", "--exif", "ignore", "--crop", "8", "--grey")
    _, out, _ = call("attribute", query, "--train", photos, *FAST, *options, "--json")
    facts = json.loads(out)["facts"]
    for role, crop in (("train", 8), ("queries", None)):
        rules = facts[role]["decoding"]
        assert (rules["fit"], rules["exif"], rules["crop"], rules["grey"]) == ("pad", "ignore", crop, True)


def test_links_are_followed_on_request_in_collection_and_queries(call, photos, tmp_path):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a.png").symlink_to(photos / "0.png")
    command = ("attribute", tmp_path / "links", "--train", tmp_path / "links", *FAST)
    code, _, err = call(*command)
    assert code == 1
    assert "symbolic links were not followed" in err
    assert call(*command, "--follow-symlinks")[0] == 0


def test_a_new_run_leaves_nothing_of_the_old_one(call, photos, query, tmp_path):
    bad = photos.parent / "bad.png"
    bad.write_bytes(b"")
    old = ("--parts", "--format", "json", "-o", tmp_path / "run")
    assert call("attribute", query, bad, "--train", photos, *FAST, *old)[0] == 3
    call("attribute", query, "--train", photos, "--size", 12, "--method", "pixel", "-o", tmp_path / "run")
    left = sorted(p.name for p in (tmp_path / "run").iterdir())
    assert left == ["attribution.json", "ranking.csv", "scores.npy", "shares.npy", "sheet.png"]


def test_a_run_that_cannot_be_written_takes_nothing_of_the_old_one(call, photos, query, tmp_path, monkeypatch):
    run = tmp_path / "run"
    call("attribute", query, "--train", photos, *FAST, "--format", "json", "-o", run)
    before = {path.name for path in run.iterdir()}

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(common, "contact_sheet", full_disk)
    code, _, err = call("attribute", query, "--train", photos, "--size", 12, "--method", "pixel", "-o", run)
    assert code == 1
    assert "No space left" in err
    assert before <= {path.name for path in run.iterdir()}


def test_mistakes_are_found_before_the_collection_is_read(call, photos, query, tmp_path, monkeypatch):
    monkeypatch.setattr(ImageSet, "open", lambda *a, **k: pytest.fail("the collection was opened"))
    (tmp_path / "bad.toml").write_text("k = 0")
    (tmp_path / "file").write_text("")
    for options in (["--recipe", tmp_path / "bad.toml"], ["--memory", "x"], ["-o", tmp_path / "file" / "run"]):
        assert call("attribute", query, "--train", photos, *options)[0] in (1, 2)


def test_limit_takes_the_first_images(call, photos, query):
    _, out, _ = call("attribute", query, "--train", photos, *FAST, "--limit", 2, "--json")
    assert json.loads(out)["facts"]["train"]["images"] == 2


def test_verbose_says_how_and_quiet_says_nothing_more(call, photos, query, tmp_path):
    _, _, err = call("attribute", query, "--train", photos, *FAST, "-v")
    assert "quick" in err
    assert "6 images" in err
    _, _, err = call("attribute", query, "--train", photos, *FAST, "-q", "-o", tmp_path / "run")
    assert err == ""


# -- exit codes -------------------------------------------------------------------------------------------


def break_some(photos: Path) -> dict[str, str]:
    """Put one of every kind of broken image into a folder; returns part of the reason for each."""
    good = (photos / "0.png").read_bytes()
    (photos / "empty.jpg").write_bytes(b"")
    (photos / "half.png").write_bytes(good[: len(good) // 2])
    (photos / "text.gif").write_text("not an image")
    (photos / "sub" / "zeros.webp").write_bytes(bytes(1000))
    (photos / "directory.png").mkdir()
    bomb = Image.new("1", (12_000, 12_000))
    bomb.save(photos / "bomb.png")
    os.mkfifo(photos / "pipe.jpg")
    (photos / "loop").symlink_to(photos)
    (photos / "notes.txt").write_text("no image, and not called one")
    return {
        "bomb.png": "12000 x 12000 pixels",
        "empty.jpg": "empty file",
        "half.png": "truncated",
        "pipe.jpg": "not a regular file",
        "sub/zeros.webp": "not an image",
        "text.gif": "not an image",
    }


def test_broken_images_are_listed_and_the_good_ones_scored(call, photos, query, tmp_path):
    expected = break_some(photos)
    code, out, err = call("attribute", query, "--train", photos, *FAST, "-o", tmp_path / "run")
    assert code == 3
    assert "2.png" in out
    assert f"{len(expected)} images could not be read" in err
    assert "symbolic links were not followed: 1" in err
    with (tmp_path / "run" / "skipped.csv").open() as stream:
        listed = {row["id"]: row["reason"] for row in csv.DictReader(stream)}
    assert list(listed) == list(expected)
    for name, reason in expected.items():
        assert reason in listed[name]
    assert len(Attribution.load(tmp_path / "run").train_ids) == 6


def test_without_output_broken_images_are_listed_on_stderr(call, photos, query):
    (photos / "empty.jpg").write_bytes(b"")
    code, _, err = call("attribute", query, "--train", photos, *FAST)
    assert code == 3
    assert "empty.jpg: empty file" in err


def test_an_unreadable_query_among_good_ones_is_listed(call, photos, query, tmp_path):
    bad = photos.parent / "bad.png"
    bad.write_bytes(b"")
    code, out, err = call("attribute", query, bad, "--train", photos, *FAST)
    assert code == 3
    assert "bad.png: empty file" in err
    assert "query.png" in out
    call("attribute", query, bad, "--train", photos, *FAST, "-o", tmp_path / "run")
    assert (tmp_path / "run" / "skipped.csv").read_text().splitlines() == ["of,id,reason", "queries,bad.png,empty file"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["QUERY", "--train", "EMPTY"], "the collection: no readable image"),
        (["BROKEN", "--train", "PHOTOS"], "the queries: no readable image"),
        (["QUERY", "--train", "PHOTOS", "--size", "4", "--preset", "quick"], "larger than the 4 x 4 image"),
        (["QUERY", "--train", "PHOTOS", "--recipe", "BROKEN"], "recipe"),
    ],
)
def test_what_cannot_be_done_is_fatal_and_says_why(call, photos, query, tmp_path, arguments, says):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.png").write_bytes(b"\xff\xfe")
    places = {"QUERY": query, "PHOTOS": photos, "EMPTY": tmp_path / "empty", "BROKEN": tmp_path / "broken.png"}
    code, out, err = call("attribute", *[places.get(a, a) for a in arguments])
    assert code == 1
    assert out == ""
    assert says in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["attribute"],
        ["attribute", "QUERY"],
        ["attribute", "/nowhere.png", "--train", "PHOTOS"],
        ["attribute", "QUERY", "--train", "/nowhere"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--top", "0"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--size", "big"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--size", "0"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--size", "5000x5"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--memory", "lots"],
        ["attribute", "QUERY", "--train", "PHOTOS", "-o", "PHOTOS"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--method", "pixel", "--seed", "0"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--method", "random", "--memory", "2GB"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--preset", "imagenet"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--preset", "quick", "--recipe", "QUERY"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--method", "pixel", "--draws", "4"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--method", "pixel", "--seed", "4"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--format", "json"],
        ["attribute", "QUERY", "--train", "PHOTOS", "--rows", "5"],
        ["recipe", "show"],
        ["recipe", "show", "--preset", "cifar", "--size", "32"],
        ["fly"],
        ["--config", "/nowhere.toml", "demo"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_code_2(call, photos, query, arguments):
    code, out, err = call(*[{"QUERY": query, "PHOTOS": photos}.get(a, a) for a in arguments])
    assert code == 2
    assert out == ""
    assert err


def test_ctrl_c_is_code_130_and_leaves_nothing_half_written(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "many.npy", rng.integers(0, 256, (4000, 32, 32, 3), dtype=np.uint8))
    arguments = ["many.npy", "--train", "many.npy", "--preset", "cifar", "-o", "run", "-v"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from patchtrace.cli import main; main()", "attribute", *arguments],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert "4000 queries" in process.stderr.readline()  # reading is over, comparing begins
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {"unfinished"}


def test_a_terminal_sees_progress_with_the_time_left(photos, query):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    code = "from patchtrace.cli import main; main()"
    command = [sys.executable, "-c", code, "attribute", str(query), "--train", str(photos), *FAST]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=theirs, check=True)
    seen = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "reading the collection" in seen
    assert "comparing" in seen
    assert " left" in seen


def test_a_closed_pipe_is_no_error(photos, query):
    code = "from patchtrace.cli import main; main()"
    command = [sys.executable, "-c", code, "attribute", str(query), "--train", str(photos), *FAST, "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0
    process.stderr.close()


# -- settings, help, the other verbs ----------------------------------------------------------------------


def shown(call, *arguments):
    return len(json.loads(call(*arguments)[1])["queries"][0]["ranking"])


def test_settings_come_from_file_then_environment_then_flag(call, photos, query, tmp_path, monkeypatch):
    config = tmp_path / "settings.toml"
    config.write_text(
        "[attribute]\ntop = 1\nsize = 12\npreset = 'quick'\nfollow-symlinks = true\n[recipe.show]\nsize = 16\n"
    )
    command = ("--config", config, "attribute", query, "--train", photos, "--json")
    assert shown(call, *command) == 1
    monkeypatch.setenv("PATCHTRACE_ATTRIBUTE_TOP", "2")
    assert shown(call, *command) == 2
    assert shown(call, *command, "--top", 3) == 3
    assert Recipe.from_toml(call("--config", config, "recipe", "show")[1]) == Recipe.for_size(16, 16)


def test_the_environment_knows_options_by_the_names_of_their_flags(call, photos, query, monkeypatch):
    monkeypatch.setenv("PATCHTRACE_ATTRIBUTE_JSON", "1")
    assert json.loads(call("attribute", query, "--train", photos, *FAST)[1])["method"] == "nda"
    monkeypatch.setenv("PATCHTRACE_STORE_INFO_JSON", "1")
    call("index", photos, "-o", photos.parent / "photos.store", "--jobs", 1)
    assert json.loads(call("store", "info", photos.parent / "photos.store")[1])["images"] == 6


@pytest.mark.parametrize("text", ["[attribute]\ntopp = 1", "[fly]\ntop = 1", "attribute = 3", "= 3"])
def test_a_wrong_settings_file_is_refused(call, tmp_path, text):
    (tmp_path / "settings.toml").write_text(text)
    code, _, err = call("--config", tmp_path / "settings.toml", "demo")
    assert code == 2
    assert "settings.toml" in err


def test_version(call):
    assert call("--version")[1].strip() == f"patchtrace {patchtrace.__version__}"


def test_recipe_show_prints_toml_that_reads_back(call):
    assert Recipe.from_toml(call("recipe", "show", "--preset", "celeba")[1]) == Recipe.preset("celeba")
    assert Recipe.from_toml(call("recipe", "show", "--size", "48x80")[1]) == Recipe.for_size(48, 80)


def test_recipe_check_warns_of_hours_and_only_of_hours(call, tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text(Recipe.preset("cifar-stable").to_toml())
    monkeypatch.setitem(check.callback.__globals__, "seconds_of_an_image", lambda *_: 0.5)
    code, out, err = call("recipe", "check", path, "--images", 10_000)
    assert code == 0
    assert "one draw of 10,000 images takes about 83 min here" in out
    assert "2.8 h or more" in err  # a list of two draws at the least
    code, out, err = call("recipe", "check", path, "--images", 100)
    assert "about 50 s here" in out
    assert not err


def test_recipe_check_tells_a_sound_recipe_from_a_bad_one(call, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(Recipe.preset("cifar").to_toml())
    code, out, _ = call("recipe", "check", path)
    assert code == 0
    assert f"{(28**2 + 4) ** 2:,}" in out  # pairs at t = 100: on each axis 28 interior positions and 4 that hang over
    assert "one draw of 1,000 images takes about" in out
    assert call("recipe", "check", path, "--size", 16)[0] == 1
    path.write_text(path.read_text().replace("k = 100", "k = 0"))
    code, _, err = call("recipe", "check", path)
    assert code == 1
    assert "at least 1" in err


@pytest.mark.slow
def test_the_demo_finds_the_cards_its_queries_are_painted_from(call, tmp_path):
    code, out, _ = call("demo", "-o", tmp_path / "demo")
    assert code == 0
    assert "sheet.png" in out
    result = Attribution.load(tmp_path / "demo")
    for handful, hits in zip(HANDFULS, result.top(10), strict=True):
        found = {hit.index for hit in hits} & set(handful)
        assert hits[0].index in handful
        assert len(found) >= 2
    assert out.count("(rank 1)") == len(HANDFULS)


def test_generate_paints_pictures_and_says_what_they_are_from(call, photos, tmp_path):
    run = tmp_path / "painted"
    more = ["generate", "--train", photos, "--size", 12, "--steps", 3, "-o", run]
    assert call(*more, "-n", 4)[0] == 0
    code, out, err = call(*more, "-n", 2, "--top", 3)
    assert code == 0
    assert "written to" in err
    assert out.count(".png") == 6
    assert (out.count("share  id"), out.count(" %")) == (2, 6)
    written = sorted(path.name for path in run.iterdir())
    assert written == [
        "attribution.json",
        "painted-000.png",
        "painted-001.png",
        "provenance.npz",
        "ranking.csv",
        "scores.npy",
        "shares.npy",
        "sheet.png",
    ]
    result = Attribution.load(run)
    assert result.shares.shape == (2, 6)
    np.testing.assert_allclose(result.shares.sum(axis=1), 1, rtol=1e-5)
    assert result.settings["steps"] == 3
    expected = ScoreMachine(ImageSet.open(photos, size=12)).sample(2, steps=3)
    with np.load(run / "provenance.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["images"], expected.images)
        np.testing.assert_array_equal(arrays["sources"], expected.provenance.sources)
    with Image.open(run / "painted-001.png") as picture:
        shown = np.asarray(picture).transpose(2, 0, 1) / 127.5 - 1
    np.testing.assert_allclose(shown, expected.images[1], atol=0.005)


def test_generate_lists_what_it_could_not_read(call, photos, tmp_path):
    (photos / "broken.png").write_bytes(b"no picture")
    code, _, err = call("generate", "--train", photos, "--size", 12, "--steps", 1, "-n", 1, "-o", tmp_path / "painted")
    assert code == 3
    assert "skipped.csv" in err


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["--patch", 4], 1, "odd"),
        (["-n", 0], 2, "x>=1"),
        (["--eta", 2], 2, "0<=x<=1"),
        (["--memory", "lots"], 2, "500MB"),
        (["-o", "{photos}/painted"], 2, "outside of it"),
    ],
    ids=str,
)
def test_generate_refuses_what_cannot_be(call, photos, tmp_path, arguments, code, hint):
    arguments = [str(a).format(photos=photos) for a in arguments]
    found, _, err = call("generate", "--train", photos, "--size", 12, "-o", tmp_path / "painted", *arguments)
    assert found == code
    assert hint in err


def test_influence_is_a_method_of_the_command_line(call, photos, query):
    arguments = ["attribute", query, "--train", photos, "--size", 12, "--method", "machine-influence", "--json"]
    code, out, _ = call(*arguments, "--draws", 1, "--seed", 4)
    assert code == 0
    found = json.loads(out)
    assert found["settings"]["draws"] == 1
    assert found["settings"]["seed"] == 4
    assert found["queries"][0]["ranking"][0]["id"] == "2.png"
    code, _, err = call(*arguments, "--views", "flips")
    assert code == 2
    assert "machine-influence" in err


def test_without_a_preset_draws_are_added_until_the_list_is_settled(call, photos, query):
    code, out, _ = call("attribute", query, "--train", photos, "--size", 12, "--top", 2)
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split() == ["rank", "share", "±", "in", "top", "2", "id"]
    assert lines[2].split()[-1] == "2.png"
    assert "of these 2 belong to the list or tie with its last at 95 %; the list is settled" in lines[4]


def test_errors_and_chances_are_in_json_and_csv(call, photos, query, tmp_path):
    arguments = ["attribute", query, "--train", photos, *FAST, "--draws", 6]
    code, out, _ = call(*arguments, "--json", "-o", tmp_path / "run")
    assert code == 0
    first = json.loads(out)["queries"][0]
    assert first["ranking"][0]["error"] >= 0
    assert first["ranking"][0]["chance"] == 1
    assert "belong to the list or tie with its last at 95 %" in first["remarks"][0]
    with (tmp_path / "run" / "ranking.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[0]["error"]) == pytest.approx(first["ranking"][0]["error"])
    single = json.loads(call("attribute", query, "--train", photos, *FAST, "--json")[1])
    assert single["queries"][0]["remarks"] == []
    assert single["queries"][0]["ranking"][0]["error"] is None


@pytest.mark.parametrize("draws", ["0", "some", "-1", "1.5"])
def test_draws_are_a_number_or_auto(call, photos, query, draws):
    code, _, err = call("attribute", query, "--train", photos, *FAST, "--draws", draws)
    assert code == 2
    assert "--draws" in err


def test_names_cannot_send_escape_sequences_to_the_terminal(capsys):
    one = np.ones((1, 1), np.float32)
    print_table(Attribution(one, one, ("\x1b[31mred",), ("a\nb",), "x"), 1)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "a\\nb" in out


def test_an_id_that_stdout_cannot_show_does_not_end_the_run(photos, query):
    (photos / "0.png").rename(photos / "画.png")
    code = "from patchtrace.cli import main; main()"
    command = [sys.executable, "-c", code, "attribute", str(query), "--train", str(photos), *FAST]
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert b"\\u753b.png" in done.stdout


def test_errors_cannot_send_escape_sequences_to_the_terminal(call, photos, query, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "\x1b[31mred.png").write_bytes(b"")
    _, _, err = call("attribute", query, "--train", tmp_path / "bad")
    assert "\x1b" not in err
    assert "red.png: empty file" in err


def test_300_images_with_the_cifar_preset_stay_within_the_memory(collection, tmp_path):
    for name, images in (("train", collection["train"][:300]), ("query", collection["val"][:1])):
        folder = tmp_path / name
        folder.mkdir()
        opened = ImageSet.open(images)
        for i in range(len(opened)):
            opened.picture(i).save(folder / f"{i:03d}.png")
    code = (
        "import resource, sys; from patchtrace.cli import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit as end: code = end.code\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "attribute", "query", "--train", "train", "--preset", "cifar", "-o", "run"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 12 + 1  # the last about copies
    assert int(done.stderr.splitlines()[-1]) < 1_500_000  # kilobytes
    assert Attribution.load(tmp_path / "run").shares.sum() == pytest.approx(1, abs=0.02)
