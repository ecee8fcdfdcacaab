"""One run of the writer: what is known stays, what is new is decoded, and then the new state takes the old one's place.

A resumed run is nothing special. The shards in the journal are known like those of the manifest, and an image is taken
from whichever has it.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, Unreadable
from patchtrace.images.imageset import ImageSet
from patchtrace.images.store import shards
from patchtrace.images.store.compact import compacted
from patchtrace.images.store.items import Item, Part, Remote
from patchtrace.images.store.known import Builder, Known
from patchtrace.images.store.manifest import JOURNAL, Journal, Lost, Manifest, ShardEntry, Source
from patchtrace.images.store.pool import Pool, Task
from patchtrace.progress import Progress

#: How many remote files are fetched at a time.
_FETCHES = 16


@dataclass(frozen=True)
class Updated:
    """What an update has done, in images."""

    kept: int
    added: int
    changed: int
    removed: int
    skipped: tuple[Lost, ...]
    remarks: tuple[str, ...]
    #: Shards that were damaged, and whose images were decoded again.
    repaired: tuple[str, ...]


class Update:
    """Brings a store to what its sources are now. The caller holds the lock.

    Parameters
    ----------
    base : Manifest, optional
        The state that is there.
    journal : Journal
        What an unfinished run has done.
    known, builder : Known and Builder
        The rows to take from, and where others are added.
    rules : Decoding
    trusted : bool
        Whether a file with the size and time that are known is taken for the same without reading it.
    """

    def __init__(
        self,
        base: Manifest | None,
        journal: Journal,
        known: Known,
        builder: Builder,
        rules: Decoding,
        trusted: bool,
    ) -> None:
        self.store, self.base, self.rules, self.trusted = known.store, base, rules, trusted
        self._journal, self._known, self._builder = journal, known, builder
        self._lost: list[Lost] = []
        self._changed = 0

    @classmethod
    def begin(
        cls,
        store: Path,
        base: Manifest | None,
        sources: tuple[str, ...],
        rules: Decoding,
        trusted: bool,
        shard_images: int | None = None,
    ) -> Update:
        """Read what is there, and what an unfinished run with the same sources and rules has left."""
        journal = Journal.read(store, base.sha256 if base else "", sources, rules)
        known = Known.read(store, base, journal)
        builder = Builder(store, known.shape, shard_images or shards.SHARD_IMAGES)
        return cls(base, journal, known, builder, rules, trusted)

    def files(self, parts: list[Part], pool: Pool, progress: Progress | None) -> None:
        """Take the images of these sources."""
        counts = [part.count for part in parts]
        total = sum(count for count in counts if count is not None) if None not in counts else 0
        items = (item for part in parts if not self.unchanged(part.source) for item in part.items)
        for done, task in enumerate(pool.run(self._tasks(items)), start=1):
            self._settle(task)
            if progress:
                progress(done, total)

    def array(self, source: Source, images: ImageSet, progress: Progress | None) -> None:
        """Take images that are pixels already; as there is no file of each, the pixels stand for it."""
        if images.pixels.dtype != np.uint8:
            raise PatchtraceError(f"the array holds {images.pixels.dtype}: a store is for pictures, in uint8")
        self._builder.expect(images.shape)
        for index, name in enumerate(images.ids):
            pixels = np.ascontiguousarray(images.pixels[index]).tobytes()
            digest = hashlib.sha256(pixels).hexdigest()
            item = Item(name, b"", len(pixels), "", source.path)
            if not self._known.take_same(item, digest, len(pixels), ""):
                self._add(item, pixels, digest, digest, len(pixels), "")
            if progress:
                progress(index + 1, len(images))

    def commit(
        self, sources: tuple[Source, ...], options: dict[str, Any], decoding: Decoding | None, remarks: list[str]
    ) -> Updated:
        """Write what is left to write, and then the manifest."""
        self._flush()
        entries = [entry for entry in self._known.entries() if entry.live] + list(self._builder.written)
        shape = self._builder.shape
        if not entries or shape is None:
            lines = [f"{lost.id}: {lost.reason}" for lost in self._lost[:5]] + [f"({remark})" for remark in remarks]
            counted = f"; {len(self._lost)} were unreadable" if self._lost else ""
            raise PatchtraceError("\n  ".join([f"no readable image was found{counted}", *lines]))
        entries = compacted(self.store, entries, shape, self._builder.limit)
        before = self.base.count if self.base else 0
        if self.base and tuple(entries) == self.base.shards:
            fingerprint = self.base.fingerprint
        else:
            fingerprint = _fingerprint(self.store, entries, shape)
        manifest = Manifest(
            shape, tuple(entries), decoding, sources, options, tuple(self._lost), tuple(remarks), fingerprint
        )
        if manifest != self.base:
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

    def unchanged(self, source: Source) -> bool:
        """Whether an archive, a table or an array file has the size and time that it had; its images are then taken."""
        if not (self.base and self.trusted and source.stamp and source in self.base.sources) or self._known.damaged:
            return False
        self._known.take_container(source.path)
        self._lost += [lost for lost in self.base.skipped if lost.container == source.path]
        return True

    def _tasks(self, items: Iterator[Item]) -> Iterator[Task]:
        """What there is to do for each image, with remote files fetched some time ahead."""
        ahead: deque[tuple[Task, Future[bytes | Unreadable] | None]] = deque()
        with ThreadPoolExecutor(_FETCHES) as fetchers:
            for item in items:
                task = self._task(item)
                if isinstance(item.payload, Remote) and task.answer is None:
                    ahead.append((task, fetchers.submit(item.payload.read, self.rules)))
                else:
                    ahead.append((task, None))
                while ahead and (ahead[0][1] is None or len(ahead) >= _FETCHES):
                    yield _fetched(*ahead.popleft())
            while ahead:
                yield _fetched(*ahead.popleft())

    def _task(self, item: Item) -> Task:
        if isinstance(item.payload, Unreadable):
            return Task(None, item, answer={"reason": str(item.payload)})
        if self.trusted and item.stamp:
            if self._known.take_unchanged(item):
                return Task(None, item, answer={})
            lost = self._known.lost.get(item.id)
            if lost and (lost.size, lost.stamp) == (item.size, item.stamp):
                return Task(None, item, answer={"reason": lost.reason})
        payload = None if isinstance(item.payload, Remote) else item.payload
        return Task(payload, item, self._known.hashes(item.id))

    def _settle(self, task: Task) -> None:
        item, answer = task.carry, task.answer
        assert isinstance(item, Item)
        assert answer is not None
        size, stamp = answer.get("size", item.size), answer.get("stamp", item.stamp)
        if "reason" in answer:
            self._lost.append(Lost(item.id, answer["reason"], item.size, item.stamp, item.container))
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
        journal = replace(self._journal, shape=self._builder.shape, shards=written, skipped=tuple(self._lost))
        journal.write(self.store)


def _fetched(task: Task, future: Future[bytes | Unreadable] | None) -> Task:
    if future is not None:
        content = future.result()
        if isinstance(content, Unreadable):
            task.answer = {"reason": str(content)}
        else:
            task.payload = content
    return task


def _fingerprint(store: Path, entries: list[ShardEntry], shape: tuple[int, int, int]) -> str:
    """That of the same images in memory. Reads all of them, which also sees that they are what was written."""
    ids: list[str] = []
    for entry in entries:
        names = shards.read_table(store, entry).ids
        for start, stop in entry.live:
            ids += names[start:stop]
    return ImageSet(shards.StorePixels.of(store, entries, shape), tuple(ids)).fingerprint()


def default_jobs() -> int:
    """One for each core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
