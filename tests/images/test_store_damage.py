"""A store that is damaged, or whose writing goes wrong: each is noticed and named, nothing is silently wrong."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import numpy as np
import pytest

from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet, Store
from patchtrace.images.store import manifest as manifests

COUNT, LIMIT = 12, 4


@pytest.fixture
def array(tmp_path):
    path = tmp_path / "array.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (COUNT, 3, 6, 5), dtype=np.uint8))
    return path


@pytest.fixture
def store(tmp_path, array):
    made = Store(tmp_path / "store")
    made.update([array], shard_images=LIMIT)
    return made


def shard(store: Store, number: int = 1, kind: str = "npy") -> Path:
    entry = store.manifest().shards[number]
    return store.path / "shards" / f"{entry.pixels if kind == 'npy' else entry.table}.{kind}"


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def assert_repaired_by_an_update(store: Store, array: Path) -> None:
    done = store.update(shard_images=LIMIT)
    assert done.repaired
    assert store.verify() == []
    assert sorted(p.tobytes() for p in ImageSet.open(store.path).pixels[:]) == sorted(
        p.tobytes() for p in np.load(array)
    )


@pytest.mark.parametrize("place", [0, 100, -1], ids=["magic", "header", "pixel"])
def test_a_byte_of_a_shard(store, array, place):
    path = shard(store)
    flip(path, place)
    assert [path.name in damage for damage in store.verify()] == [True]
    found = ImageSet.open(store.path)  # the length is right, and reading all is not for open
    assert np.array_equal(found.pixels[:LIMIT], np.load(array)[:LIMIT])
    with pytest.raises(PatchtraceError, match=rf"{path.name} is not what was written"):
        found.block(LIMIT, LIMIT + 1)
    assert_repaired_by_an_update(store, array)


def test_a_byte_of_a_table(store, array):
    path = shard(store, kind="json")
    flip(path, 20)
    assert [path.name in damage for damage in store.verify()] == [True]
    with pytest.raises(PatchtraceError, match=path.name):
        ImageSet.open(store.path)
    assert_repaired_by_an_update(store, array)


def test_every_byte_of_the_manifest(store):
    path = store.path / "patchtrace-store.json"
    right = path.read_bytes()
    for place in range(0, len(right), 7):
        flip(path, place)
        with pytest.raises(PatchtraceError, match=r"patchtrace-store\.json of the store .* is damaged"):
            ImageSet.open(store.path)
        assert len(store.verify()) == 1
        path.write_bytes(right)
    path.write_bytes(right[:-1])
    with pytest.raises(PatchtraceError, match="is damaged"):
        store.update()


@pytest.mark.parametrize("kind", ["npy", "json"])
def test_a_file_that_was_cut_short(store, array, kind):
    path = shard(store, kind=kind)
    path.write_bytes(path.read_bytes()[:-1])
    assert [path.name in damage for damage in store.verify()] == [True]
    with pytest.raises(PatchtraceError, match=path.name):
        ImageSet.open(store.path)
    assert_repaired_by_an_update(store, array)


@pytest.mark.parametrize("kind", ["npy", "json"])
def test_a_file_that_is_gone(store, array, kind):
    path = shard(store, kind=kind)
    path.unlink()
    assert [f"{path.name} is missing" in damage for damage in store.verify()] == [True]
    with pytest.raises(PatchtraceError, match=f"{path.name} is missing"):
        ImageSet.open(store.path)
    assert_repaired_by_an_update(store, array)


def test_a_shard_that_is_cut_short_while_it_is_read(store):
    found = ImageSet.open(store.path)
    found.block(0, COUNT)
    os.truncate(shard(store), 200)
    with pytest.raises(PatchtraceError, match="cut short"):
        found.block(0, COUNT)


def test_two_shards_that_changed_places(store, array):
    first, second = shard(store, 0), shard(store, 1)
    aside = first.rename(store.path / "aside")
    second.rename(first)
    aside.rename(second)
    damages = store.verify()
    assert [first.name in damages[0], second.name in damages[1], len(damages)] == [True, True, 2]
    with pytest.raises(PatchtraceError, match="not what was written"):
        ImageSet.open(store.path).block(0, 1)
    assert_repaired_by_an_update(store, array)


@pytest.mark.parametrize(
    "change",
    [
        {"pixels": "../../photos/secret"},
        {"rows": 0},
        {"live": [[2, 9]]},
        {"live": [[2, 1]]},
        {"bytes": "many"},
        {"more": 1},
    ],
    ids=str,
)
def test_a_manifest_that_someone_wrote_is_not_believed(store, change):
    told = manifests.read_sealed(store.path / "patchtrace-store.json")
    told["shards"][0] |= change
    manifests.write_sealed(store.path / "patchtrace-store.json", told)
    with pytest.raises(PatchtraceError, match=r"patchtrace-store\.json of the store .* is damaged"):
        ImageSet.open(store.path)


def test_rows_that_a_shard_does_not_have_are_not_read(store):
    told = manifests.read_sealed(store.path / "patchtrace-store.json")
    told["shape"] = [3, 600, 500]
    manifests.write_sealed(store.path / "patchtrace-store.json", told)
    with pytest.raises(PatchtraceError, match="is damaged"):
        ImageSet.open(store.path)


def test_a_store_of_a_later_version_says_so(store):
    told = manifests.read_sealed(store.path / "patchtrace-store.json")
    manifests.write_sealed(store.path / "patchtrace-store.json", {**told, "version": 99})
    with pytest.raises(PatchtraceError, match="version 99"):
        ImageSet.open(store.path)


def test_a_damaged_journal_costs_only_time(store, array):
    np.save(array, 255 - np.load(array))
    (store.path / "journal.json").write_bytes(b'{"sha256": 1}')
    assert store.update(shard_images=LIMIT).changed == COUNT
    assert store.verify() == []


@pytest.mark.parametrize("after", range(0, 10, 3))
def test_a_full_disk_leaves_the_old_state(store, array, monkeypatch, after):
    """Whatever is being written when the disk is full: a shard, a table, the journal or the manifest."""
    old = np.load(array)
    np.save(array, 255 - old)
    write, written = Path.write_bytes, []

    def full(path, content):
        written.append(path)
        if len(written) > after:
            write(path, bytes(content)[: len(content) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(PatchtraceError, match="No space left on device"):
        store.update(shard_images=LIMIT)
    monkeypatch.undo()
    assert store.verify() == []
    assert np.array_equal(ImageSet.open(store.path).pixels[:], old)
    assert not list(store.path.rglob(".*")), "half-written files are taken away"
    store.update(shard_images=LIMIT)
    assert np.array_equal(ImageSet.open(store.path).pixels[:], 255 - old)


def test_the_manifest_is_plain_json(store):
    told = json.loads((store.path / "patchtrace-store.json").read_text())
    assert told["content"]["version"] == 1
