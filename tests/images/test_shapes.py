"""Pictures that keep their shapes: what they are brought to, in memory, in a store, and as queries."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from patchtrace import NDA, ImageSet, PixelSimilarity, ScoreMachine, Store, calibrate
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding
from patchtrace.images.shapes import frame_size, own_size, shortest_side

KEEP = Decoding(size=(24, 24), fit="keep")
#: Width and height of files, and the height and width that they are brought to.
SHAPES = {(96, 96): (24, 24), (90, 60): (20, 29), (60, 90): (29, 20), (200, 20): (17, 34)}


@pytest.fixture
def photos(tmp_path):
    """A folder of pictures of four shapes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, (width, height) in enumerate(SHAPES):
        random(number, width, height).save(folder / f"{number}.png")
    return folder


def random(seed, width, height):
    pixels = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)


@given(st.tuples(st.integers(1, 3000), st.integers(1, 3000)), st.integers(8, 600), st.sampled_from([1, 8]))
def test_all_have_one_area_and_room_in_one_frame(picture, side, multiple):
    side = multiple * max(4, side // multiple)
    height, width = own_size(picture, (side, side), multiple)
    assert height % multiple == width % multiple == 0
    assert max(height, width) <= frame_size((side, side), multiple)[0]
    assert min(height, width) >= shortest_side((side, side), multiple)
    # each side is rounded by half a multiple at most
    assert abs(height * width - side**2) <= multiple / 2 * (height + width) + multiple**2
    ratio = min(max(picture[0] / picture[1], 0.5), 2)
    assert abs(height - ratio**0.5 * side) <= multiple / 2 + 1e-9


def test_nothing_is_cut_off_but_what_is_longer_than_twice_its_width():
    """Four coloured edges of a picture are there, whatever its shape."""
    for (width, height), size in SHAPES.items():
        picture = Image.new("RGB", (width, height), "white")
        for box in ((0, 0, 3, height), (width - 3, 0, width, height), (0, 0, width, 3), (0, height - 3, width, height)):
            picture.paste("black", box)
        images = ImageSet.open(picture, decoding=KEEP)
        assert images.size_of(0) == size
        shown = images.one(0).mean(axis=0)
        assert max(shown[0].mean(), shown[-1].mean()) < -0.4
        sides = shown[3:-3, [0, -1]].mean()
        assert sides < -0.4 if max(width, height) <= 2 * min(width, height) else sides > 0.9


def test_pictures_lie_in_frames_and_are_shown_without_them(photos):
    images = ImageSet.open(photos, decoding=KEEP)
    assert [images.size_of(n) for n in range(4)] == list(SHAPES.values())
    assert images.shape == (3, 34, 34)
    assert (images.usual_size, images.shortest_side) == ((24, 24), 17)
    for number, (height, width) in enumerate(SHAPES.values()):
        assert not images.pixels[number][:, height:].any()
        assert not images.pixels[number][:, :, width:].any()
        assert images.picture(number).size == (width, height)
        shown = images.frame(number, 100)
        assert shown.size == tuple(100 // max(height, width) * side for side in (width, height))
    assert "at most 34 x 34" in repr(images)


def test_a_store_holds_what_the_folder_does_and_is_updated(photos, tmp_path):
    store = Store(tmp_path / "store")
    store.update([photos], decoding=KEEP, jobs=1, shard_images=2)
    images, kept = ImageSet.open(photos, decoding=KEEP), ImageSet.open(store.path)
    assert kept.fingerprint() == images.fingerprint()
    np.testing.assert_array_equal(kept.extents, images.extents)
    assert kept.decoding == images.decoding
    random(9, 40, 60).save(photos / "1.png")
    (photos / "0.png").unlink()
    random(10, 50, 50).save(photos / "9.png")
    done = store.update(jobs=1)
    assert (done.kept, done.added, done.changed, done.removed) == (2, 1, 1, 1)
    images, kept = ImageSet.open(photos, decoding=KEEP), ImageSet.open(store.path)
    shapes = {name: kept.size_of(n) for n, name in enumerate(kept.ids)}
    assert shapes == {name: images.size_of(n) for n, name in enumerate(images.ids)}
    assert shapes["1.png"] == (29, 20)
    assert store.verify() == []
    with pytest.raises(PatchtraceError, match="fit='pad' would need another store"):
        ImageSet.open(store.path, decoding=Decoding(fit="pad"))


def test_a_store_without_valid_extents_is_damaged(photos, tmp_path, monkeypatch):
    from patchtrace.images.store.manifest import Table

    monkeypatch.setattr(Table, "extent", lambda self, index: (99, 1))
    real = Table.append
    monkeypatch.setattr(Table, "append", lambda self, *known: real(self, *known[:4], (99, 1)))
    store = Store(tmp_path / "store")
    with pytest.raises(PatchtraceError, match="no valid extents"):
        store.update([photos], decoding=KEEP, jobs=1)


def test_an_array_in_a_store_keeps_its_shape(tmp_path):
    np.save(tmp_path / "photos.npy", np.random.default_rng(0).integers(0, 256, (3, 40, 60, 3), dtype=np.uint8))
    Store(tmp_path / "store").update([tmp_path / "photos.npy"], decoding=KEEP)
    assert ImageSet.open(tmp_path / "store").extents.tolist() == [[20, 29]] * 3


@pytest.mark.parametrize("kind", ["file", "array", "picture", "set"])
def test_queries_keep_their_shape_too(photos, kind):
    train, picture = ImageSet.open(photos, decoding=KEEP), Image.open(photos / "1.png")
    sources = {
        "file": photos / "1.png",
        "array": np.asarray(picture)[None],
        "picture": picture,
        "set": ImageSet.open(np.asarray(picture)[None]),
    }
    query = train.open_like(sources[kind])
    assert query.shape == train.shape
    np.testing.assert_array_equal(query.one(0), train.one(1))
    assert query.open_like(query) is query


def test_parts_and_copies_keep_the_extents(photos):
    train = ImageSet.open(photos, decoding=KEEP)
    assert train.subset([3, 1]).extents.tolist() == [[17, 34], [20, 29]]
    both = train.subset([0, 1]).with_decoys(train.subset([2]))
    assert both.extents.tolist() == [[24, 24], [20, 29], [29, 20]]
    assert both.collection.extents.tolist() == [[24, 24], [20, 29]]
    np.testing.assert_array_equal(train.smaller(3).one(1), train.smaller(3).framed_block(1, 2)[0][:, :6, :9])
    assert train.loaded().fingerprint() == train.fingerprint()
    moved = ImageSet(train.pixels, train.ids, extents=train.extents[::-1].copy(), decoding=train.decoding)
    assert moved.fingerprint() != train.fingerprint()


def test_what_compares_whole_arrays_refuses_them_and_says_what_would_be_right(photos):
    train, plain = ImageSet.open(photos, decoding=KEEP), ImageSet.open(photos, size=24)
    for act in (
        lambda: train.block(0, 1),
        lambda: PixelSimilarity().fit(train),
        lambda: ScoreMachine(train),
        lambda: calibrate(train),
        lambda: NDA().fit(train).attribute(train.subset([0]), noise={}),
        lambda: plain.open_like(train),
    ):
        with pytest.raises(PatchtraceError, match="open the pictures with fit='cover' or fit='pad'"):
            act()
    whole = ImageSet(np.zeros((1, 3, 34, 34), np.uint8), ("a",))
    with pytest.raises(PatchtraceError, match="decoys must keep their shapes"):
        train.with_decoys(whole)
    with pytest.raises(PatchtraceError, match="open it with fit='keep' too"):
        plain.open_like(photos, decoding=Decoding(fit="keep"))


def test_an_area_is_asked_for(photos):
    for source in (photos, np.zeros((2, 8, 9, 3), np.uint8)):
        with pytest.raises(PatchtraceError, match="to one area: say which"):
            ImageSet.open(source, decoding=Decoding(fit="keep"))
    with pytest.raises(PatchtraceError, match="are not resized"):
        ImageSet.open(np.zeros((2, 3, 8, 9), np.float32), decoding=KEEP)


def test_an_upload_keeps_its_shape():
    from patchtrace.server.upload import Reader

    stream = io.BytesIO()
    random(0, 90, 60).save(stream, "PNG")
    upload = Reader().read("a", stream.getvalue(), KEEP)
    assert upload.pixels.shape == (3, 20, 29)
    assert upload.frame.width / upload.frame.height == pytest.approx(1.5, abs=0.01)


def test_earlier_records_of_rules_are_read():
    record = Decoding(size=(8, 8)).record()
    del record["multiple"]
    assert Decoding.from_record(record) == Decoding(size=(8, 8))
