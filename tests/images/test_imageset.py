"""A set of images as one thing: opened from anywhere, cut up, compared, and the measure for its queries."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hostile import slow_jpeg
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, gathered, has_own_size
from patchtrace.images.decode import Skipped

RED, LIME, BLUE = [255, 0, 0], [0, 255, 0], [0, 0, 255]
U8 = np.random.default_rng(1).integers(0, 256, (4, 3, 8, 6), dtype=np.uint8)
FLOATS = np.random.default_rng(2).normal(0, 3, (4, 5, 8, 6)).astype(np.float32)


def first_pixels(images):
    return images.pixels[:, :, 0, 0].tolist()


def of(pixels, ids=None):
    return ImageSet(pixels, ids or tuple(str(i) for i in range(len(pixels))))


@pytest.fixture
def three(tmp_path, flat_file):
    """A folder with a red, a lime and a blue picture of 8 x 8."""
    for name, colour in (("a.png", "red"), ("b.png", "lime"), ("c.png", "blue")):
        flat_file(tmp_path / "three" / name, colour)
    return tmp_path / "three"


@pytest.fixture
def four_of_six(three):
    """A folder of six files, of which the second and the fourth are broken."""
    (three / "a2.png").write_bytes(b"")
    (three / "b2.png").write_bytes(b"this is text")
    (three / "c2.png").write_bytes((three / "c.png").read_bytes())
    return three


# --- the set itself ---


def test_a_block_of_u8_is_mapped_to_minus_one_to_one():
    levels = np.arange(256, dtype=np.uint8).reshape(1, 1, 16, 16)
    block = of(levels).block(0, 1)
    assert block.dtype == np.float32
    np.testing.assert_allclose(block.ravel(), np.arange(256) / 127.5 - 1, rtol=0, atol=1e-7)
    assert (block.min(), block.max()) == (-1, 1)


def test_a_block_of_floats_is_unchanged():
    block = of(FLOATS).block(1, 3)
    assert block.dtype == np.float32
    np.testing.assert_array_equal(block, FLOATS[1:3])


def test_a_block_holds_the_images_from_start_to_stop():
    np.testing.assert_array_equal(of(U8).block(1, 3), of(U8[1:3]).block(0, 2))


def test_a_block_beyond_the_end_stops_there():
    assert len(of(U8).block(3, 10)) == 1


@pytest.mark.parametrize("pixels", [U8.transpose(0, 1, 3, 2), FLOATS.transpose(0, 1, 3, 2)])
def test_a_block_is_contiguous_whatever_the_pixels_are(pixels):
    assert of(pixels).block(0, 4).flags.c_contiguous


def test_the_shape_is_channels_height_width():
    assert of(U8).shape == (3, 8, 6)


@pytest.mark.parametrize("indices", [[3, 0, 0], np.array([3, 0, 0]), (3, 0, 0)])
def test_a_subset_has_images_and_ids_in_the_order_asked_for(indices):
    part = of(U8, ("a", "b", "c", "d")).subset(indices)
    assert part.ids == ("d", "a", "a")
    np.testing.assert_array_equal(part.pixels, U8[[3, 0, 0]])


def test_a_subset_keeps_the_rules(three):
    images = ImageSet.open(three, decoding=Decoding(exif="ignore"))
    assert images.subset([1]).decoding == images.decoding


def test_an_index_beyond_the_end_is_not_taken():
    with pytest.raises(IndexError):
        of(U8).subset([4])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_opens_again_as_the_same_pixels(channels):
    images = of(U8[:, :channels])
    again = ImageSet.open([images.picture(i) for i in range(4)], decoding=Decoding(grey=channels == 1))
    np.testing.assert_array_equal(again.pixels, images.pixels)


def test_the_picture_of_floats_shows_the_u8_levels_they_came_from():
    images = of(of(U8).block(0, 4))
    np.testing.assert_array_equal(np.asarray(images.picture(2)), U8[2].transpose(1, 2, 0))


def test_the_picture_of_floats_beyond_the_range_is_clipped():
    picture = of(np.array([-9, 9], np.float32).reshape(1, 1, 1, 2)).picture(0)
    assert np.asarray(picture).tolist() == [[0, 255]]


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (2, "L"), (3, "RGB"), (4, "RGB"), (16, "RGB")])
def test_the_picture_of_any_number_of_channels_can_be_looked_at(channels, mode):
    picture = of(np.zeros((1, channels, 8, 6), np.float32)).picture(0)
    assert (picture.mode, picture.size) == (mode, (6, 8))


@pytest.mark.parametrize("pixels", [U8, FLOATS])
def test_equal_sets_have_equal_fingerprints(pixels):
    other = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert of(pixels).fingerprint() == of(other).fingerprint()


def changed_pixel():
    pixels = U8.copy()
    pixels[3, 2, 7, 5] ^= 1
    return of(pixels)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(changed_pixel(), id="one pixel"),
        pytest.param(of(U8, ("0", "1", "2", "x")), id="one id"),
        pytest.param(of(U8).subset([1, 0, 2, 3]), id="the order"),
        pytest.param(of(U8[:3]), id="the number"),
        pytest.param(of(U8.reshape(4, 3, 6, 8)), id="the shape"),
        pytest.param(of(U8.astype(np.float32)), id="the type"),
    ],
)
def test_another_set_has_another_fingerprint(other):
    assert other.fingerprint() != of(U8).fingerprint()


def test_a_late_pixel_counts_in_the_fingerprint():
    pixels = np.zeros((3000, 1, 1, 1), np.uint8)
    before = of(pixels).fingerprint()
    pixels[2999] = 1
    assert of(pixels).fingerprint() != before


@pytest.mark.parametrize(("pixels", "ids"), [(U8, ("a", "b")), (U8[0], ("a", "b", "c"))])
def test_pixels_and_ids_that_do_not_fit_are_refused(pixels, ids):
    with pytest.raises(PatchtraceError, match="do not fit"):
        ImageSet(pixels, ids)


# --- open ---


def test_files_of_one_size_need_no_size(three):
    images = ImageSet.open(three)
    assert images.shape == (3, 8, 8)
    assert first_pixels(images) == [RED, LIME, BLUE]


@pytest.mark.parametrize(("size", "shape"), [(5, (3, 5, 5)), ((4, 6), (3, 4, 6))])
def test_size_is_a_side_or_height_and_width(three, size, shape):
    images = ImageSet.open(three, size=size)
    assert images.shape == shape
    assert first_pixels(images) == [RED, LIME, BLUE]


def test_size_goes_before_the_one_in_the_rules(three):
    images = ImageSet.open(three, size=4, decoding=Decoding(size=(6, 6), grey=True))
    assert images.shape == (1, 4, 4)
    assert images.decoding == Decoding(size=(4, 4), grey=True)


@pytest.mark.parametrize("size", [0, -1, 5000, (8, 0), (8, 8, 8)])
def test_a_size_that_makes_no_sense_is_refused(three, size):
    with pytest.raises(PatchtraceError, match="size is"):
        ImageSet.open(three, size=size)


def test_different_sizes_without_a_size_name_both(tmp_path, flat_file):
    flat_file(tmp_path / "a.png", "red", 8, 9)
    flat_file(tmp_path / "b.png", "red", 10, 12)
    with pytest.raises(PatchtraceError, match=r"a\.png has 8 x 9 pixels and b\.png has 10 x 12.*size="):
        ImageSet.open(tmp_path)


def test_different_sizes_are_brought_to_one(three, flat_file):
    flat_file(three / "d.png", "red", 10, 12)
    assert ImageSet.open(three, size=6).pixels.shape == (4, 3, 6, 6)


def test_limit_takes_the_first_images(three):
    assert ImageSet.open(three, limit=2).ids == ("a.png", "b.png")


def test_limit_counts_readable_images_only(four_of_six):
    assert ImageSet.open(four_of_six, limit=3).ids == ("a.png", "b.png", "c.png")


@pytest.mark.parametrize(
    "source", [U8, ImageSet.open(U8), [Image.new("RGB", (8, 8))] * 4], ids=["array", "set", "pictures"]
)
def test_limit_holds_for_every_source(source):
    assert len(ImageSet.open(source, limit=3)) == 3


def test_a_limit_beyond_the_end_takes_all(three):
    assert len(ImageSet.open(three, limit=10)) == 3


@pytest.mark.parametrize("source", [U8, ImageSet.open(U8)])
def test_a_limit_below_one_is_refused(source):
    with pytest.raises(PatchtraceError, match="limit is 0"):
        ImageSet.open(source, limit=0)


def test_images_that_cannot_be_read_are_listed_with_the_reason(four_of_six):
    reasons = [(entry.id, entry.reason) for entry in ImageSet.open(four_of_six).skipped]
    assert reasons[0] == ("a2.png", "empty file")
    assert reasons[1][0] == "b2.png"
    assert reasons[1][1].startswith("not an image of a kind that can be read")
    assert len(reasons) == 2


def test_images_that_can_be_read_are_kept_in_order(four_of_six):
    images = ImageSet.open(four_of_six)
    assert images.ids == ("a.png", "b.png", "c.png", "c2.png")
    assert first_pixels(images) == [RED, LIME, BLUE, BLUE]


def test_no_readable_image_at_all_is_an_error_with_number_and_reasons(tmp_path):
    for number in range(7):
        (tmp_path / f"{number}.png").write_bytes(b"")
    with pytest.raises(PatchtraceError, match=r"no readable image was found; 7 were unreadable\n  0\.png: empty file"):
        ImageSet.open(tmp_path)


def test_progress_counts_up_to_all(four_of_six):
    calls = []
    ImageSet.open(four_of_six, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(done, 6) for done in range(1, 7)]


def test_the_rules_are_kept_with_the_set(three):
    record = ImageSet.open(three, size=4, decoding=Decoding(fit="pad", exif="ignore")).decoding.record()
    expected = {"size": (4, 4), "fit": "pad", "exif": "ignore", "grey": False, "crop": None, "animation": "first frame"}
    assert {name: record[name] for name in expected} == expected
    assert json.dumps(record)


def test_an_array_that_is_not_touched_has_no_rules():
    assert ImageSet.open(U8).decoding is None


def test_a_picture_in_memory_is_a_source():
    images = ImageSet.open(Image.new("RGB", (6, 8), "lime"))
    assert (images.ids, images.shape) == (("0",), (3, 8, 6))
    assert first_pixels(images) == [LIME]


def test_pictures_in_memory_are_a_source():
    images = ImageSet.open([Image.new("RGB", (6, 8), colour) for colour in ("lime", "red")])
    assert images.ids == ("0", "1")
    assert first_pixels(images) == [LIME, RED]


def test_a_set_opens_as_itself():
    images = of(U8)
    assert ImageSet.open(images) is images


def test_anything_with_an_array_in_it_is_a_source():
    class Tensor:
        def __array__(self, dtype=None, copy=None):
            return U8

    np.testing.assert_array_equal(ImageSet.open(Tensor()).pixels, U8)


@pytest.mark.parametrize(
    ("source", "name"),
    [(3, "int"), (None, "NoneType"), ([], "list"), ([1, 2], "list"), ({"a": 1}, "dict"), (b"a.png", "bytes"),
     (["a.png", Image.new("L", (1, 1))], "list")],
)  # fmt: skip
def test_a_source_of_another_type_is_named(source, name):
    with pytest.raises(PatchtraceError, match=f"{name} cannot be opened as images: give a path"):
        ImageSet.open(source)


def test_a_list_of_one_path_is_that_path(three):
    assert ImageSet.open([three]).fingerprint() == ImageSet.open(three).fingerprint()


def test_a_list_of_one_path_keeps_every_option(three):
    images = ImageSet.open([three], size=4, limit=2, decoding=Decoding(grey=True))
    assert images.pixels.shape == (2, 1, 4, 4)


@pytest.mark.parametrize("name", ["a.npy", "A.NPZ"])
def test_an_array_file_among_several_paths_is_to_be_given_alone(three, name):
    (three / name).write_bytes(b"")
    with pytest.raises(PatchtraceError, match=f"{name} is an array file: give it alone"):
        ImageSet.open([three / "a.png", three / name])


# --- CelebA ---


@pytest.fixture
def celeba(tmp_path, encoded):
    """Two pictures of the size of CelebA's, whose every pixel says where it was."""
    rows, columns = np.indices((218, 178), dtype=np.uint8)
    picture = np.stack([rows, columns, rows ^ columns], axis=-1)

    def make(name):
        (tmp_path / name).mkdir()
        for number in (1, 2):
            (tmp_path / name / f"00000{number}.png").write_bytes(encoded(picture, "PNG"))
        return tmp_path / name, picture.transpose(2, 0, 1)

    return make


def test_celeba_is_cut_to_its_middle_and_the_record_says_so(celeba):
    folder, picture = celeba("img_align_celeba")
    images = ImageSet.open(folder)
    assert images.decoding.crop == 140
    np.testing.assert_array_equal(images.pixels[1], picture[:, 39:179, 19:159])


def test_celeba_is_cut_before_it_is_resized(celeba):
    folder, picture = celeba("img_align_celeba")
    middle = of(np.ascontiguousarray(picture[None, :, 39:179, 19:159]))
    np.testing.assert_array_equal(
        ImageSet.open(folder, size=20).pixels[:1], ImageSet.open(middle.pixels, size=20).pixels
    )


def test_a_crop_that_was_chosen_goes_before_that_of_celeba(celeba):
    folder, _ = celeba("img_align_celeba")
    assert ImageSet.open(folder, decoding=Decoding(crop=100)).shape == (3, 100, 100)


def test_a_folder_with_another_name_is_not_cut(celeba):
    folder, _ = celeba("faces")
    assert ImageSet.open(folder).shape == (3, 218, 178)


# --- arrays that are brought to size ---


@pytest.mark.parametrize("channels", [1, 3])
def test_u8_arrays_are_resized_like_pictures(channels):
    array = np.zeros((2, channels, 16, 16), np.uint8)
    array[0], array[1, -1] = 200, 90
    images = ImageSet.open(array, size=(8, 4))
    assert images.pixels.shape == (2, channels, 8, 4)
    assert (images.pixels[0] == 200).all()
    assert (images.pixels[1, -1] == 90).all()


def test_the_rules_by_which_an_array_was_resized_are_kept():
    assert ImageSet.open(U8, size=4).decoding == Decoding(size=(4, 4))


def test_an_array_of_the_size_asked_for_is_untouched():
    np.testing.assert_array_equal(ImageSet.open(U8, size=(8, 6)).pixels, U8)


def test_u8_arrays_are_cropped_like_pictures():
    images = ImageSet.open(U8, decoding=Decoding(crop=4))
    np.testing.assert_array_equal(images.pixels, U8[:, :, 2:6, 1:5])
    assert images.decoding.crop == 4


def test_u8_arrays_are_made_grey_like_pictures():
    array = np.zeros((1, 3, 8, 8), np.uint8)
    array[:, 0] = 255
    images = ImageSet.open(array, decoding=Decoding(grey=True))
    np.testing.assert_array_equal(images.pixels, np.full((1, 1, 8, 8), 76))


@pytest.mark.parametrize("array", [U8[:, :1], FLOATS[:, :1]], ids=["u8", "floats"])
def test_a_grey_array_that_is_to_be_grey_is_untouched(array):
    np.testing.assert_array_equal(ImageSet.open(array, layout="NCHW", decoding=Decoding(grey=True)).pixels, array)


@pytest.mark.parametrize("rules", [{"size": (4, 4)}, {"crop": 4}, {"grey": True}], ids=["size", "crop", "grey"])
@pytest.mark.parametrize("array", [FLOATS, np.zeros((2, 4, 8, 8), np.uint8)], ids=["floats", "four channels"])
def test_arrays_that_are_no_pictures_are_not_changed(array, rules):
    with pytest.raises(PatchtraceError, match="only u8 arrays of one or three channels are pictures"):
        ImageSet.open(array, layout="NCHW", decoding=Decoding(**rules))


@pytest.mark.parametrize("rules", [{"crop": 9}, {"max_pixels": 40}])
def test_an_array_that_breaks_the_rules_is_an_error_to_read(rules):
    with pytest.raises(PatchtraceError):
        ImageSet.open(U8, decoding=Decoding(size=(4, 4), **rules))


# --- open_like ---


def test_a_query_of_another_size_is_brought_to_that_of_the_set(three, tmp_path, flat_file):
    query = flat_file(tmp_path / "query.jpg", "blue", 30, 20)
    opened = ImageSet.open(three, size=(6, 8)).open_like(query)
    assert opened.shape == (3, 6, 8)
    assert first_pixels(opened) == [BLUE]


@pytest.mark.parametrize("grey", [False, True])
def test_a_query_is_grey_if_the_set_is(three, grey):
    images = ImageSet.open(three, decoding=Decoding(grey=grey))
    assert images.open_like(three / "a.png").pixels[0, :, 0, 0].tolist() == ([76] if grey else RED)


def test_a_query_is_opened_by_the_rules_of_the_set(three, encoded, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3
    picture = Image.new("RGB", (8, 8), "blue")
    picture.paste("red", (0, 0, 8, 4))
    (tmp_path / "query.jpg").write_bytes(encoded(picture, "PNG", exif=exif))
    tops = [
        first_pixels(ImageSet.open(three, decoding=Decoding(exif=exif_rule)).open_like(tmp_path / "query.jpg"))
        for exif_rule in ("apply", "ignore")
    ]
    assert tops == [[BLUE], [RED]]


def test_a_query_may_have_rules_of_its_own(three, encoded, tmp_path):
    (tmp_path / "query.jpg").write_bytes(encoded(Image.new("RGB", (8, 4), "red"), "PNG"))
    images = ImageSet.open(three, decoding=Decoding(fit="cover"))
    assert first_pixels(images.open_like(tmp_path / "query.jpg", decoding=Decoding(fit="pad"))) == [[255, 255, 255]]


def test_a_query_is_not_cut_like_the_set(celeba):
    folder, _ = celeba("img_align_celeba")
    picture = Image.new("RGB", (20, 20), "blue")
    picture.paste("red", (5, 5, 15, 15))
    opened = ImageSet.open(folder, size=20).open_like(picture)
    np.testing.assert_array_equal(opened.pixels[0], np.asarray(picture).transpose(2, 0, 1))


def test_a_query_for_u8_arrays_may_be_a_file(three):
    opened = ImageSet.open(U8).open_like(three / "a.png")
    assert opened.shape == (3, 8, 6)
    assert first_pixels(opened) == [RED]


@pytest.mark.parametrize("source", ["path", "list", "picture"])
def test_a_set_of_floats_refuses_pictures(three, source):
    query = {"path": three / "a.png", "list": [three / "a.png"], "picture": Image.new("RGB", (6, 8))}[source]
    with pytest.raises(PatchtraceError, match="float arrays"):
        of(FLOATS).open_like(query)


@pytest.mark.parametrize("source", ["array", "set", "a.npy", "B.NPY", "a list with a.npy"])
def test_a_set_of_floats_takes_float_arrays(tmp_path, source):
    for name in ("a.npy", "b.npy"):
        np.save(tmp_path / name, FLOATS[:2])
    query = {
        "array": FLOATS[:2],
        "set": of(FLOATS[:2]),
        "a.npy": tmp_path / "a.npy",
        "B.NPY": (tmp_path / "b.npy").rename(tmp_path / "B.NPY"),
        "a list with a.npy": [tmp_path / "a.npy"],
    }[source]
    np.testing.assert_array_equal(of(FLOATS).open_like(query).pixels, FLOATS[:2])


@pytest.mark.parametrize("query", [of(U8), U8[:, :1], of(FLOATS)], ids=["set of another size", "grey array", "latents"])
def test_a_query_that_cannot_be_made_to_fit_names_both_shapes(query):
    with pytest.raises(PatchtraceError, match=r"queries have shape .* and the set has \(3, 8, 8\)"):
        of(np.zeros((1, 3, 8, 8), np.uint8)).open_like(query)


def test_progress_is_passed_on_to_the_queries(three):
    calls = []
    ImageSet.open(three).open_like(three, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (3, 3)


def test_key_chooses_the_array_of_the_queries(tmp_path):
    np.savez(tmp_path / "a.npz", train=FLOATS, test=FLOATS[2:])
    np.testing.assert_array_equal(of(FLOATS).open_like(tmp_path / "a.npz", key="test").pixels, FLOATS[2:])


@pytest.mark.parametrize("name", ["a.npy", "A.NPZ", "data_batch_1", "test_batch.bin"])
@pytest.mark.parametrize("kind", [str, Path])
def test_files_of_arrays_have_a_size_of_their_own(tmp_path, name, kind):
    (tmp_path / name).write_bytes(b"")
    assert has_own_size(kind(tmp_path / name))


@pytest.mark.parametrize("source", [U8, of(U8)], ids=["array", "set"])
def test_arrays_and_sets_have_a_size_of_their_own(source):
    assert has_own_size(source)


@pytest.mark.parametrize(
    "source", ["a.png", Path("folder"), Image.new("L", (8, 8)), 3, None], ids=lambda s: type(s).__name__
)
def test_files_of_any_size_have_none_of_their_own(source):
    assert not has_own_size(source)


@pytest.mark.parametrize("size", [np.int64(6), 6, (6, 6), [6, 6]], ids=repr)
def test_a_size_is_any_whole_number_or_two(size):
    assert ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8), size=size).shape == (3, 6, 6)


@pytest.mark.parametrize("size", [6.0, "6", (6, 6, 6), (6,), 0, -1], ids=repr)
def test_another_size_is_refused(size):
    with pytest.raises(PatchtraceError, match="size is"):
        ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8), size=size)


def test_a_set_that_is_open_is_not_resized_silently():
    images = ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8))
    assert ImageSet.open(images, size=8) is images
    with pytest.raises(PatchtraceError, match="open already"):
        ImageSet.open(images, size=6)


def test_a_mask_chooses_a_subset():
    images = ImageSet.open(np.zeros((4, 8, 8, 3), np.uint8))
    assert images.subset(np.array([True, False, False, True])).ids == ("0", "3")


def test_the_crop_of_celeba_is_told(celeba):
    folder, _ = celeba("img_align_celeba")
    assert "140 x 140" in ImageSet.open(folder).remarks[0]


def test_a_file_of_celeba_is_cut_like_its_folder(celeba):
    folder, _ = celeba("img_align_celeba")
    whole = ImageSet.open(folder)
    files = sorted(folder.iterdir())
    np.testing.assert_array_equal(ImageSet.open(files[0]).pixels[0], whole.pixels[0])
    np.testing.assert_array_equal(whole.open_like([str(file) for file in files]).pixels, whole.pixels)


def test_float_queries_beside_pictures_must_lie_in_their_range():
    images = ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8))
    with pytest.raises(PatchtraceError, match=r"reach 255.*127\.5"):
        images.open_like(np.full((1, 3, 8, 8), 255.0))
    assert len(images.open_like(np.full((1, 3, 8, 8), -1.0))) == 1


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_pixels_of_another_type_are_refused_by_the_constructor(kind):
    with pytest.raises(PatchtraceError, match="uint8, or float32"):
        ImageSet(np.zeros((1, 3, 4, 4), kind), ("a",))


def test_a_set_is_shown_in_one_short_line():
    images = ImageSet.open(np.zeros((50_000, 2, 2, 3), np.uint8), layout="NHWC")
    assert repr(images) == "<ImageSet of 50000 images, 3 x 2 x 2, 0 skipped>"


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(PatchtraceError, match="path is empty"):
        ImageSet.open("")


def test_rules_that_are_no_rules_are_refused():
    with pytest.raises(PatchtraceError, match="use Decoding"):
        ImageSet.open(np.zeros((2, 8, 8, 3), np.uint8), decoding={"fit": "pad"})


# --- files that are hostile, or do not stay as they are ---


@pytest.mark.skipif(os.name != "posix", reason="Windows has no time limit for a file: docs/platforms.md")
def test_a_file_that_takes_long_to_decode_is_skipped(tmp_path, flat_file):
    (tmp_path / "slow.jpg").write_bytes(slow_jpeg())
    flat_file(tmp_path / "good.png")
    images = ImageSet.open(tmp_path, size=8, timeout=1)
    assert images.ids == ("good.png",)
    assert images.skipped == (Skipped("slow.jpg", "decoding took more than 1 seconds"),)
    with pytest.raises(PatchtraceError, match="took more than 1 seconds"):
        ImageSet.open(tmp_path / "slow.jpg", size=8, timeout=1)


@pytest.mark.parametrize("change", ["replaced", "gone", "as it was"])
def test_a_frame_is_never_a_picture_other_than_the_one_that_was_read(tmp_path, change):
    file = tmp_path / "a.bmp"
    Image.new("RGB", (64, 64), "red").save(file)
    images = ImageSet.open(tmp_path, size=8)
    before = os.stat(file)
    if change == "replaced":  # with a file of the same length and time
        Image.new("RGB", (64, 64), "blue").save(file)
        assert os.stat(file).st_size == before.st_size
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    elif change == "gone":
        file.unlink()
    for opened in (images, images.subset([0])):
        frame = opened.frame(0, 64)
        assert frame.getpixel((4, 4)) == (255, 0, 0)
        assert frame.size == ((64, 64) if change == "as it was" else (8, 8))
        assert frame.info.get("changed", False) is (change != "as it was")


def test_pictures_beyond_what_is_held_in_memory_go_to_a_file(tmp_path, monkeypatch, flat_file):
    for number, colour in enumerate(("red", "lime", "blue", "white", "black")):
        flat_file(tmp_path / "some" / f"{number}.png", colour)
    held = ImageSet.open(tmp_path / "some", size=8)
    monkeypatch.setattr(gathered, "HELD", 400)  # two pictures of 192 bytes
    spilt = ImageSet.open(tmp_path / "some", size=8)
    np.testing.assert_array_equal(spilt.pixels, held.pixels)
    assert spilt.fingerprint() == held.fingerprint()
    assert isinstance(spilt.pixels.base, np.memmap)
    assert not isinstance(held.pixels.base, np.memmap)
    np.testing.assert_array_equal(spilt.subset([4, 1]).pixels, held.pixels[[4, 1]])


class FullDisk(io.BytesIO):
    def write(self, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_pictures_for_which_there_is_no_room_are_refused_in_a_sentence(tmp_path, monkeypatch, flat_file):
    flat_file(tmp_path / "some" / "a.png")
    monkeypatch.setattr(gathered, "HELD", 100)
    monkeypatch.setattr(gathered, "tempfile", SimpleNamespace(TemporaryFile=FullDisk, gettempdir=lambda: "/here"))
    with pytest.raises(PatchtraceError, match=r"No space left on device\): use `patchtrace index`"):
        ImageSet.open(tmp_path / "some", size=8)
