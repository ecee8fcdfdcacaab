"""URLs open everywhere a path does."""

from __future__ import annotations

import json
import sys

import fsspec
import numpy as np
import pytest
from command import run

from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store
from patchtrace.images.sources.remote import FETCHES

NAMES = ("a.png", "b.png", "sub/c.png")


@pytest.fixture
def memory(flat_png):
    system = fsspec.filesystem("memory")
    for name, colour in zip(NAMES, ("red", "lime", "blue"), strict=True):
        system.pipe(f"/bucket/{name}", flat_png(colour))
    system.pipe("/bucket/notes.txt", b"no image")
    yield system
    system.rm("/bucket", recursive=True)


@pytest.fixture
def folder(tmp_path, flat_file):
    for name, colour in zip(NAMES, ("red", "lime", "blue"), strict=True):
        flat_file(tmp_path / "bucket" / name, colour)
    return tmp_path / "bucket"


@pytest.mark.parametrize("url", ["memory://bucket", "memory://bucket/"])
def test_a_remote_folder_is_the_local_one(memory, folder, url):
    assert ImageSet.open(url).fingerprint() == ImageSet.open(folder).fingerprint()


def test_an_image_is_opened_by_its_url(memory):
    images = ImageSet.open("memory://bucket/sub/c.png")
    assert images.ids == ("c.png",)
    assert images.pixels[0, :, 0, 0].tolist() == [0, 0, 255]


def test_several_urls_have_ids_relative_to_what_they_share(memory, folder):
    images = ImageSet.open(["memory://bucket/sub", "memory://bucket/a.png"])
    assert images.ids == ImageSet.open([folder / "sub", folder / "a.png"]).ids == ("sub/c.png", "a.png")


def test_a_url_and_a_path_can_be_given_together(memory, folder):
    images = ImageSet.open([folder / "a.png", "memory://bucket/a.png"])
    np.testing.assert_array_equal(images.pixels[0], images.pixels[1])
    assert len(set(images.ids)) == 2


def test_many_files_come_in_order(memory, flat_png):
    names = [f"{number:03}.png" for number in range(3 * FETCHES)]
    for number, name in enumerate(names):
        memory.pipe(f"/bucket/many/{name}", flat_png((number, 0, 0)))
    images = ImageSet.open("memory://bucket/many")
    assert images.ids == tuple(names)
    assert images.pixels[:, 0, 0, 0].tolist() == list(range(len(names)))
    assert ImageSet.open("memory://bucket/many", limit=2).ids == tuple(names[:2])


def test_what_cannot_be_read_is_skipped_with_the_reason(memory):
    memory.pipe("/bucket/broken.png", b"no image")
    memory.pipe("/bucket/empty.png", b"")
    memory.pipe("/bucket/huge.png", bytes(10_000))
    images = ImageSet.open("memory://bucket", decoding=Decoding(max_bytes=5000))
    assert images.ids == NAMES
    reasons = {item.id: item.reason for item in images.skipped}
    assert "not an image" in reasons["broken.png"]
    assert reasons["empty.png"] == "empty file"
    assert reasons["huge.png"] == "10000 bytes, more than the limit of 5000"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://elsewhere", "no image was found"),
        ("memory://bucket/missing.png", r"cannot list memory://bucket/missing\.png"),
        ("no-such-protocol://bucket", "cannot list no-such-protocol://bucket"),
    ],
)
def test_a_url_with_nothing_behind_it_is_an_error(memory, url, said):
    with pytest.raises(PatchtraceError, match=said):
        ImageSet.open(url)


def test_without_fsspec_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(PatchtraceError, match=r"patchtrace\[remote\]"):
        ImageSet.open("https://example.org/a.png")


def test_a_store_is_made_from_one_image_or_several_urls(memory, tmp_path):
    store = Store(tmp_path / "store")
    store.update(["memory://bucket/sub", "memory://bucket/b.png"], decoding=Decoding(size=(8, 8)), jobs=1)
    assert ImageSet.open(store.path).ids == ("sub/c.png", "b.png")
    assert store.update(jobs=1).kept == 2


def test_collection_and_query_of_a_command_are_urls(memory, tmp_path, capsys):
    command = ["attribute", "memory://bucket/b.png", "--train", "memory://bucket", "--method", "pixel", "--size", "8"]
    assert run([*command, "--json", "-o", str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["queries"][0]["ranking"][0]["id"] == "b.png"
    assert found["facts"]["opened"]["train"] == ["memory://bucket"]
    assert found["facts"]["opened"]["query"] == ["memory://bucket/b.png"]


def test_a_command_names_a_path_that_is_not_there(capsys):
    assert run(["attribute", "nowhere.png", "--train", "memory://bucket"]) == 2
    assert "nothing at 'nowhere.png'" in capsys.readouterr().err
