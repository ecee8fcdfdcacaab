"""Shards: how they are written, and how their pixels are read without staying in memory.

Pixels are read with ``pread`` and not mapped: pages of a map count as memory of the process, and a mapped file that
was cut short ends the process with a signal instead of an error.
"""

from __future__ import annotations

import hashlib
import io
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.files import replacing
from patchtrace.images.store.manifest import SHARDS, Damaged, ShardEntry, Table

#: A shard ends at so many images or so many bytes, whichever comes first: what a killed run may have to do again.
SHARD_IMAGES, SHARD_BYTES = 8192, 64 << 20
#: Files that are held open, so that `gc` does not take them from a reader; those of huger stores are opened as needed.
HELD = 400
_CHUNK = 1 << 20


def write_shard(store: Path, pixels: NDArray[np.uint8], table: Table) -> ShardEntry:
    """Write the images (images, channels, height, width) and what is known of them."""
    stream = io.BytesIO()
    np.save(stream, pixels, allow_pickle=False)
    raw = stream.getbuffer()
    digest = hashlib.sha256(raw).hexdigest()
    with replacing(store / SHARDS / f"{digest}.npy") as temporary:
        temporary.write_bytes(raw)
    name, length = write_table(store, table)
    return ShardEntry(digest, len(raw), name, length, len(table), ((0, len(table)),))


def write_table(store: Path, table: Table) -> tuple[str, int]:
    """Write what is known of the images of a shard; hash and length of the file."""
    raw = table.to_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    with replacing(store / SHARDS / f"{digest}.json") as temporary:
        temporary.write_bytes(raw)
    return digest, len(raw)


def read_table(store: Path, entry: ShardEntry) -> Table:
    """What is known of the images of a shard, checked against its hash."""
    path = store / SHARDS / f"{entry.table}.json"
    try:
        raw = path.read_bytes()
        if len(raw) != entry.table_bytes or hashlib.sha256(raw).hexdigest() != entry.table:
            raise ValueError("its content is not what was written")
        return Table.from_bytes(raw, entry.rows)
    except FileNotFoundError as error:
        raise _missing(path) from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


class Shard:
    """The pixels of one shard, read by row. Its hash is checked before the first of them is given out."""

    def __init__(self, store: Path, entry: ShardEntry, shape: tuple[int, int, int]) -> None:
        self.path = store / SHARDS / f"{entry.pixels}.npy"
        self.entry = entry
        self._image = int(np.prod(shape))
        self._offset = entry.bytes - entry.rows * self._image
        self._handle: int | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_checked": False}  # another process sees for itself

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            os.close(self._handle)  # type: ignore[arg-type]

    def hold(self) -> None:
        """Open the file and keep it, so that it stays readable when it is deleted."""
        if self._handle is None:
            self._handle = self._open()

    def check_length(self) -> None:
        """What can be seen without reading: that it is there, and as long as it was."""
        handle = self._open() if self._handle is None else self._handle
        if handle != self._handle:
            os.close(handle)

    def check(self) -> None:
        """See that the content is what was written."""
        handle = self._open() if self._handle is None else self._handle
        try:
            self._check(handle)
        finally:
            if handle != self._handle:
                os.close(handle)

    def read(self, row: int, into: NDArray[np.uint8]) -> None:
        """Fill ``into`` (images, channels, height, width) with consecutive rows, from ``row`` on."""
        handle = self._open() if self._handle is None else self._handle
        try:
            if not self._checked:
                self._check(handle)
            rest = into.reshape(-1).data
            place = self._offset + row * self._image
            while rest:
                got = os.preadv(handle, [rest], place)
                if got == 0:
                    raise _damaged(self.path, "it was cut short")
                rest, place = rest[got:], place + got
        finally:
            if handle != self._handle:
                os.close(handle)

    def _open(self) -> int:
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise _missing(self.path) from error
        length = os.fstat(handle).st_size
        if length != self.entry.bytes or self._offset < 0:
            os.close(handle)
            raise _damaged(self.path, f"it has {length} bytes instead of {self.entry.bytes}")
        return handle

    def _check(self, handle: int) -> None:
        digest = hashlib.sha256()
        place = 0
        while chunk := os.pread(handle, _CHUNK, place):
            digest.update(chunk)
            place += len(chunk)
        if digest.hexdigest() != self.entry.pixels:
            raise _damaged(self.path, "its content is not what was written")
        self._checked = True


class StorePixels:
    """The pixels of a store as an array (images, channels, height, width) that lies on disk and cannot be changed.

    Indexing by number, slice, integers or mask reads those images, as a NumPy array. Made by ``ImageSet.open``.

    Parameters
    ----------
    shards : list of Shard
    shape : (int, int, int)
        Channels, height, width.
    shard_of, row_of : int arrays (images,)
        Where each image is.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self,
        shards: list[Shard],
        shape: tuple[int, int, int],
        shard_of: NDArray[np.int32],
        row_of: NDArray[np.int32],
    ) -> None:
        self.shape = (len(row_of), *shape)
        self._shards, self._shard_of, self._row_of = shards, shard_of, row_of
        self._known: tuple[tuple[str, ...], str] | None = None

    @classmethod
    def of(cls, store: Path, shards: list[ShardEntry], shape: tuple[int, int, int]) -> StorePixels:
        """All live images of these shards; whether the files are there and as long as they were is seen at once."""
        opened = [Shard(store, entry, shape) for entry in shards]
        for number, shard in enumerate(opened):
            if number < HELD:
                shard.hold()
            else:
                shard.check_length()
        rows = [np.flatnonzero(entry.mask()).astype(np.int32) for entry in shards]
        shard_of = np.repeat(np.arange(len(rows), dtype=np.int32), [len(part) for part in rows])
        return cls(opened, shape, shard_of, np.concatenate(rows) if rows else np.zeros(0, np.int32))

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def nbytes(self) -> int:
        """How many bytes all of it would take in memory."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __getitem__(self, key: Any) -> NDArray[np.uint8]:
        if isinstance(key, tuple):
            first, *rest = key
            images = self[first]
            return images[tuple(rest) if images.ndim == 3 else (slice(None), *rest)]
        places = np.arange(len(self))[key]
        read = self._read(np.atleast_1d(places))
        return read[0] if np.ndim(places) == 0 else read

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the pixels of a store are on disk: an array of them is always a copy")
        return self[:].astype(dtype or self.dtype, copy=False)

    def select(self, places: NDArray[np.integer[Any]]) -> StorePixels:
        """The images at these places, still on disk."""
        return StorePixels(self._shards, self.shape[1:], self._shard_of[places], self._row_of[places])

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without the shards in which none of these images is, and with the rest unopened."""
        used, shard_of = np.unique(self._shard_of, return_inverse=True)
        shards = [self._shards[number] for number in used]
        return {**self.__dict__, "_shards": shards, "_shard_of": shard_of.astype(np.int32)}

    def reuse(self, known: dict[Path, Shard]) -> None:
        """Take those of these shards that are known already, so that their content is checked once; note the others."""
        self._shards = [known.setdefault(shard.path, shard) for shard in self._shards]

    def know(self, ids: tuple[str, ...], fingerprint: str) -> None:
        """What the manifest says of all these images under these ids."""
        self._known = ids, fingerprint

    def fingerprint_of(self, ids: tuple[str, ...]) -> str | None:
        """The fingerprint of a set of these pixels, if it is known without reading them."""
        return self._known[1] if self._known and self._known[0] == ids else None

    def where(self, index: int) -> tuple[ShardEntry, int]:
        """Shard and row of one image."""
        return self._shards[self._shard_of[index]].entry, int(self._row_of[index])

    def _read(self, places: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
        images = np.empty((len(places), *self.shape[1:]), dtype=np.uint8)
        if not len(places):
            return images
        shard_of, row_of = self._shard_of[places], self._row_of[places]
        # rows that lie one after the other are read at once
        breaks = np.flatnonzero((np.diff(shard_of) != 0) | (np.diff(row_of) != 1)) + 1
        edges = [0, *breaks.tolist(), len(places)]
        for start, stop in pairwise(edges):
            self._shards[shard_of[start]].read(int(row_of[start]), images[start:stop])
        return images


def _missing(path: Path) -> Damaged:
    return Damaged(f"the store {str(path.parent.parent)!r} is damaged: {_short(path)} is missing. {_HELP}")


def _damaged(path: Path, what: str) -> Damaged:
    return Damaged(f"the store {str(path.parent.parent)!r} is damaged: of {_short(path)}, {what}. {_HELP}")


def _short(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


_HELP = "Run `patchtrace index -o STORE` again: it decodes anew what is damaged"
