"""Projected gradients on disk: rows of a memory-mapped file that a killed run goes on with and a second run finds.

Beside each ``.npy`` lies a ``.json`` with all that decided the rows, how many are done, their checksum, and how long
they took. It is written after the rows have reached the disk, so what it says is always true; rows beyond it are
written again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.methods.gradient_projection import Projection
from patchtrace.methods.gradients import Gradients, Stream
from patchtrace.progress import Counter

#: Raised when rows of the same facts are computed in another way.
FILE_VERSION = 1
#: Seconds between two records on disk; a killed run loses no more than this.
SAVE_EVERY = 5.0
#: Bytes that are read at once to check a file.
_CHECKED = 2**24


def features(
    gradients: Gradients,
    dimension: int | None,
    images: ImageSet,
    stream: Stream,
    directory: Path,
    *,
    memory: int,
    count: Counter,
) -> tuple[NDArray[np.float32], float]:
    """Projected gradients of all images, (images, dimension), from the file where they are kept.

    Also the seconds that earlier runs have spent on them.

    Parameters
    ----------
    gradients : Gradients
    dimension : int or None
        Of the projection; None for the gradients as they are.
    images : ImageSet
    stream : {"train", "queries"}
    directory : path
        Where the file is, or will be.
    memory : int
        Bytes that may be used to make the rows.
    count : Counter
        Told each image as ``gradients.copies`` of work.
    """
    of_model = gradients.facts()
    # models have projections of their own, so that their errors average out in a mean over checkpoints
    projection = Projection(gradients.width, dimension, (gradients.seed, int(of_model["model"][:16], 16)))
    facts = {**of_model, **projection.facts(), "images": images.fingerprint(), "stream": stream}
    directory.mkdir(parents=True, exist_ok=True)
    file = FeatureFile(directory, facts, (len(images), projection.length))
    with file.alone():
        done = file.open()
        earlier = file.seconds
        count.add(done * gradients.copies)
        if done < len(images):
            together, copies = gradients.together(memory)
            with file.writing() as write:
                for start in range(done, len(images), together):
                    numbers = range(start, min(len(images), start + together))
                    rows = projection.rows(gradients.of(images, numbers, stream, copies)).cpu().numpy()
                    if not np.isfinite(rows).all():
                        raise PatchtraceError(
                            f"gradients of images {numbers.start} to {numbers.stop - 1} are not finite: "
                            "the model's weights or the pixels are not, or are far too large"
                        )
                    write(rows.astype(np.float32, copy=False))
                    count.add(len(numbers) * gradients.copies)
    return file.read(), earlier


class FeatureFile:
    """Rows of float32 that are made in order.

    Parameters
    ----------
    directory : path
        Which exists.
    facts : mapping
        All that decides the rows, plain data; the file's name is a hash of them.
    shape : (int, int)
        Of the finished array.
    """

    def __init__(self, directory: Path, facts: Mapping[str, Any], shape: tuple[int, int]) -> None:
        self.facts = {"file_version": FILE_VERSION, **facts, "shape": list(shape)}
        self.shape = shape
        named = hashlib.sha256(json.dumps(self.facts, sort_keys=True).encode()).hexdigest()[:20]
        self.path, self.record = directory / f"gradients-{named}.npy", directory / f"gradients-{named}.json"
        self.rows, self.checksum, self.seconds = 0, 0, 0.0

    def open(self) -> int:
        """Begin the file, or check what is there; how many rows are done."""
        if not self.record.exists():
            with replacing(self.path) as temporary, temporary.open("wb") as stream:
                fields = {"descr": "<f4", "fortran_order": False, "shape": self.shape}
                np.lib.format.write_array_header_1_0(stream, fields)
            self._note()
            return 0
        try:
            noted = json.loads(self.record.read_text(encoding="utf-8"))
            self.rows, self.checksum = int(noted["rows"]), int(noted["checksum"])
            self.seconds = float(noted["seconds"])
            right = noted["facts"] == self.facts and 0 <= self.rows <= self.shape[0] and self._as_noted()
        except (OSError, ValueError, KeyError, TypeError):
            right = False
        if not right:
            raise PatchtraceError(
                f"{self.path} is damaged, or not the file it should be: delete it and {self.record.name}"
            )
        return self.rows

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A function that adds rows. Those that were added are kept however the block ends."""
        with self.path.open("r+b") as stream:
            stream.seek(self._first_byte(stream) + self.rows * self._row)
            begin = saved = time.monotonic()
            before = self.seconds

            def write(rows: NDArray[np.float32]) -> None:
                nonlocal saved
                data = np.ascontiguousarray(rows, dtype="<f4").data.cast("B")
                stream.write(data)
                self.checksum = zlib.crc32(data, self.checksum)
                self.rows += len(rows)
                self.seconds = before + time.monotonic() - begin
                if time.monotonic() - saved > SAVE_EVERY:
                    self._save(stream)
                    saved = time.monotonic()

            try:
                yield write
            finally:
                self._save(stream)

    def read(self) -> NDArray[np.float32]:
        """The finished array, mapped from the file."""
        rows: NDArray[np.float32] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        return rows

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process make the same rows meanwhile: it waits, and then finds them."""
        try:
            import fcntl
        except ImportError:  # not to be had on Windows, where runs at the same time have to use caches of their own
            yield
            return
        with self.record.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @property
    def _row(self) -> int:
        return 4 * self.shape[1]

    def _save(self, stream: BinaryIO) -> None:
        stream.flush()
        os.fsync(stream.fileno())
        self._note()

    def _note(self) -> None:
        noted = {"rows": self.rows, "checksum": self.checksum, "seconds": self.seconds, "facts": self.facts}
        with replacing(self.record) as temporary:
            temporary.write_text(json.dumps(noted, indent=1), encoding="utf-8")

    def _first_byte(self, stream: BinaryIO) -> int:
        """Where the rows begin; ValueError unless the file says it holds what it should."""
        stream.seek(0)
        np.lib.format.read_magic(stream)
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
        if shape != self.shape or fortran or dtype != np.dtype("<f4"):
            raise ValueError("another array")
        return stream.tell()

    def _as_noted(self) -> bool:
        """Whether the rows that are said to be done have the checksum they should."""
        checksum, left = 0, self.rows * self._row
        with self.path.open("rb") as stream:
            self._first_byte(stream)
            while left and (data := stream.read(min(left, _CHECKED))):
                checksum, left = zlib.crc32(data, checksum), left - len(data)
        return left == 0 and checksum == self.checksum
