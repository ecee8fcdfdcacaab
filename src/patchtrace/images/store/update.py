"""One run of the writer: what is known stays, what is new is decoded, and then the new state takes the old one's place.

A resumed run is nothing special. The shards in the journal are known like those of the manifest, and an image is taken
from whichever has it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding, Skipped, Unreadable
from patchtrace.images.encoding import Encoding, PixelType
from patchtrace.images.pixels import fingerprint
from patchtrace.images.shapes import framed
from patchtrace.images.sources.base import Payload, Reading, find, joined, none_readable, parts, with_crop
from patchtrace.images.sources.remote import fetched_ahead
from patchtrace.images.store import shards
from patchtrace.images.store.compact import compacted
from patchtrace.images.store.item import Task, origin_of, tasks
from patchtrace.images.store.known_rows import KnownRows
from patchtrace.images.store.manifest import JOURNAL, Journal, Manifest, Marks, Origin, dtype_of
from patchtrace.images.store.pixels import StorePixels
from patchtrace.images.store.pool import Pool
from patchtrace.images.store.reader import is_store
from patchtrace.latents import Autoencoder
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


@dataclass(eq=False)
class Update:
    """Brings a store to what its sources are now. The caller holds the lock.

    Parameters
    ----------
    store : Path
        The store.
    base : Manifest, optional
        The state that is there.
    paths : tuple of str
        The paths and URLs that are read; what an unfinished run with the same ones has done is taken over.
    options : dict
        ``key``, ``layout`` and ``follow_symlinks``, as for ``ImageSet.open``.
    rules : Decoding
        How files become pixels.
    trusted : bool
        Whether a file with the size and time that are known is taken for the same without reading it.
    shard_images : int, optional
        Most images in a shard.
    autoencoder : Autoencoder, optional
        The one whose latents are kept, in place of pixels.
    """

    store: Path
    base: Manifest | None
    paths: tuple[str, ...]
    options: dict[str, Any]
    rules: Decoding
    trusted: bool
    shard_images: int | None = None
    autoencoder: Autoencoder | None = None

    def __post_init__(self) -> None:
        self.found = find(list(self.paths))
        # before they are read: a change from here on is seen by the next update
        self.origins = tuple(map(origin_of, self.found))
        # an update has the crop of the first run; the remark on it is made again
        cut, self._remarks = with_crop(self.found, replace(self.rules, crop=None) if self.base else self.rules)
        if not self.base:
            self.rules = cut
        elif cut != self.rules:
            self._remarks = []
        self.rules = self.rules.for_latents(self.autoencoder)
        self._frame = self.rules.frame_of(self.autoencoder)
        self._latents = None if self.autoencoder is None else self.autoencoder.record()
        base = self.base.sha256 if self.base else ""
        self._journal = Journal.read(self.store, base, self.paths, self.rules, self._latents)
        self._known = KnownRows(self.store, self.base, self._journal)
        most = self.shard_images or shards.SHARD_IMAGES
        self._builder = shards.ShardBuilder(self.store, self._known.shape, most, dtype_of(self._latents))
        self._encoding = Encoding(self.autoencoder)
        self._skipped: list[Skipped] = []
        self._changed = 0

    def run(self, jobs: int, timeout: float, memory: int, progress: Watch) -> Updated:
        """Read the sources, write what is new, and then the manifest."""
        reading = Reading(**self.options, rules=self.rules, timeout=timeout)
        if len(self.found) == 1 and self.found[0].own_size:
            return self._commit(self._array(reading, progress))
        read = parts(self.found, reading)
        self._remarks += joined(read).remarks
        total = joined(read).count or 0
        images = (
            task
            for origin, source, entries in zip(self.origins, self.found, read, strict=True)
            if not self._unchanged(origin)
            for task in tasks(entries, origin.path if source.packed else "")
        )
        with Pool(self.rules, jobs, timeout, memory) as pool:
            for done, task in enumerate(pool.run(self._prepared(images)), start=1):
                self._settle(task)
                progress(done, total)
        return self._commit(self.rules)

    def _array(self, reading: Reading, progress: Watch) -> Decoding | None:
        """Take images that are pixels already; as there is no file of each, the pixels stand for it."""
        origin = self.origins[0]
        if is_store(Path(origin.path)):
            raise PatchtraceError(f"{origin.path!r} is a store already: open it as it is")
        if self._unchanged(origin):
            return self.base.decoding if self.base else None
        images = self.found[0].opened(reading)
        if images.pixels.dtype != np.uint8:
            raise PatchtraceError(f"the array holds {images.pixels.dtype}: a store is for pictures, in uint8")
        for index, name in enumerate(images.ids):
            height, width = images.pixels.shape[2:] if images.extents is None else images.extents[index]
            pixels = np.ascontiguousarray(images.pixels[index][:, :height, :width])
            digest = hashlib.sha256(pixels.data).hexdigest()
            task = Task(name, b"", Marks(pixels.nbytes, container=origin.path))
            if not self._known.take(task, digest):
                self._make(task, pixels, digest, digest)
            progress(index + 1, len(images.ids))
        return images.decoding

    def _unchanged(self, origin: Origin) -> bool:
        """Whether an archive, a table or an array file has the size and time that it had; its images are then taken."""
        if not (self.base and self.trusted and origin.stamp and origin in self.base.sources) or self._known.damaged:
            return False
        self._known.take_container(origin.path)
        self._skipped += [item for item in self.base.skipped if item.container == origin.path]
        return True

    def _prepared(self, images: Iterator[Task]) -> Iterator[Task]:
        """The images in order, some with an answer already; remote files are fetched some time ahead."""
        for task, content in fetched_ahead(map(self._asked, images), self.rules):
            if isinstance(content, Unreadable):
                task.answer = {"reason": str(content)}
            elif isinstance(content, Path | bytes):
                task.payload = content
            yield task

    def _asked(self, task: Task) -> tuple[Task, Payload]:
        """An image and what there is to decode; nothing where it is known what became of it."""
        if self.trusted and task.marks.stamp:
            before = self._known.skipped.get(task.id)
            if self._known.take(task):
                task.answer = {}
            elif before and (before.size, before.stamp) == task.marks[:2]:
                task.answer = {"reason": before.reason}
        task.known = self._known.hashes(task.id) if task.answer is None else ()
        return task, task.payload if task.answer is None else b""

    def _settle(self, task: Task) -> None:
        answer = task.answer or {}
        if "reason" in answer:
            self._skipped.append(Skipped(task.id, answer["reason"], "collection", *task.marks))
            return
        task.marks = task.marks._replace(**{name: answer[name] for name in ("size", "stamp") if name in answer})
        if "pixels" in answer:
            pixels = np.frombuffer(task.pixels, np.uint8).reshape(answer["shape"])
            task.pixels = b""
            self._make(task, pixels, answer["source"], answer["pixels"])
        elif "source" in answer and not self._known.take(task, answer["source"]):
            # the only image with this content is taken: the source has it twice by now
            known, extent = self._known.pixels_of(task.id, answer["source"])
            self._add(task, known, answer["source"], hashlib.sha256(known).hexdigest(), extent)

    def _make(self, task: Task, pixels: NDArray[np.uint8], source: str, digest: str) -> None:
        """Add a picture, or its latents as soon as they are made; ``digest`` is that of its pixels in any case."""
        channels, height, width = pixels.shape
        if self.autoencoder is not None:
            channels = self.autoencoder.channels
            height, width = self.autoencoder.latent_size((height, width))
        self._builder.expect((channels, *(self._frame or (height, width))), task.id)
        self._take(self._encoding.add((task, source, digest), pixels))

    def _take(self, made: Iterable[tuple[tuple[Task, str, str], PixelType]]) -> None:
        for (task, source, digest), pixels in made:
            if self._frame is None:
                self._add(task, pixels.tobytes(), source, digest)
            else:
                height, width = pixels.shape[1:]
                self._add(task, framed(pixels, self._frame).tobytes(), source, digest, (height, width))

    def _add(self, task: Task, pixels: bytes, source: str, digest: str, extent: tuple[int, int] | None = None) -> None:
        self._changed += self._known.was_there(task.id)
        if self._builder.add(task, pixels, source, digest, extent):
            self._record()

    def _record(self) -> None:
        """From here on a kill costs nothing of what was written."""
        written = self._journal.shards + tuple(self._builder.written)
        journal = replace(self._journal, shape=self._builder.shape, shards=written, skipped=tuple(self._skipped))
        journal.write(self.store)

    def _commit(self, decoding: Decoding | None) -> Updated:
        """Write what is left to write, and then the manifest."""
        self._take(self._encoding.rest())
        if self._builder.flush():
            self._record()
        shape, entries = self._builder.shape, self._known.entries() + self._builder.written
        if not entries or shape is None:
            raise none_readable(self._skipped, self._remarks)
        entries = compacted(self.store, entries, shape, dtype_of(self._latents), self._builder.limit)
        if self.base and tuple(entries) == self.base.shards:
            digest = self.base.fingerprint
        else:  # that of the same images in memory; reads all of them, which also sees that they are what was written
            pixels = StorePixels.of(self.store, entries, shape, dtype_of(self._latents))
            extents = None if self._frame is None else shards.live_extents(self.store, entries, shape)
            digest = fingerprint(pixels, shards.live_ids(self.store, entries), extents)
        skipped, remarks = tuple(self._skipped), tuple(self._remarks)
        manifest = Manifest(
            shape, tuple(entries), decoding, self.origins, self.options, skipped, remarks, digest, self._latents
        )
        if not self.base or manifest.record() != self.base.record():
            manifest.write(self.store)
        (self.store / JOURNAL).unlink(missing_ok=True)
        kept, changed, before = self._known.kept, self._changed, self.base.count if self.base else 0
        added, removed = manifest.count - kept - changed, max(0, before - kept - changed)
        return Updated(kept, added, changed, removed, skipped, remarks, tuple(self._known.damaged))
