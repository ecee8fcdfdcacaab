"""Pixels that are arrays already: NumPy arrays, .npy and .npz files, CIFAR-10's own batches."""

from __future__ import annotations

import os
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError

Pixels = NDArray[np.uint8] | NDArray[np.float32]

#: For each way to lay out an array, how to bring it to (images, channels, height, width).
LAYOUTS = {
    "NCHW": (0, 1, 2, 3),
    "NHWC": (0, 3, 1, 2),
    "NHW": (0, None, 1, 2),
    "CHW": (None, 0, 1, 2),
    "HWC": (None, 2, 0, 1),
    "HW": (None, None, 0, 1),
}

CIFAR_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_CIFAR_IMAGE = 3 * 32 * 32


def from_array(array: NDArray[np.generic], layout: str | None) -> Pixels:
    """An array as (images, channels, height, width): u8 pixels, or float32 values that are left as they are."""
    layout = layout or _guess_layout(array)
    if layout not in LAYOUTS:
        raise PatchtraceError(f"layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    if array.ndim != len(layout):
        raise PatchtraceError(f"layout {layout} needs {len(layout)} axes, but the array has shape {array.shape}")
    axes = LAYOUTS[layout]
    array = array.transpose([axis for axis in axes if axis is not None])
    array = np.expand_dims(array, tuple(place for place, axis in enumerate(axes) if axis is None))
    if 0 in array.shape[1:]:
        raise PatchtraceError(f"the images are empty: the array has shape {array.shape}")
    if array.dtype == np.uint8:
        return array.view(np.uint8)
    if np.issubdtype(array.dtype, np.floating):
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            values: NDArray[np.float32] = array.astype(np.float32)
        if not np.isfinite(values).all():
            raise PatchtraceError("the array holds values that are not finite: images are finite, in [-1, 1]")
        return values
    raise PatchtraceError(
        f"the array holds {array.dtype}: use uint8 pixels, or floats in [-1, 1] (latents: floats as they are)"
    )


def _guess_layout(array: NDArray[np.generic]) -> str:
    """The layout where only one is possible; otherwise the caller must say it."""
    if array.ndim == 4:
        first, last = array.shape[1] in (1, 3, 4), array.shape[3] in (1, 3, 4)
        floats = np.issubdtype(array.dtype, np.floating)
        if floats and not (last and not first):  # floats are NCHW, unless they look like the other thing
            return "NCHW"
        if first != last and not floats:
            return "NCHW" if first else "NHWC"
    raise PatchtraceError(
        f"an array of shape {array.shape} and type {array.dtype} can be read in more than one way: "
        f"say layout= (--layout) NHWC, NCHW or another of {', '.join(LAYOUTS)}"
    )


def from_file(path: Path, key: str | None, layout: str | None) -> Pixels:
    """A .npy file (u8 stays mapped and is not read) or one array of a .npz file. Pickled arrays are refused."""
    try:
        with path.open("rb") as stream:
            if stream.read(2) == b"PK":  # a .npz is a zip file
                array = _of_archive(stream, path.name, key)
            else:
                array = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise PatchtraceError(f"{path.name} does not hold an array")
        return from_array(array, layout)
    except PatchtraceError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything inside a reader
        raise PatchtraceError(
            f"cannot read {path.name} as a NumPy file: {str(error) or type(error).__name__}"
        ) from error


def _of_archive(stream: BinaryIO, where: str, key: str | None) -> object:
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as archive:
        names = list(archive.files)
        chosen = key or (names[0] if len(names) == 1 else None)
        if chosen not in names:
            asked = f"{where} has no array {key!r}." if key else f"which array of {where} holds the images?"
            raise PatchtraceError(f"{asked} Choose with key= (--train-key, --query-key) one of {', '.join(names)}")
        return archive[chosen]


def cifar_files(path: Path) -> list[Path] | None:
    """The batch files of CIFAR-10, if that is what lies here: its folder (training batches), or one batch."""
    if os.path.isdir(path):  # os.path says no where pathlib would raise for want of permission
        for suffix in ("", ".bin"):
            batches = [path / f"{name}{suffix}" for name in CIFAR_BATCHES]
            missing = [batch.name for batch in batches if not os.path.isfile(batch)]
            if len(missing) < len(batches):
                if missing:
                    raise PatchtraceError(f"{path.name} looks like CIFAR-10 but lacks {', '.join(missing)}")
                return batches
        return None
    known = {f"{name}{suffix}" for name in (*CIFAR_BATCHES, "test_batch") for suffix in ("", ".bin")}
    return [path] if path.name in known and os.path.isfile(path) else None


def from_cifar(batches: list[Path]) -> Pixels:
    """CIFAR-10 in its original python or binary batches, in the order of the files."""
    return np.concatenate([_cifar_batch(batch) for batch in batches])


def _cifar_batch(path: Path) -> NDArray[np.uint8]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise PatchtraceError(f"cannot read {path.name}: {error.strerror}") from error
    if path.suffix == ".bin":
        if not raw or len(raw) % (_CIFAR_IMAGE + 1):
            raise PatchtraceError(f"{path.name} is cut short: a CIFAR-10 record has {_CIFAR_IMAGE + 1} bytes")
        records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _CIFAR_IMAGE + 1)
        return records[:, 1:].reshape(-1, 3, 32, 32)
    # The python batches are pickles. They are never unpickled: their opcodes are only listed, and the pixels are
    # the one byte string in them that is made of whole images.
    try:
        pixels = [text for text in _byte_strings(raw) if len(text) >= _CIFAR_IMAGE and len(text) % _CIFAR_IMAGE == 0]
    except (ValueError, IndexError, UnicodeError) as error:
        raise PatchtraceError(f"{path.name} is not a CIFAR-10 batch: {error}") from error
    if len(pixels) != 1:
        raise PatchtraceError(f"{path.name} is not a CIFAR-10 batch: it does not hold one block of 32 x 32 images")
    return np.frombuffer(pixels[0], dtype=np.uint8).reshape(-1, 3, 32, 32)


def _byte_strings(pickled: bytes) -> Iterator[bytes]:
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, bytes | bytearray):
            yield bytes(argument)
        elif isinstance(argument, str) and len(argument) >= _CIFAR_IMAGE:
            yield argument.encode("latin-1")  # how Python 2 strings, and bytes in protocol 2, are listed
