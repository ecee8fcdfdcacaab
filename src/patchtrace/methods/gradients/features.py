"""Projected gradients on disk: rows of a memory-mapped file that a killed run resumes and a second run reuses.

Beside each ``.npy`` lies a ``.json`` record: everything that decides the rows, how many are done, their checksum, and
how long they took. It is written after the rows have reached the disk, so it is always true; rows beyond it are written
again. Files that do not match their record are reported once, as a warning, and computed again.
"""

from __future__ import annotations

import io
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

from patchtrace.cache import digest, warn_damaged
from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing, write_json
from patchtrace.images import ImageSet
from patchtrace.methods.gradients.per_image import Gradients, Stream
from patchtrace.methods.gradients.projection import Projection
from patchtrace.progress import Counter

#: Increase it when rows of the same facts are computed in another way.
FILE_VERSION = 1
#: Seconds between two records on disk; a killed run loses no more than this.
SAVE_EVERY = 5.0
#: Bytes read at once to check a file.
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
    """Projected gradients of all images, (images, dimension), and the seconds that earlier runs spent on them.

    Parameters
    ----------
    gradients : Gradients
    dimension : int or None
        Length of the projection; None keeps the gradients as they are.
    images : ImageSet
    stream : {"train", "queries"}
    directory : path
        Where the file is kept.
    memory : int
        Bytes that may be used to compute the rows.
    count : Counter
        Each image counts as ``gradients.copies``.
    """
    of_model = gradients.facts()
    # each model has its own projection, so that errors average out in a mean over checkpoints
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
    return np.load(file.path, mmap_mode="r", allow_pickle=False), earlier


class FeatureFile:
    """Rows of float32 that are computed in order.

    Parameters
    ----------
    directory : path
        An existing directory.
    facts : mapping
        Everything that decides the rows, plain data; the file is named after their digest.
    shape : (int, int)
        Shape of the finished array.
    """

    def __init__(self, directory: Path, facts: Mapping[str, Any], shape: tuple[int, int]) -> None:
        self.facts = {"file_version": FILE_VERSION, **facts, "shape": list(shape)}
        self.shape = shape
        self.path = directory / f"gradients-{digest(self.facts)[:32]}.npy"
        self.record = self.path.with_suffix(".json")
        self.rows, self.checksum, self.seconds = 0, 0, 0.0
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        self._header, self._row = header.getvalue(), 4 * shape[1]

    def open(self) -> int:
        """Check what is there, or begin the file; returns the number of rows that are done."""
        if self.record.exists():
            try:
                return self._check()
            except (OSError, ValueError, KeyError, TypeError) as error:
                warn_damaged("gradients", self.path, error)
        with replacing(self.path) as temporary:
            temporary.write_bytes(self._header)
        self._note()
        return 0

    @contextmanager
    def writing(self) -> Iterator[Any]:
        """A function that appends rows. Rows that were appended are kept however the block ends."""
        with self.path.open("r+b") as stream:
            stream.seek(len(self._header) + self.rows * self._row)
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

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from computing the same rows: they wait, and then find them."""
        try:
            import fcntl
        except ImportError:  # on Windows, runs at the same time have to use separate caches
            yield
            return
        with self.record.with_suffix(".lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _save(self, stream: BinaryIO) -> None:
        stream.flush()
        os.fsync(stream.fileno())
        self._note()

    def _note(self) -> None:
        noted = {"rows": self.rows, "checksum": self.checksum, "seconds": self.seconds, "facts": self.facts}
        write_json(self.record, noted)

    def _check(self) -> int:
        """Take over the record, and see that the rows are those it describes."""
        noted = json.loads(self.record.read_text(encoding="utf-8"))
        if noted["facts"] != self.facts:
            raise ValueError("its record is about something else")
        rows, seconds = int(noted["rows"]), float(noted["seconds"])
        checksum, left = 0, rows * self._row
        with self.path.open("rb") as stream:
            if stream.read(len(self._header)) != self._header:
                raise ValueError("it holds another array")
            while left > 0 and (data := stream.read(min(left, _CHECKED))):
                checksum, left = zlib.crc32(data, checksum), left - len(data)
        if left or checksum != noted["checksum"] or rows > self.shape[0]:
            raise ValueError("its rows are not those of its record")
        self.rows, self.checksum, self.seconds = rows, checksum, seconds
        return rows
