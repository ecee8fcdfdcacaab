"""patchtrace index and patchtrace store, and stores as --train."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hostile import slow_jpeg
from PIL import Image

from patchtrace.attribution import Attribution
from patchtrace.images import ImageSet, Store


@pytest.fixture
def store(tmp_path):
    return tmp_path / "photos.store"


def test_a_folder_becomes_a_store(photos, store, call):
    code, out, _ = call("index", photos, "-o", store, "--size", "8", "--jobs", "1")
    assert code == 0
    assert "6 images, 8 x 8, 3 channels" in out
    assert "6 added, 0 changed, 0 removed, 0 kept" in out
    assert ImageSet.open(store).fingerprint() == ImageSet.open(photos, size=8).fingerprint()


def test_pictures_of_many_shapes_are_indexed_compared_and_explained(tmp_path, store, call):
    photos, run = tmp_path / "shapes", tmp_path / "run"
    photos.mkdir()
    for number, size in enumerate(((40, 40), (40, 60), (60, 30), (30, 60))):
        pixels = np.random.default_rng(number).integers(0, 256, (5, 5, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize(size, Image.Resampling.BICUBIC).save(photos / f"{number}.png")
    code, out, _ = call("index", photos, "-o", store, "--size", "16", "--fit", "keep", "--jobs", "1")
    assert code == 0
    assert "4 images, at most 23 x 23, 3 channels" in out
    for train in ((store,), (photos, "--fit", "keep", "--size", "16")):
        code, out, _ = call("attribute", photos / "2.png", "--train", *train, "--draws", "2", "--json", "-o", run)
        assert code == 0
        assert json.loads(out)["queries"][0]["ranking"][0]["id"] == "2.png"
        assert call("explain", run, "-o", tmp_path / "why")[0] == 0
        assert call("refine", run, "--seconds", "5")[0] == 0
    code, _, err = call("attribute", photos / "2.png", "--train", store, "--method", "pixel")
    assert code != 0
    assert "fit='cover'" in err


def test_an_update_needs_no_path(photos, store, call):
    call("index", photos, "-o", store, "--size", "8", "--jobs", "1")
    (photos / "0.png").unlink()
    Image.new("RGB", (9, 9)).save(photos / "new.png")
    code, out, _ = call("index", "-o", store, "--json", "--jobs", "1")
    assert code == 0
    assert json.loads(out) == {
        **{"store": str(store), "added": 1, "changed": 0, "removed": 1, "kept": 5},
        "skipped": [],
    }


def test_unreadable_images_are_listed_and_change_the_exit_code(photos, store, call):
    (photos / "broken.png").write_bytes(b"no image")
    code, _, err = call("index", photos, "-o", store, "--jobs", "1")
    assert code == 3
    assert "1 image could not be read; listed in" in err
    with (store / "skipped.csv").open(newline="", encoding="utf-8") as stream:
        assert [row[:2] for row in csv.reader(stream)] == [["of", "id"], ["collection", "broken.png"]]
    assert call("attribute", photos / "0.png", "--train", store, "--method", "pixel")[0] == 3
    (photos / "broken.png").unlink()
    assert call("index", "-o", store, "--jobs", "1")[0] == 0
    assert not (store / "skipped.csv").exists()


def test_a_store_is_a_collection_like_the_folder(photos, store, query, call):
    call("index", photos, "-o", store, "--jobs", "1")
    printed = [call("attribute", query, "--train", train, "--draws", "2", "--json") for train in (photos, store)]
    assert [code for code, _, _ in printed] == [0, 0]
    folder, kept = (json.loads(out) for _, out, _ in printed)
    assert kept["queries"] == folder["queries"]
    assert kept["facts"]["train"]["fingerprint"] == folder["facts"]["train"]["fingerprint"]


def test_another_size_is_refused(photos, store, query, call):
    call("index", photos, "-o", store, "--size", "8", "--jobs", "1")
    assert "decoded already" in call("attribute", query, "--train", store, "--size", "16")[2]
    code, _, err = call("index", photos, "-o", store, "--size", "16")
    assert (code, "size=(16, 16)" in err) == (1, True)


def test_arrays_keep_their_size(tmp_path, store, call):
    np.save(tmp_path / "a.npy", np.zeros((3, 9, 7, 3), np.uint8))
    assert "3 images, 9 x 7, 3 channels" in call("index", tmp_path / "a.npy", "-o", store)[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "{store}"), "no store at"),
        (("nowhere", "-o", "{store}"), "nothing at 'nowhere'"),
        (("{photos}", "-o", "{photos}/store"), "choose a place outside of it"),
        (("{photos}",), "Missing option '-o'"),
        (("{photos}", "-o", "{store}", "--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_usage(photos, store, call, arguments, said):
    code, _, err = call("index", *(str(item).format(store=store, photos=photos) for item in arguments))
    assert (code, said in err) == (2, True), err


def test_an_option_for_paths_needs_one(tmp_path, store, call):
    np.save(tmp_path / "a.npy", np.zeros((3, 9, 7, 3), np.uint8))
    call("index", tmp_path / "a.npy", "-o", store)
    code, _, err = call("index", "-o", store, "--follow-symlinks")
    assert (code, "--follow-symlinks has no meaning without a PATH" in err) == (2, True)


def test_info_verify_and_gc(tmp_path, store, call):
    path = tmp_path / "a.npy"
    np.save(path, np.arange(4, dtype=np.uint8)[:, None, None, None] // 2 * np.ones((1, 9, 7, 3), np.uint8))
    call("index", path, "-o", store)
    code, out, _ = call("store", "info", store, "--json")
    told = json.loads(out)
    assert (code, told["images"], told["shape"], told["duplicates"]) == (0, 4, [3, 9, 7], 2)
    assert told["duplicate ids"] == [["0", "1"], ["2", "3"]]
    assert told["unused bytes"] == 0
    assert "images  4" in call("store", "info", store)[1]
    assert call("store", "verify", store)[:2] == (0, f"{store}: all 4 images are as they were written\n")

    np.save(path, 255 - np.load(path))
    call("index", "-o", store)
    unused = json.loads(call("store", "info", store, "--json")[1])["unused bytes"]
    assert unused > 0
    assert call("store", "gc", store)[1] == f"{store}: {unused:,} bytes freed\n"

    entry = Store(store).manifest().shards[0]
    (store / "shards" / f"{entry.pixels}.npy").write_bytes(b"damaged")
    code, out, _ = call("store", "verify", store)
    assert (code, entry.pixels in out) == (1, True)
    code, _, err = call("index", "-o", store)
    assert (code, "repaired" in err) == (0, True)
    assert call("store", "verify", store)[0] == 0


def test_a_folder_is_not_a_store(photos, call):
    code, _, err = call("store", "info", photos)
    assert (code, "is not a store" in err) == (2, True)


def test_a_url_needs_no_file_of_that_name(store, call):
    import fsspec

    memory = fsspec.filesystem("memory")
    with memory.open("/bucket/a.png", "wb") as stream:
        Image.new("RGB", (40, 40), "red").save(stream, "PNG")
    try:
        assert "1 images, 32 x 32" in call("index", "memory://bucket", "-o", store, "--jobs", "1")[1]
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("verb", ["index", "attribute"])
def test_a_file_that_takes_too_long_is_skipped_by_every_command(photos, query, tmp_path, call, verb):
    (photos / "slow.jpg").write_bytes(slow_jpeg())
    run = tmp_path / "run"
    read = {
        "index": ("index", photos, "-o", run, "--jobs", 1),
        "attribute": ("attribute", query, "--train", photos, "--method", "pixel", "-o", run),
    }
    code, _, _ = call(*read[verb], "--timeout", 1)
    assert code == 3
    assert "slow.jpg,decoding took more than 1 seconds" in (run / "skipped.csv").read_text()
    if verb == "attribute":  # `refine` reads the pictures again, as patiently as this command
        assert Attribution.load(run).facts["opened"]["timeout"] == 1
