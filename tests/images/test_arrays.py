"""Arrays that are pixels already: how they are laid out, and the files that hold them, some of them hostile."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
import zipfile

import numpy as np
import pytest

from patchtrace import array_files
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.images.arrays import from_array
from patchtrace.images.sources.array import ArrayFile
from patchtrace.images.sources.base import Reading, find

#: Two pictures of three channels, 6 x 5, of which no two values are equal: no wrong order of axes looks right.
PICTURES = np.arange(2 * 3 * 6 * 5, dtype=np.uint8).reshape(2, 3, 6, 5)


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


# --- layouts ---


def test_u8_with_channels_first_is_recognised():
    np.testing.assert_array_equal(from_array(PICTURES, None), PICTURES)


def test_u8_with_channels_last_is_recognised():
    np.testing.assert_array_equal(from_array(PICTURES.transpose(0, 2, 3, 1), None), PICTURES)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_one_three_and_four_channels_are_recognised(channels):
    assert from_array(np.zeros((2, 6, 5, channels), np.uint8), None).shape == (2, channels, 6, 5)


@pytest.mark.parametrize(
    "shape",
    [(2, 3, 8, 3), (2, 4, 8, 1), (2, 8, 8, 8), (2, 5, 8, 8), (2, 8, 3, 8), (3, 8, 8), (8, 8, 3), (8, 8), (8,), ()],
)
def test_a_u8_shape_that_can_be_read_in_two_ways_asks_for_the_layout(shape):
    with pytest.raises(PatchtraceError, match="layout="):
        from_array(np.zeros(shape, np.uint8), None)


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (2, 8, 8, 1), (3, 8, 8), (8, 8)])
def test_floats_that_may_have_channels_last_ask_for_the_layout(shape):
    with pytest.raises(PatchtraceError, match="layout="):
        from_array(np.zeros(shape, np.float32), None)


@pytest.mark.parametrize(
    ("layout", "array", "expected"),
    [
        ("NCHW", PICTURES, PICTURES),
        ("NHWC", PICTURES.transpose(0, 2, 3, 1), PICTURES),
        ("NHW", PICTURES[:, 0], PICTURES[:, :1]),
        ("CHW", PICTURES[0], PICTURES[:1]),
        ("HWC", PICTURES[0].transpose(1, 2, 0), PICTURES[:1]),
        ("HW", PICTURES[0, 0], PICTURES[:1, :1]),
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_stated_layout_is_followed(layout, array, expected, dtype):
    found = from_array(array.astype(dtype), layout)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_a_stated_layout_goes_before_the_one_that_looks_right():
    np.testing.assert_array_equal(from_array(PICTURES, "NHWC"), PICTURES.transpose(0, 3, 1, 2))


@pytest.mark.parametrize(
    ("layout", "message"),
    [("CHWN", "use one of NCHW"), ("nchw", "use one of NCHW"), ("HWC", r"needs 3 axes.*\(2, 3, 6, 5\)")],
)
def test_a_layout_that_does_not_fit_says_what_would(layout, message):
    with pytest.raises(PatchtraceError, match=message):
        from_array(PICTURES, layout)


# --- values ---


@pytest.mark.parametrize("shape", [(2, 3, 6, 5), (2, 16, 8, 8), (2, 3, 8, 3), (2, 7, 5, 6)])
def test_floats_with_channels_first_are_left_as_they_are(shape):
    values = np.random.default_rng(0).normal(0, 5, shape).astype(np.float32)
    found = from_array(values, None)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("dtype", ["float16", "float64", ">f4"])
def test_other_floats_become_float32(dtype):
    found = from_array(np.full((1, 3, 2, 2), -0.5, dtype), None)
    assert found.dtype == np.float32
    assert (found == -0.5).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_torch_tensor_is_an_array_also_with_a_gradient(dtype):
    import torch

    tensor = torch.linspace(-1, 1, 24).reshape(2, 3, 2, 2).to(getattr(torch, dtype)).requires_grad_()
    np.testing.assert_array_equal(ImageSet.open(tensor).block(0, 2), tensor.detach().float().numpy())


def test_a_torch_tensor_of_bytes_holds_pixels():
    import torch

    found = ImageSet.open(torch.from_numpy(PICTURES))
    assert found.pixels.dtype == np.uint8
    np.testing.assert_array_equal(found.pixels, PICTURES)


@pytest.mark.parametrize("channels", [1, 3])
def test_floats_from_0_to_1_are_warned_of(channels):
    values = np.random.default_rng(0).random((2, channels, 6, 5), dtype=np.float32)
    with pytest.warns(UserWarning, match=r"in \[0, 1\].*multiply them by 2 and subtract 1"):
        np.testing.assert_array_equal(from_array(values, None), values)


@pytest.mark.parametrize("values", [np.zeros((1, 3, 2, 2)), np.linspace(0, 1, 16).reshape(1, 4, 2, 2)])
def test_zeros_and_latents_may_be_from_0_to_1(values):
    from_array(values, None)  # a warning is an error here


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(value):
    array = np.zeros((2, 3, 4, 4), np.float32)
    array[1, 2, 3, 3] = value
    with pytest.raises(PatchtraceError, match="not finite"):
        from_array(array, None)


def test_values_beyond_float32_are_refused():
    with pytest.raises(PatchtraceError, match="not finite"):
        from_array(np.full((1, 3, 4, 4), 1e300), None)


@pytest.mark.parametrize("dtype", ["int64", "uint16", "int8", "bool", "complex64", "object", "U1"])
def test_other_types_are_refused_by_name(dtype):
    with pytest.raises(PatchtraceError, match=rf"holds .*{np.dtype(dtype)}: use uint8"):
        from_array(np.zeros((2, 3, 8, 8), dtype), "NCHW")


@pytest.mark.parametrize("shape", [(2, 0, 8, 8), (2, 3, 0, 8), (2, 3, 8, 0)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_empty_pictures_are_refused(shape, dtype):
    with pytest.raises(PatchtraceError, match="empty"):
        from_array(np.zeros(shape, dtype), "NCHW")


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_an_array_of_no_pictures_is_refused(dtype, size):
    with pytest.raises(PatchtraceError, match="no image"):
        ImageSet.open(np.zeros((0, 3, 16, 16) if dtype is np.float32 else (0, 3, 8, 8), dtype), size=size)


# --- .npy and .npz ---


def test_a_npy_file_is_opened(tmp_path):
    np.save(tmp_path / "a.npy", PICTURES)
    images = ImageSet.open(tmp_path / "a.npy")
    np.testing.assert_array_equal(images.pixels, PICTURES)
    assert images.ids == ("0", "1")


@pytest.mark.parametrize("array", [PICTURES, PICTURES.transpose(0, 2, 3, 1)], ids=["NCHW", "NHWC"])
def test_a_npy_file_is_mapped_and_not_read(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    assert is_mapped(ImageSet.open(tmp_path / "a.npy").pixels)


def test_a_mapped_file_cannot_be_written_to(tmp_path):
    np.save(tmp_path / "a.npy", PICTURES)
    pixels = ImageSet.open(tmp_path / "a.npy").pixels
    with pytest.raises(ValueError, match="read-only"):
        pixels[0] = 0


def test_the_layout_of_a_file_can_be_stated(tmp_path):
    np.save(tmp_path / "a.npy", PICTURES[0])
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "a.npy", layout="CHW").pixels, PICTURES[:1])


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_npz_file_with_one_array_needs_no_key(tmp_path, save):
    save(tmp_path / "a.npz", anything=PICTURES)
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "a.npz").pixels, PICTURES)


def test_a_key_chooses_among_the_arrays_of_a_npz_file(tmp_path):
    np.savez(tmp_path / "a.npz", train=PICTURES, test=PICTURES[::-1])
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "a.npz", key="test").pixels, PICTURES[::-1])


@pytest.mark.parametrize("key", [None, "nothing"])
def test_a_npz_file_without_the_right_key_lists_its_arrays(tmp_path, key):
    np.savez(tmp_path / "a.npz", train=PICTURES, test=PICTURES)
    with pytest.raises(PatchtraceError, match="one of train, test"):
        ImageSet.open(tmp_path / "a.npz", key=key)


def test_an_extension_counts_in_any_case(tmp_path):
    np.save(tmp_path / "a.npy", PICTURES)
    (tmp_path / "a.npy").rename(tmp_path / "A.NPY")
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "A.NPY").pixels, PICTURES)


class MakesFolder:
    """Unpickled, it makes a folder: proof that a file had its way."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.fixture
def hostile(tmp_path):
    return MakesFolder(tmp_path / "executed")


def test_the_hostile_object_would_have_its_way_if_it_were_unpickled(hostile):
    pickle.loads(pickle.dumps(hostile))
    assert os.path.isdir(hostile.path)


def test_a_npz_that_unpacks_to_far_more_than_its_size_is_refused_before_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 1000)
    np.savez_compressed(tmp_path / "bomb.npz", np.zeros((100, 16, 16, 3), np.uint8))
    tracemalloc.start()
    try:
        with pytest.raises(PatchtraceError, match=r"bomb.npz .* 0.0 MB .* unpack to .* GB of memory: .*\.npy"):
            ImageSet.open(tmp_path / "bomb.npz")
        assert tracemalloc.get_traced_memory()[1] < 70_000
    finally:
        tracemalloc.stop()


def test_a_npz_that_hardly_shrinks_is_read_whatever_its_size(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "UNPACKED_BYTES", 1000)
    noise = np.random.default_rng(0).integers(0, 256, (2, 3, 16, 16), dtype=np.uint8)
    np.savez_compressed(tmp_path / "a.npz", noise)
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "a.npz").pixels, noise)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_pickled_array_is_refused_without_being_unpickled(tmp_path, hostile, suffix):
    path = tmp_path / f"a{suffix}"
    array = np.array([hostile], dtype=object)
    np.save(path, array, allow_pickle=True) if suffix == ".npy" else np.savez(path, a=array, allow_pickle=True)
    with pytest.raises(PatchtraceError):
        ImageSet.open(path, key="a" if suffix == ".npz" else None)
    assert not os.path.exists(hostile.path)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_bare_pickle_is_refused_without_being_unpickled(tmp_path, hostile, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(pickle.dumps(hostile))
    with pytest.raises(PatchtraceError, match=f"cannot read a{suffix} as a NumPy file"):
        ImageSet.open(path)
    assert not os.path.exists(hostile.path)


def with_zip_field(archive, offset, value):
    """Another value in both headers of the only member: the one before it and the one in the directory."""
    content = bytearray(archive)
    struct.pack_into("<H", content, offset, value)
    struct.pack_into("<H", content, content.index(b"PK\x01\x02") + offset + 2, value)
    return bytes(content)


@pytest.mark.parametrize(
    ("save", "name", "damage"),
    [
        pytest.param(np.save, "a.npy", lambda good: b"", id="empty npy"),
        pytest.param(np.save, "a.npy", lambda good: b"no array at all\n", id="text as npy"),
        pytest.param(np.save, "a.npy", lambda good: good[:-1], id="npy cut short"),
        pytest.param(np.save, "a.npy", lambda good: good[:40], id="npy cut in its header"),
        pytest.param(np.save, "a.npy", lambda good: good.replace(b"5), }", b"5,, }"), id="npy with an open bracket"),
        pytest.param(np.save, "a.npy", lambda good: good.replace(b"(2, 3", b"(9, 9"), id="npy that claims more"),
        pytest.param(np.savez, "a.npz", lambda good: b"", id="empty npz"),
        pytest.param(np.savez, "a.npz", lambda good: b"no archive at all\n", id="text as npz"),
        pytest.param(np.savez, "a.npz", lambda good: good[: len(good) // 2], id="npz cut short"),
        pytest.param(
            np.savez, "a.npz", lambda good: good.replace(bytes([7, 8, 9]), bytes(3)), id="npz that was changed"
        ),
        pytest.param(np.savez, "a.npz", lambda good: with_zip_field(good, 6, 1), id="encrypted npz"),
        pytest.param(np.savez, "a.npz", lambda good: with_zip_field(good, 8, 99), id="npz of unknown compression"),
        pytest.param(
            np.savez_compressed, "a.npz", lambda good: good[:60] + b"\xff" * 20 + good[80:], id="changed deflated npz"
        ),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path, save, name, damage):
    path = tmp_path / name
    save(path, PICTURES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(PatchtraceError, match=f"cannot read {name} as a NumPy file"):
        ArrayFile(path).pixels(Reading())


def test_a_zip_file_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("notes.txt", "no array")
    with pytest.raises(PatchtraceError, match=r"a\.npz"):
        ArrayFile(tmp_path / "a.npz").pixels(Reading())


# --- CIFAR-10 ---

CIFAR = np.random.default_rng(3).integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
LABELS = [6, 9]
NAMES = ["leptodactylus_pentadactylus_s_000004.png", "camion_s_000148.png"]


def python3_batch(protocol, pictures=CIFAR, **more):
    batch = {
        b"batch_label": b"training batch 1 of 5",
        b"labels": LABELS,
        b"data": pictures.reshape(len(pictures), -1),
        b"filenames": [name.encode() for name in NAMES],
        **more,
    }
    return pickle.dumps(batch, protocol=protocol)


def python2_batch(pictures=CIFAR):
    """A batch as the real files have it: Python 2 strings, and NumPy named as it was in 2009."""

    def text(value):
        return b"U" + bytes([len(value)]) + value.encode()

    pixels = pictures.tobytes()
    dtype = b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R(K\x03" + text("|") + b"NNN" + b"J\xff\xff\xff\xff" * 2
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
        + b"(K\x01K" + bytes([len(pictures)]) + b"M\x00\x0c\x86" + dtype + b"K\x00tb\x89"
        + b"T" + struct.pack("<I", len(pixels)) + pixels + b"tb"
    )  # fmt: skip
    return (
        b"\x80\x02}q\x01("
        + text("batch_label") + text("testing batch 1 of 1")
        + text("labels") + b"](" + b"".join(b"K" + bytes([label]) for label in LABELS) + b"e"
        + text("data") + array
        + text("filenames") + b"](" + b"".join(map(text, NAMES)) + b"e"
        + b"u."
    )  # fmt: skip


def binary_batch(pictures=CIFAR):
    return b"".join(bytes([7]) + picture.tobytes() for picture in pictures)


@pytest.mark.filterwarnings("ignore:numpy.core is deprecated:DeprecationWarning")
def test_the_python2_stream_of_these_tests_is_a_pickle_of_a_batch():
    batch = pickle.loads(python2_batch(), encoding="bytes")
    assert set(batch) == {b"batch_label", b"labels", b"data", b"filenames"}
    np.testing.assert_array_equal(batch[b"data"], CIFAR.reshape(2, -1))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("data_batch_1", python3_batch(2), id="Python 3, protocol 2"),
        pytest.param("data_batch_1", python3_batch(3), id="Python 3, protocol 3"),
        pytest.param("data_batch_1", python3_batch(4), id="Python 3, protocol 4"),
        pytest.param("data_batch_1", python2_batch(), id="Python 2"),
        pytest.param("test_batch", python2_batch(), id="test batch"),
        pytest.param("test_batch", python3_batch(2, CIFAR[:1]), id="one picture"),
        pytest.param("data_batch_5.bin", binary_batch(), id="binary"),
        pytest.param("test_batch.bin", binary_batch(), id="binary test batch"),
    ],
)
def test_the_pixels_of_a_single_cifar_batch_are_read(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    images = ImageSet.open(tmp_path / name)
    np.testing.assert_array_equal(images.pixels, CIFAR[: len(images)])
    assert images.ids == ("0", "1")[: len(images)]


@pytest.fixture
def cifar_folder(tmp_path):
    """The five training batches and the test batch; all pixels of a batch are its number."""

    def make(suffix):
        encode = binary_batch if suffix else python2_batch
        for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], start=1):
            (tmp_path / f"{name}{suffix}").write_bytes(encode(np.full_like(CIFAR, number)))
        return tmp_path

    return make


@pytest.mark.parametrize("suffix", ["", ".bin"])
def test_the_folder_of_cifar_is_its_training_batches_in_order(cifar_folder, suffix):
    images = ImageSet.open(cifar_folder(suffix))
    assert images.pixels.shape == (10, 3, 32, 32)
    assert images.pixels[:, 0, 0, 0].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert images.ids == tuple("0123456789")


@pytest.mark.parametrize("suffix", ["", ".bin"])
@pytest.mark.parametrize("missing", [(3,), (2, 5), (1,)])
def test_a_folder_that_lacks_batches_names_them(cifar_folder, suffix, missing):
    folder = cifar_folder(suffix)
    names = [f"data_batch_{number}{suffix}" for number in missing]
    for name in names:
        (folder / name).unlink()
    with pytest.raises(PatchtraceError, match=f"lacks {', '.join(names)}$"):
        ImageSet.open(folder)


@pytest.mark.parametrize("content", [b"", binary_batch()[:-1], binary_batch() + b"\0"], ids=["empty", "short", "long"])
def test_a_binary_batch_of_a_wrong_length_is_an_error(tmp_path, content):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(content)
    with pytest.raises(PatchtraceError, match=r"data_batch_1\.bin is cut short"):
        ImageSet.open(path)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no pickle at all", id="text"),
        pytest.param(python2_batch()[:3000], id="cut short"),
        pytest.param(python3_batch(2)[:3000], id="cut short, Python 3"),
        pytest.param(pickle.dumps({b"labels": LABELS}), id="no pixels"),
        pytest.param(pickle.dumps({b"data": b"\0" * 3072, b"more": b"\1" * 3072}), id="two blocks of pixels"),
        pytest.param(pickle.dumps({b"data": b"\0" * 3000}), id="no whole picture"),
        pytest.param(pickle.dumps({"data": "é…" * 3072}, protocol=2), id="text that is no bytes"),
    ],
)
def test_a_python_batch_that_is_none_is_an_error(tmp_path, content):
    path = tmp_path / "data_batch_1"
    path.write_bytes(content)
    with pytest.raises(PatchtraceError, match="data_batch_1 is not a CIFAR-10 batch"):
        find(path)[0].pixels(Reading())


def runs_a_command(marker):
    return b"cos\nsystem\n(S'touch " + str(marker).encode() + b"'\ntR."


def test_a_malicious_batch_is_refused_without_being_executed(tmp_path):
    marker = tmp_path / "executed"
    (tmp_path / "data_batch_1").write_bytes(runs_a_command(marker))
    with pytest.raises(PatchtraceError, match="data_batch_1 is not a CIFAR-10 batch"):
        ImageSet.open(tmp_path / "data_batch_1")
    assert not marker.exists()


def test_a_batch_with_something_hostile_beside_its_pixels_is_not_executed(tmp_path, hostile):
    (tmp_path / "data_batch_1").write_bytes(python3_batch(4, extra=hostile))
    np.testing.assert_array_equal(ImageSet.open(tmp_path / "data_batch_1").pixels, CIFAR)
    assert not os.path.exists(hostile.path)
