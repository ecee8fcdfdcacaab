"""Shards: how they are written and read.

Pixels are read with ``pread`` and not mapped: pages of a map count as memory of the process, and a mapped file that
was cut short ends the process with a signal instead of an error.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.files import replacing
from patchtrace.images.shapes import Extents
from patchtrace.images.store.item import Task
from patchtrace.images.store.manifest import SHARDS, Damaged, ShardEntry, Table

#: A shard ends at so many images or so many bytes, whichever comes first: what a killed run may have to do again.
#: Latents take a hundred times as long to make as pixels.
SHARD_IMAGES, SHARD_BYTES, LATENT_SHARD_BYTES = 8192, 64 << 20, 8 << 20
_CHUNK = 1 << 20


def write_shard(store: Path, pixels: NDArray[Any], table: Table) -> ShardEntry:
    """Write the images (images, channels, height, width) and what is known of them."""
    stream = io.BytesIO()
    np.save(stream, pixels, allow_pickle=False)
    return ShardEntry(
        *_write(store, stream.getbuffer(), "npy"), *write_table(store, table), len(table), ((0, len(table)),)
    )


def write_table(store: Path, table: Table) -> tuple[str, int]:
    """Write what is known of the images of a shard; hash and length of the file."""
    return _write(store, table.to_bytes(), "json")


def _write(store: Path, raw: bytes | memoryview, suffix: str) -> tuple[str, int]:
    digest = hashlib.sha256(raw).hexdigest()
    with replacing(store / SHARDS / f"{digest}.{suffix}") as temporary:
        temporary.write_bytes(raw)
    return digest, len(raw)


def read_table(store: Path, entry: ShardEntry) -> Table:
    """What is known of the images of a shard, checked against its hash."""
    path = store / SHARDS / f"{entry.table}.json"
    try:
        raw = path.read_bytes()
        if len(raw) != entry.table_bytes or hashlib.sha256(raw).hexdigest() != entry.table:
            raise ValueError("is not what was written")
        return Table.from_bytes(raw, entry.rows)
    except FileNotFoundError as error:
        raise _damaged(path, "is missing") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def live_ids(store: Path, entries: Iterable[ShardEntry]) -> tuple[str, ...]:
    """The ids of all images of these shards."""
    read = ((read_table(store, entry).ids, entry.live) for entry in entries)
    return tuple(name for names, live in read for start, stop in live for name in names[start:stop])


def live_extents(store: Path, entries: Iterable[ShardEntry], shape: tuple[int, int, int]) -> Extents:
    """Heights and widths of all images of these shards, which have shapes of their own: (images, 2)."""
    found = []
    for entry in entries:
        extents = np.array(read_table(store, entry).extents, np.int64).reshape(-1, 2)
        if len(extents) != entry.rows or not ((extents >= 1) & (extents <= shape[1:])).all():
            raise _damaged(store / SHARDS / f"{entry.table}.json", "has no valid extents")
        found.append(extents[entry.mask()].astype(np.int32))
    return np.concatenate(found) if found else np.zeros((0, 2), np.int32)


class Shard:
    """The pixels of one shard, read by row. Its hash is checked before the first of them is given out."""

    def __init__(self, store: Path, entry: ShardEntry, shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
        self.path = store / SHARDS / f"{entry.pixels}.npy"
        self.entry = entry
        self._image = int(np.prod(shape)) * dtype.itemsize
        self._offset = entry.bytes - entry.rows * self._image
        self._handle: int | None = None
        self._checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handle": None, "_checked": False}  # another process sees for itself

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            os.close(self._handle)  # type: ignore[arg-type]

    def open(self, hold: bool) -> None:
        """See that it is there and as long as it was, and ``hold`` it, so that it is readable when it is deleted."""
        with self._opened() as handle:
            self._handle = handle if hold else None

    def check(self) -> None:
        """See that the content is what was written."""
        digest = hashlib.sha256()
        place = 0
        with self._opened() as handle:
            while chunk := os.pread(handle, _CHUNK, place):
                digest.update(chunk)
                place += len(chunk)
        if digest.hexdigest() != self.entry.pixels:
            raise _damaged(self.path, "is not what was written")
        self._checked = True

    def read(self, row: int, into: NDArray[Any]) -> None:
        """Fill ``into`` (images, channels, height, width) with consecutive rows, from ``row`` on."""
        if not self._checked:
            self.check()
        with self._opened() as handle:
            rest = into.reshape(-1).view(np.uint8).data
            place = self._offset + row * self._image
            while rest:
                got = _read_at(handle, rest, place)
                if got == 0:
                    raise _damaged(self.path, "was cut short")
                rest, place = rest[got:], place + got

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """The file that is held, or one that is open for now."""
        handle = self._open() if self._handle is None else self._handle
        try:
            yield handle
        finally:
            if handle != self._handle:
                os.close(handle)

    def _open(self) -> int:
        try:
            handle = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError as error:
            raise _damaged(self.path, "is missing") from error
        length = os.fstat(handle).st_size
        if length != self.entry.bytes or self._offset < 0:
            os.close(handle)
            raise _damaged(self.path, f"has {length} bytes instead of {self.entry.bytes}")
        return handle


class ShardBuilder:
    """Collects images and writes a shard whenever there are enough."""

    def __init__(
        self, store: Path, shape: tuple[int, int, int] | None, shard_images: int, dtype: np.dtype[Any]
    ) -> None:
        self.store, self.shape, self._most, self._dtype = store, shape, shard_images, dtype
        self.written: list[ShardEntry] = []
        self._pixels = bytearray()
        self._table = Table()

    @property
    def limit(self) -> int:
        """Most images in a shard."""
        image = int(np.prod(self.shape)) * self._dtype.itemsize if self.shape else 1
        most = SHARD_BYTES if self._dtype == np.uint8 else LATENT_SHARD_BYTES
        return max(1, min(self._most, most // image))

    def expect(self, shape: tuple[int, int, int], name: str = "the array") -> None:
        """Refuse images of another size than those that are there."""
        if self.shape is None:
            self.shape = shape
        elif self.shape != shape:
            (c0, h0, w0), (c1, h1, w1) = self.shape, shape
            raise PatchtraceError(
                f"the images differ in size: those before have {w0} x {h0} pixels in {c0} channels and {name} has "
                f"{w1} x {h1} in {c1}. Set size= (--size) to bring them to one size"
            )

    def add(self, task: Task, pixels: bytes, source: str, digest: str, extent: tuple[int, int] | None = None) -> bool:
        """Add an image with the hashes of its file and its pixels; whether a shard was written."""
        self._pixels += pixels
        self._table.append(task.id, source, digest, task.marks, extent)
        return len(self._table) >= self.limit and self.flush()

    def flush(self) -> bool:
        """Write what there is; whether there was something."""
        if not len(self._table):
            return False
        assert self.shape is not None
        images = np.frombuffer(self._pixels, dtype=self._dtype).reshape(-1, *self.shape)
        self.written.append(write_shard(self.store, images, self._table))
        self._pixels, self._table = bytearray(), Table()
        return True


def _read_at(handle: int, into: memoryview, place: int) -> int:
    """Read from a place in a file, and return how many bytes there were."""
    if hasattr(os, "preadv"):
        return os.preadv(handle, [into], place)
    found = os.pread(handle, min(len(into), _CHUNK), place)  # older releases of macOS
    into[: len(found)] = found
    return len(found)


def _damaged(path: Path, what: str) -> Damaged:
    return Damaged(
        f"the store {str(path.parent.parent)!r} is damaged: {path.parent.name}/{path.name} {what}. "
        "Run `patchtrace index -o STORE` again: it decodes again what is damaged"
    )
