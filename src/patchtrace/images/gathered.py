"""Pictures of one size as they are decoded, whose number is not known: in memory, and from some number on in a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.images.encoding import PixelType

#: Bytes that are held in memory; more goes to a file without a name, which is mapped, and ends with the process.
HELD = 1 << 29


class Gathered:
    """An array that grows by pictures.

    Examples
    --------
    >>> pictures = Gathered()
    >>> pictures.add([np.zeros((3, 4, 4), np.uint8)] * 2)
    >>> pictures.array().shape
    (2, 3, 4, 4)
    """

    def __init__(self) -> None:
        self._pictures: list[PixelType] = []
        self._file: IO[bytes] | None = None
        self._count = self._bytes = 0

    def add(self, pictures: Iterable[PixelType]) -> None:
        """Put pictures behind those that are there."""
        for picture in pictures:
            self._pictures.append(picture)
            self._count += 1
            self._bytes += picture.nbytes
            if self._file or self._bytes > HELD:
                self._write()

    def array(self) -> NDArray[Any]:
        """All pictures: (images, channels, height, width)."""
        if self._file is None:
            return np.stack(self._pictures)
        with self._file as file, _room():
            file.flush()
            return np.memmap(file, self._type, mode="r", shape=(self._count, *self._shape))

    def _write(self) -> None:
        with _room():
            self._file = self._file or tempfile.TemporaryFile()  # noqa: SIM115  # closed once it is mapped
            for picture in self._pictures:
                self._file.write(np.ascontiguousarray(picture).data)
        self._shape, self._type = self._pictures[-1].shape, self._pictures[-1].dtype
        self._pictures.clear()


@contextmanager
def _room() -> Iterator[None]:
    """A full disk, in words."""
    try:
        yield
    except OSError as error:
        raise PatchtraceError(
            f"the pictures take more than {HELD / 1e9:.1f} GB, and cannot be kept in {tempfile.gettempdir()} "
            f"({error.strerror or error}): use `patchtrace index`, --limit, or another directory in TMPDIR"
        ) from error
