"""CIFAR-10 in its original python or binary batches."""

from __future__ import annotations

import os
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.images.arrays import PixelArray
from patchtrace.images.sources.base import Reading, Source

BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_IMAGE = 3 * 32 * 32


class Cifar(Source):
    """CIFAR-10's folder (the training batches in order), or one batch file."""

    kind = "CIFAR-10"
    own_size = True

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is CIFAR-10's folder or a batch."""
        return isinstance(place, Path) and bool(batch_files(place))

    def pixels(self, reading: Reading) -> PixelArray:
        """All batches, one after the other."""
        return np.concatenate([_batch(path) for path in batch_files(self.place)])


def batch_files(path: Path) -> list[Path]:
    """The batch files of CIFAR-10 at a path: its folder (training batches), or one batch; none if it is neither."""
    if os.path.isdir(path):  # os.path says no where pathlib would raise for want of permission
        for suffix in ("", ".bin"):
            batches = [path / f"{name}{suffix}" for name in BATCHES]
            missing = [batch.name for batch in batches if not os.path.isfile(batch)]
            if len(missing) < len(batches):
                if missing:
                    raise PatchtraceError(f"{path.name} looks like CIFAR-10 but lacks {', '.join(missing)}")
                return batches
        return []
    return [path] if path.name.removesuffix(".bin") in (*BATCHES, "test_batch") and os.path.isfile(path) else []


def _batch(path: Path) -> NDArray[np.uint8]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise PatchtraceError(f"cannot read {path.name}: {error.strerror}") from error
    if path.suffix == ".bin":
        if not raw or len(raw) % (_IMAGE + 1):
            raise PatchtraceError(f"{path.name} is cut short: a CIFAR-10 record has {_IMAGE + 1} bytes")
        records = np.frombuffer(raw, dtype=np.uint8).reshape(-1, _IMAGE + 1)
        return records[:, 1:].reshape(-1, 3, 32, 32)
    # The python batches are pickles. They are never unpickled: their opcodes are only listed, and the pixels are
    # the one byte string in them that is made of whole images.
    try:
        pixels = [text for text in _byte_strings(raw) if len(text) >= _IMAGE and len(text) % _IMAGE == 0]
    except (ValueError, IndexError, UnicodeError) as error:
        raise PatchtraceError(f"{path.name} is not a CIFAR-10 batch: {error}") from error
    if len(pixels) != 1:
        raise PatchtraceError(f"{path.name} is not a CIFAR-10 batch: it does not hold one block of 32 x 32 images")
    return np.frombuffer(pixels[0], dtype=np.uint8).reshape(-1, 3, 32, 32)


def _byte_strings(pickled: bytes) -> Iterator[bytes]:
    for _, argument, _ in pickletools.genops(pickled):
        if isinstance(argument, bytes | bytearray):
            yield bytes(argument)
        elif isinstance(argument, str) and len(argument) >= _IMAGE:
            yield argument.encode("latin-1")  # how Python 2 strings, and bytes in protocol 2, are listed
