"""The store: the same images as from the folder, and updates that touch only what has changed."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchtrace
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store
from patchtrace.images.store import pool, reader
from patchtrace.images.store.manifest import Manifest
from patchtrace.images.store.pixels import StorePixels

pytestmark = pytest.mark.skipif(os.name != "posix", reason="a store needs POSIX locks: docs/platforms.md")

RULES = Decoding(size=(8, 8))
LONG_AGO = 1_000_000_000


def paint(path: Path, seed: int) -> Path:
    """A picture that is like no other, and whose file has been there for years."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (10, 12, 3), dtype=np.uint8)).save(path)
    os.utime(path, (LONG_AGO, LONG_AGO + seed))
    return path


@pytest.fixture(autouse=True)
def _one_job(monkeypatch):
    """Each process takes a while to start, and these few pictures need no second one."""
    monkeypatch.setattr("patchtrace.images.store.store.default_jobs", lambda: 1)


@pytest.fixture
def photos(tmp_path):
    for seed in range(7):
        paint(tmp_path / "photos" / ("sub" if seed % 2 else ".") / f"{seed}.png", seed)
    return tmp_path / "photos"


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def ten(tmp_path):
    """Ten images as an array file, which needs no process to decode."""
    pixels = np.random.default_rng(0).integers(0, 256, (10, 3, 6, 5), dtype=np.uint8)
    np.save(tmp_path / "ten.npy", pixels)
    os.utime(tmp_path / "ten.npy", (LONG_AGO, LONG_AGO))
    return tmp_path / "ten.npy"


def names(store: Store) -> set[str]:
    return {path.name for path in (store.path / "shards").iterdir()}


def assert_same(store: Store, images: ImageSet) -> None:
    """The store holds these images; those that an update added come last, so the order may be another."""
    found = ImageSet.open(store.path)
    assert sorted(found.ids) == sorted(images.ids)
    assert found.subset([found.ids.index(name) for name in images.ids]).fingerprint() == images.fingerprint()
    assert sorted(found.skipped, key=lambda item: item.id) == sorted(images.skipped, key=lambda item: item.id)


def test_a_store_is_the_folder(photos, store, flat_png):
    (photos / "broken.png").write_bytes(flat_png()[:40])
    (photos / "empty.jpg").write_bytes(b"")
    store.update([photos], decoding=RULES, shard_images=3, jobs=2)
    folder, found = ImageSet.open(photos, size=8), ImageSet.open(store.path)
    assert found.ids == folder.ids
    assert found.skipped == folder.skipped
    assert found.decoding == folder.decoding
    assert np.array_equal(found.pixels[:], folder.pixels)
    assert np.array_equal(found.block(2, 6), folder.block(2, 6))
    assert found.fingerprint() == folder.fingerprint()
    assert found.frame(3, 64).tobytes() == folder.frame(3, 64).tobytes()


@pytest.mark.parametrize(
    "key", [3, -1, np.int64(2), slice(2, 7), slice(None, None, -2), slice(5, 5), [1, 1, 9], np.arange(10) % 3 == 0]
)
def test_pixels_are_indexed_as_an_array_is(ten, store, key):
    store.update([ten], shard_images=4)
    pixels, array = ImageSet.open(store.path).pixels, np.load(ten)
    assert np.array_equal(pixels[key], array[key])
    assert np.array_equal(pixels[key, 1], array[key, 1])
    assert (pixels.shape, pixels.dtype, pixels.ndim, pixels.nbytes) == (array.shape, array.dtype, 4, array.nbytes)
    assert np.array_equal(np.asarray(pixels), array)


def test_pixels_have_an_end(ten, store):
    store.update([ten])
    with pytest.raises(IndexError):
        ImageSet.open(store.path).pixels[10]


def test_a_subset_stays_on_disk(ten, store):
    store.update([ten], shard_images=4)
    found, array = ImageSet.open(store.path), ImageSet.open(ten)
    chosen = found.subset([7, 2, 3])
    assert isinstance(chosen.pixels, StorePixels)
    assert chosen.fingerprint() == array.subset([7, 2, 3]).fingerprint()
    assert ImageSet.open(store.path, limit=4).ids == ("0", "1", "2", "3")


def test_the_fingerprint_is_not_that_of_other_ids(ten, store):
    store.update([ten])
    found = ImageSet.open(store.path)
    renamed = patchtrace.images.imageset.replace(found, ids=tuple("abcdefghij"))
    assert renamed.fingerprint() != found.fingerprint()


def test_a_set_goes_to_another_process(ten, store):
    store.update([ten], shard_images=4)
    found = ImageSet.open(store.path)
    again = pickle.loads(pickle.dumps(found))
    assert np.array_equal(again.pixels[:], np.load(ten))


@pytest.mark.parametrize(
    "option",
    [{"size": 16}, {"decoding": Decoding(grey=True)}, {"decoding": Decoding(fit="pad")}],
    ids=["size", "grey", "fit"],
)
def test_a_store_cannot_be_decoded_again(ten, store, option):
    store.update([ten])
    with pytest.raises(PatchtraceError, match=r"decoded already.*another store"):
        ImageSet.open(store.path, **option)


def test_a_store_has_its_own_size(ten, store):
    store.update([ten])
    assert patchtrace.images.has_own_size([str(store.path)])
    assert ImageSet.open(store.path, size=(6, 5)).shape == (3, 6, 5)
    with pytest.raises(PatchtraceError, match="alone"):
        ImageSet.open([store.path, ten])


def test_queries_are_opened_like_a_store(photos, store):
    store.update([photos], decoding=RULES)
    queries = ImageSet.open(store.path).open_like(photos / "2.png")
    assert np.array_equal(queries.pixels[0], ImageSet.open(store.path).pixels[1])


def test_an_update_decodes_only_what_is_new(photos, store, monkeypatch):
    store.update([photos], decoding=RULES, shard_images=2)
    before = names(store)
    (photos / "4.png").unlink()
    paint(photos / "2.png", 102)
    paint(photos / "new.png", 103)
    decoded = []
    run = pool.Pool.run

    def watched(self, tasks):
        for task in run(self, tasks):
            decoded.extend([task.id] if task.pixels else [])
            yield task

    monkeypatch.setattr(pool.Pool, "run", watched)
    done = store.update(shard_images=2)
    assert (done.added, done.changed, done.removed, done.kept) == (1, 1, 1, 5)
    assert decoded == ["2.png", "new.png"]
    assert before <= names(store)
    assert_same(store, ImageSet.open(photos, size=8))
    assert store.verify() == []


def test_a_file_that_was_only_touched_is_not_decoded_and_not_read_twice(photos, store, monkeypatch):
    store.update([photos], decoding=RULES)
    os.utime(photos / "2.png", (LONG_AGO, LONG_AGO + 500))
    pixels = store.manifest().shards[0].pixels
    assert store.update().kept == 7
    assert store.manifest().shards[0].pixels == pixels
    monkeypatch.setattr(pool.Pool, "_start", lambda self: pytest.fail("a file was read that has not changed"))
    assert store.update().kept == 7


@pytest.mark.parametrize("packed", [False, True])
def test_a_change_that_size_and_time_hide_is_seen(photos, store, ten, packed):
    changed = ten if packed else paint(photos / "old.bmp", 50)
    source, rules = (ten, None) if packed else (photos, RULES)
    store.update([source], decoding=rules)
    times, content = changed.stat().st_mtime_ns, bytearray(changed.read_bytes())
    content[-100:] = bytes(byte ^ 255 for byte in content[-100:])
    changed.write_bytes(content)
    os.utime(changed, ns=(times, times))
    assert store.update().changed >= 1
    assert_same(store, ImageSet.open(source, decoding=rules))


def test_a_change_that_size_and_time_hide_is_seen_where_the_file_is_fresh(photos, store):
    fresh = paint(photos / "fresh.bmp", 50)
    os.utime(fresh)
    store.update([photos], decoding=RULES)
    times = fresh.stat().st_mtime_ns
    paint(fresh, 51)
    os.utime(fresh, ns=(times, times))
    assert store.update().changed == 1
    assert_same(store, ImageSet.open(photos, size=8))


def test_what_was_unreadable_is_tried_again(photos, store, flat_png):
    (photos / "late.png").write_bytes(flat_png()[:40])
    assert [lost.id for lost in store.update([photos], decoding=RULES).skipped] == ["late.png"]
    (photos / "late.png").write_bytes(flat_png())
    done = store.update()
    assert (done.added, done.skipped) == (1, ())
    assert_same(store, ImageSet.open(photos, size=8))


def test_nothing_new_writes_nothing(ten, store):
    store.update([ten])
    before = (store.path / "patchtrace-store.json").stat()
    store.update()
    after = (store.path / "patchtrace-store.json").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_small_shards_are_put_together(tmp_path, store):
    for count in range(1, 9):
        np.save(tmp_path / "a.npy", np.arange(count, dtype=np.uint8)[:, None, None, None] * np.ones((1, 1, 2, 2), "u1"))
        store.update([tmp_path / "a.npy"], layout="NCHW", shard_images=8)
    assert len(store.manifest().shards) <= 2
    assert_same(store, ImageSet.open(tmp_path / "a.npy", layout="NCHW"))


def test_rows_of_removed_images_do_not_stay_for_ever(ten, store):
    store.update([ten], shard_images=10)
    np.save(ten, np.load(ten)[:3])
    assert store.update(shard_images=10).removed == 7
    assert [(entry.count, entry.rows) for entry in store.manifest().shards] == [(3, 3)]


@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_an_archive_is_read_again_when_it_has_changed(tmp_path, photos, store, kind, monkeypatch):
    def pack(seeds):
        path = tmp_path / f"pack.{kind}"
        files = [paint(tmp_path / "loose" / f"{seed}.png", seed) for seed in seeds]
        if kind == "tar":
            with tarfile.open(path, "w") as archive:
                for file in files:
                    archive.add(file, file.name)
        else:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"image": [file.read_bytes() for file in files]}), path)
        os.utime(path, (LONG_AGO, LONG_AGO + len(seeds)))
        return path

    path = pack([1, 2, 3])
    store.update([path], decoding=RULES)
    assert_same(store, ImageSet.open(path, size=8))
    pack([1, 2, 4, 5])
    done = store.update()
    assert done.kept == 2
    assert_same(store, ImageSet.open(path, size=8))
    monkeypatch.setattr(pool.Pool, "_start", lambda self: pytest.fail("an archive was read that has not changed"))
    assert store.update().kept == 4


def test_two_members_of_one_name_are_two_images(tmp_path, store):
    def pack(seeds):
        with tarfile.open(tmp_path / "pack.tar", "w") as archive:
            for seed in seeds:
                archive.add(paint(tmp_path / "loose" / f"{seed}.png", seed), "same.png")

    for seeds in ([1, 2], [2, 2, 1]):
        pack(seeds)
        store.update([tmp_path / "pack.tar"], decoding=RULES)
        found, right = ImageSet.open(store.path), ImageSet.open(tmp_path / "pack.tar", size=8)
        assert sorted(p.tobytes() for p in found.pixels[:]) == sorted(p.tobytes() for p in right.pixels)


def test_several_sources_have_the_ids_of_the_set(tmp_path, photos, store):
    paint(tmp_path / "more" / "a.png", 30)
    store.update([photos, tmp_path / "more"], decoding=RULES)
    assert_same(store, ImageSet.open([photos, tmp_path / "more"], size=8))


def test_other_sources_are_not_taken_by_mistake(tmp_path, photos, store):
    store.update([photos], decoding=RULES)
    photos.rename(tmp_path / "moved")
    with pytest.raises(PatchtraceError, match="was made from"):
        store.update([tmp_path / "moved"])
    assert store.update([tmp_path / "moved"], replace=True).kept == 7
    assert ImageSet.open(store.path).files[0] == (tmp_path / "moved" / "0.png").read_bytes()


def test_a_run_that_was_killed_does_not_lend_its_images_to_another(tmp_path, store, monkeypatch):
    """Two folders with files of one name, length and time: what was decoded of one is not taken for the other."""
    for folder, colour in (("one", "red"), ("two", "blue")):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (8, 8), colour).save(tmp_path / folder / "a.bmp")
        os.utime(tmp_path / folder / "a.bmp", (LONG_AGO, LONG_AGO))
    monkeypatch.setattr(Manifest, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        store.update([tmp_path / "one"], decoding=RULES)
    monkeypatch.undo()
    store.update([tmp_path / "two"], decoding=RULES, jobs=1)
    assert ImageSet.open(store.path).pixels[0, :, 0, 0].tolist() == [0, 0, 255]


def test_pictures_of_two_sizes_need_one(photos, store):
    Image.new("RGB", (3, 4)).save(photos / "zz.png")
    with pytest.raises(PatchtraceError, match=r"differ in size.*--size"):
        store.update([photos], decoding=Decoding())


def test_exact_duplicates_are_known(photos, store):
    paint(photos / "copy.bmp", 4)
    store.update([photos], decoding=RULES)
    assert store.duplicates() == [["4.png", "copy.bmp"]]


def test_latents_are_no_pictures(tmp_path, store):
    np.save(tmp_path / "latents.npy", np.zeros((2, 4, 8, 8), np.float32))
    with pytest.raises(PatchtraceError, match="uint8"):
        store.update([tmp_path / "latents.npy"])


def test_a_store_needs_a_directory_of_its_own(photos):
    with pytest.raises(PatchtraceError, match="holds other things"):
        Store(photos).update([photos])


def test_an_empty_collection_leaves_the_store_as_it_was(photos, store):
    store.update([photos], decoding=RULES)
    for file in photos.rglob("*.png"):
        file.unlink()
    with pytest.raises(PatchtraceError, match="no readable image"):
        store.update()
    assert len(ImageSet.open(store.path)) == 7


def test_originals_are_given_out_only_where_their_hash_is_known(photos, store):
    store.update([photos], decoding=RULES)
    found = ImageSet.open(store.path)
    assert found.files[0] == (photos / "0.png").read_bytes()
    times = (photos / "0.png").stat().st_mtime_ns
    content = bytearray((photos / "0.png").read_bytes())
    content[-20] ^= 1
    (photos / "0.png").write_bytes(content)
    os.utime(photos / "0.png", ns=(times, times))
    assert found.files[0] is None
    assert found.frame(0, 64).size == (8, 8)


def test_an_original_outside_of_the_folder_is_not_followed(tmp_path, photos, store):
    store.update([photos], decoding=RULES)
    found = ImageSet.open(store.path)
    secret = (photos / "0.png").rename(tmp_path / "secret.png")
    for name in ("../secret.png", str(secret)):
        originals = reader.Originals(store.path, photos, found.pixels, (name, *found.ids[1:]))
        assert originals[0] is None


def test_urls_are_read_through_fsspec(store, flat_png):
    import fsspec

    memory = fsspec.filesystem("memory")
    for name, colour in (("a.png", "red"), ("sub/b.png", "blue"), ("notes.txt", "green")):
        memory.pipe(f"/bucket/{name}", flat_png(colour))
    try:
        store.update(["memory://bucket"], decoding=RULES)
        assert ImageSet.open(store.path).ids == ("a.png", "sub/b.png")
        assert ImageSet.open(store.path).pixels[:, :, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255]]
        memory.pipe("/bucket/c.png", flat_png("white"))
        memory.rm("/bucket/a.png")
        done = store.update()
        assert (done.added, done.removed, done.kept) == (1, 1, 1)
        with pytest.raises(PatchtraceError, match="no image was found"):
            Store(store.path.parent / "other").update(["memory://elsewhere"])
    finally:
        memory.rm("/bucket", recursive=True)


def test_without_fsspec_a_url_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(PatchtraceError, match=r"patchtrace\[remote\]"):
        store.update(["s3://bucket/photos"])


def test_two_writers_exclude_each_other(ten, store):
    store.update([ten])
    with store._locked(), pytest.raises(PatchtraceError, match=f"another process is writing the store '{store.path}'"):
        store.update()
    with store._locked():
        assert len(ImageSet.open(store.path)) == 10  # readers never wait
        with pytest.raises(PatchtraceError, match="another process"):
            store.gc()


def test_a_reader_goes_on_during_an_update_and_gc(ten, store):
    store.update([ten], shard_images=4)
    reading, before = ImageSet.open(store.path), np.load(ten)
    np.save(ten, 255 - before)
    assert store.update(shard_images=4).changed == 10
    assert store.gc() > 0
    assert np.array_equal(reading.pixels[:], before)
    assert np.array_equal(ImageSet.open(store.path).pixels[:], 255 - before)
    assert store.gc() == 0


def test_a_reader_that_was_overtaken_opens_the_new_state(ten, store, monkeypatch):
    store.update([ten])
    before, read, calls = np.load(ten), Manifest.read, []

    def slow(path):
        manifest = read(path)
        calls.append(path)
        if len(calls) == 1:  # everything is replaced between the manifest and the shards
            monkeypatch.setattr(Manifest, "read", read)
            np.save(ten, 255 - before)
            store.update()
            store.gc()
            monkeypatch.setattr(Manifest, "read", slow)
        return manifest

    monkeypatch.setattr(Manifest, "read", slow)
    assert np.array_equal(ImageSet.open(store.path).pixels[:], 255 - before)


def test_reading_all_blocks_leaves_nothing_in_memory(tmp_path, store):
    np.save(tmp_path / "many.npy", np.random.default_rng(0).integers(0, 256, (16384, 3, 32, 32), dtype=np.uint8))
    store.update([tmp_path / "many.npy"])
    code = f"""
import resource, sys, types
sys.modules["patchtrace"] = types.ModuleType("patchtrace")
sys.modules["patchtrace"].__path__ = [{str(Path(patchtrace.__file__).parent)!r}]
from patchtrace.images import ImageSet
images = ImageSet.open({str(store.path)!r})
images.block(0, 256)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
total = sum(float(images.block(start, start + 256).sum()) for start in range(0, len(images), 256))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)  # macOS counts bytes
    assert grown < 12 << 20, "of 48 MB, no more than a few blocks"
