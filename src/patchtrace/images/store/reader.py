"""Opening a store to read: never blocks, and keeps the state it found while others write a new one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, Unreadable, read_file
from patchtrace.images.pixels import Places
from patchtrace.images.sources.base import Opened, Reading, Source, is_url
from patchtrace.images.store.manifest import LOCK, MANIFEST, Damaged, Manifest, Table
from patchtrace.images.store.pixels import StorePixels
from patchtrace.images.store.shards import live_extents, live_ids, read_table
from patchtrace.latents import recorded

#: How often a state may be replaced, and its files deleted, while it is being opened.
_ATTEMPTS = 5


def is_store(path: Path) -> bool:
    """Whether there is a store here, finished or not."""
    return any(os.path.isfile(path / name) for name in (MANIFEST, LOCK))


class StoreSource(Source):
    """A store as a source: pixels and ids as they are in it."""

    kind = "a store"
    own_size = True

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether a store is here, finished or not."""
        return isinstance(place, Path) and is_store(place)

    def opened(self, reading: Reading) -> Opened:
        """Its state, unless other rules are asked for than it was made by."""
        if not hasattr(os, "pread"):  # Windows
            raise PatchtraceError("a store can be read on Linux and macOS only: give the images it was made from")
        return _opened(Path(self.address), reading.rules, _ATTEMPTS)


def _opened(path: Path, rules: Decoding, attempts: int) -> Opened:
    """The state that the store has now. Manifest and tables are checked in full, shards by their length.

    The content of a shard is checked when the first of its images is read.
    """
    manifest = Manifest.read(path)
    check_rules(path, manifest, rules)
    try:
        pixels = StorePixels.of(path, manifest.shards, manifest.shape, manifest.dtype)
        ids = live_ids(path, manifest.shards)
        extents = live_extents(path, manifest.shards, manifest.shape) if manifest.keeps_shapes else None
    except Damaged:
        # a writer and its gc may have been faster than we were
        if attempts == 1 or Manifest.read(path) == manifest:
            raise
        return _opened(path, rules, attempts - 1)
    root = _root([source.path for source in manifest.sources])
    originals = Originals(path, root, pixels, ids) if root is not None else ()
    pixels.know(ids, manifest.fingerprint)
    autoencoder = None if manifest.latents is None else recorded(manifest.latents)
    return Opened(pixels, ids, manifest.skipped, manifest.decoding, manifest.remarks, originals, autoencoder, extents)


def check_rules(store: Path, manifest: Manifest, rules: Decoding) -> None:
    """Refuse rules other than those by which the pictures of the store were made."""
    channels, height, width = manifest.shape
    made = manifest.decoding or Decoding()
    if manifest.latents is not None:
        height, width = recorded(manifest.latents).picture_size((height, width))
    if made.size is not None and made.keeps_shapes:
        height, width = made.size
    stored = {"grey": channels == 1, "size": (height, width)}
    differing = ", ".join(
        f"{name}={getattr(rules, name)!r}"
        for name in ("grey", "fit", "crop", "exif", "size")
        if getattr(rules, name) not in (getattr(Decoding, name), getattr(made, name), stored.get(name))
    )
    if differing:
        raise PatchtraceError(
            f"the store {str(store)!r} holds pictures of {height} x {width} that are decoded already: "
            f"{differing} would need another store, made by `patchtrace index` with that option"
        )


def _root(sources: list[str]) -> Path | None:
    """The folder that ids are relative to, if it is on this machine."""
    if any(is_url(source) for source in sources):
        return None
    if len(sources) == 1 and os.path.isdir(sources[0]):
        return Path(sources[0])
    try:
        root = os.path.commonpath([os.path.dirname(source) for source in sources])
    except ValueError:
        return None
    return Path(root) if os.path.isdir(root) else None


class Originals(Sequence["bytes | None"]):
    """The file that each image was decoded from, where it is still there with the same content.

    A store may come from anywhere, and what it calls its files may be any file of this machine. So a file is given out
    only if the store has its hash: whoever made the store had the same bytes.
    """

    def __init__(self, store: Path, root: Path, pixels: StorePixels, ids: tuple[str, ...]) -> None:
        self._store, self._root, self._pixels, self._ids = store, root, pixels, ids
        self._table: tuple[str, Table] | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        name = PurePosixPath(self._ids[index])
        if name.is_absolute() or ".." in name.parts:
            return None
        entry, row = self._pixels.where(index)
        with suppress(OSError, ValueError, Unreadable):  # the picture itself is shown instead
            if self._table is None or self._table[0] != entry.table:
                self._table = entry.table, read_table(self._store, entry)
            table = self._table[1]
            raw, _ = read_file(self._root / name, Decoding(max_bytes=table.marks[row].size))
            return raw if hashlib.sha256(raw).hexdigest() == table.source(row) else None
        return None

    def select(self, places: Places) -> Originals:
        """Those of the images at these places."""
        ids = tuple(self._ids[place] for place in places)
        return Originals(self._store, self._root, self._pixels.select(places), ids)
