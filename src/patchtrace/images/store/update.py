"""One run of the writer: what is known stays, what is new is decoded, and then the new state takes the old one's place.

A resumed run is nothing special. The shards in the journal are known like those of the manifest, and an image is taken
from whichever has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, Skipped, Unreadable
from patchtrace.images.pixels import fingerprint
from patchtrace.images.sources.base import Entries, Opened, Payload, Source, none_readable, total
from patchtrace.images.sources.remote import fetched_ahead
from patchtrace.images.store import shards
from patchtrace.images.store.compact import compacted
from patchtrace.images.store.item import Item, items
from patchtrace.images.store.known_rows import KnownRows
from patchtrace.images.store.manifest import JOURNAL, Journal, Manifest, Origin, ShardEntry
from patchtrace.images.store.pixels import StorePixels
from patchtrace.images.store.pool import Pool, Task
from patchtrace.progress import Watch


@dataclass(frozen=True)
class Updated:
    """What an update has done, in images."""

    kept: int
    added: int
    changed: int
    removed: int
    skipped: tuple[Skipped, ...]
    remarks: tuple[str, ...]
    #: Shards that were damaged, and whose images were decoded again.
    repaired: tuple[str, ...]


class Update:
    """Brings a store to what its sources are now. The caller holds the lock.

    Parameters
    ----------
    store : Path
        The store.
    base : Manifest, optional
        The state that is there.
    sources : tuple of str
        The paths and URLs that are read; what an unfinished run with the same ones has done is taken over.
    rules : Decoding
        How files become pixels.
    trusted : bool
        Whether a file with the size and time that are known is taken for the same without reading it.
    shard_images : int, optional
        Most images in a shard.
    """

    def __init__(
        self,
        store: Path,
        base: Manifest | None,
        sources: tuple[str, ...],
        rules: Decoding,
        trusted: bool,
        shard_images: int | None = None,
    ) -> None:
        self.store, self.base, self.rules, self.trusted = store, base, rules, trusted
        self._journal = Journal.read(store, base.sha256 if base else "", sources, rules)
        self._known = KnownRows(store, base, self._journal)
        self._builder = shards.ShardBuilder(store, self._known.shape, shard_images or shards.SHARD_IMAGES)
        self._skipped: list[Skipped] = []
        self._changed = 0

    def files(
        self, origins: tuple[Origin, ...], found: list[Source], read: list[Entries], pool: Pool, progress: Watch
    ) -> None:
        """Take the images of these sources, which have these entries."""
        images = (
            item
            for origin, source, entries in zip(origins, found, read, strict=True)
            if not self.unchanged(origin)
            for item in items(entries, origin.path if source.packed else "")
        )
        for done, task in enumerate(pool.run(self._tasks(images)), start=1):
            self._settle(task)
            progress(done, total(read) or 0)

    def array(self, origin: Origin, images: Opened, progress: Watch) -> None:
        """Take images that are pixels already; as there is no file of each, the pixels stand for it."""
        if images.pixels.dtype != np.uint8:
            raise PatchtraceError(f"the array holds {images.pixels.dtype}: a store is for pictures, in uint8")
        channels, height, width = images.pixels.shape[1:]
        self._builder.expect((channels, height, width))
        for index, name in enumerate(images.ids):
            pixels = np.ascontiguousarray(images.pixels[index]).tobytes()
            digest = hashlib.sha256(pixels).hexdigest()
            item = Item(name, b"", len(pixels), "", origin.path)
            if not self._known.take_same(item, digest, len(pixels), ""):
                self._add(item, pixels, digest, digest, len(pixels), "")
            progress(index + 1, len(images.ids))

    def commit(
        self, origins: tuple[Origin, ...], options: dict[str, Any], decoding: Decoding | None, remarks: list[str]
    ) -> Updated:
        """Write what is left to write, and then the manifest."""
        self._flush()
        entries = [entry for entry in self._known.entries() if entry.live] + list(self._builder.written)
        shape = self._builder.shape
        if not entries or shape is None:
            raise none_readable(self._skipped, remarks)
        entries = compacted(self.store, entries, shape, self._builder.limit)
        before = self.base.count if self.base else 0
        if self.base and tuple(entries) == self.base.shards:
            fingerprint = self.base.fingerprint
        else:
            fingerprint = _fingerprint(self.store, entries, shape)
        manifest = Manifest(
            shape, tuple(entries), decoding, origins, options, tuple(self._skipped), tuple(remarks), fingerprint
        )
        if not self.base or manifest.to_json() != self.base.to_json():
            manifest.write(self.store)
        (self.store / JOURNAL).unlink(missing_ok=True)
        kept = self._known.kept
        return Updated(
            kept,
            manifest.count - kept - self._changed,
            self._changed,
            max(0, before - kept - self._changed),
            manifest.skipped,
            manifest.remarks,
            tuple(self._known.damaged),
        )

    def unchanged(self, origin: Origin) -> bool:
        """Whether an archive, a table or an array file has the size and time that it had; its images are then taken."""
        if not (self.base and self.trusted and origin.stamp and origin in self.base.sources) or self._known.damaged:
            return False
        self._known.take_container(origin.path)
        self._skipped += [item for item in self.base.skipped if item.container == origin.path]
        return True

    def _tasks(self, images: Iterator[Item]) -> Iterator[Task]:
        """What there is to do for each image, with remote files fetched some time ahead."""
        for task, content in fetched_ahead(map(self._task, images), _payload, self.rules):
            if isinstance(content, Unreadable):
                task.answer = {"reason": str(content)}
            elif isinstance(content, Path | bytes):
                task.payload = content
            yield task

    def _task(self, item: Item) -> Task:
        if self.trusted and item.stamp:
            if self._known.take_unchanged(item):
                return Task(None, item, answer={})
            before = self._known.skipped.get(item.id)
            if before and (before.size, before.stamp) == (item.size, item.stamp):
                return Task(None, item, answer={"reason": before.reason})
        return Task(None, item, self._known.hashes(item.id))

    def _settle(self, task: Task) -> None:
        item, answer = task.carry, task.answer
        assert isinstance(item, Item)
        assert answer is not None
        size, stamp = answer.get("size", item.size), answer.get("stamp", item.stamp)
        if "reason" in answer:
            self._skipped.append(
                Skipped(item.id, answer["reason"], "collection", item.size, item.stamp, item.container)
            )
        elif "pixels" in answer:
            self._builder.expect(tuple(answer["shape"]), item.id)
            self._add(item, task.pixels, answer["source"], answer["pixels"], size, stamp)
        elif "source" in answer and not self._known.take_same(item, answer["source"], size, stamp):
            # the only image with this content is taken: the source has it twice by now
            pixels = self._known.pixels_of(item.id, answer["source"])
            self._add(item, pixels, answer["source"], hashlib.sha256(pixels).hexdigest(), size, stamp)

    def _add(self, item: Item, pixels: bytes, source: str, digest: str, size: int, stamp: str) -> None:
        self._changed += self._known.was_there(item.id)
        if self._builder.add(pixels, (item.id, source, digest, size, stamp, item.container)):
            self._record()

    def _flush(self) -> None:
        if self._builder.flush():
            self._record()

    def _record(self) -> None:
        """From here on a kill costs nothing of what was written."""
        written = self._journal.shards + tuple(self._builder.written)
        journal = replace(self._journal, shape=self._builder.shape, shards=written, skipped=tuple(self._skipped))
        journal.write(self.store)


def _payload(task: Task) -> Payload:
    """What is to be decoded; nothing for a task that has an answer already."""
    payload: Payload = task.carry.payload
    return payload if task.answer is None else b""


def _fingerprint(store: Path, entries: list[ShardEntry], shape: tuple[int, int, int]) -> str:
    """That of the same images in memory. Reads all of them, which also sees that they are what was written."""
    return fingerprint(StorePixels.of(store, entries, shape), shards.live_ids(store, entries))


def default_jobs() -> int:
    """One for each core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
