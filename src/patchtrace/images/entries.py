"""Images out of files: decoded one by one, brought to the rules, and gathered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.errors import PatchtraceError
from patchtrace.images import contained
from patchtrace.images.decode import Decoding, Skipped, Unreadable, decode
from patchtrace.images.encoding import Encoding, PixelType
from patchtrace.images.folder_files import FolderFiles
from patchtrace.images.gathered import Gathered
from patchtrace.images.pixels import ArrayPixels
from patchtrace.images.shapes import framed
from patchtrace.images.sources.base import Entries, Opened, none_readable
from patchtrace.images.sources.remote import fetched_ahead
from patchtrace.images.store.item import Task
from patchtrace.images.store.pool import Pool, default_jobs
from patchtrace.latents import Autoencoder
from patchtrace.progress import Watch


def decoded_entries(
    entries: Entries,
    rules: Decoding,
    limit: int | None,
    timeout: float,
    autoencoder: Autoencoder | None,
    progress: Watch,
) -> Opened:
    """Decode the entries of sources, in other processes, and encode them if an autoencoder is given."""
    pictures, extents = Gathered(), list[tuple[int, ...]]()
    encoding, first = Encoding(autoencoder), None
    frame = rules.frame_of(autoencoder)

    def take(ready: Iterable[tuple[Any, PixelType]]) -> None:
        for _, made in ready:
            if frame is not None:
                extents.append(made.shape[1:])
                made = framed(made, frame)
            pictures.add([made])

    ids: list[str] = []
    files: list[Path | None] = []
    hashes: list[str] = []
    skipped: list[Skipped] = []
    with Pool(rules, default_jobs(), timeout) as pool:
        for task in pool.run(_tasks(entries, rules)):
            answer = task.answer or {}
            if "reason" in answer:
                skipped.append(Skipped(task.id, answer["reason"]))
            else:
                pixels = np.frombuffer(task.pixels, np.uint8).reshape(answer["shape"])
                first = first or pixels.shape
                if pixels.shape != first and frame is None:
                    (_, h0, w0), (_, h1, w1) = first, pixels.shape
                    raise PatchtraceError(
                        f"the images differ in size: {ids[0]} has {w0} x {h0} pixels and {task.id} has {w1} x {h1}. "
                        "Set size= (--size) to bring them to one size"
                    )
                take(encoding.add(None, pixels))
                ids.append(task.id)
                files.append(task.payload if isinstance(task.payload, Path) else None)
                hashes.append(answer["source"])
            progress(len(ids) + len(skipped), entries.count or 0)
            if len(ids) == limit:
                break
    if not ids:
        raise none_readable(skipped, entries.remarks)
    take(encoding.rest())
    known = FolderFiles(files, hashes) if any(files) else ()
    remarks = tuple(entries.remarks)
    own = None if frame is None else np.array(extents, np.int32)
    return Opened(
        pictures.array().view(ArrayPixels), tuple(ids), tuple(skipped), rules, remarks, known, autoencoder, own
    )


def _tasks(entries: Entries, rules: Decoding) -> Iterator[Task]:
    """The images to decode in other processes. Those that Pillow has open cannot be sent, and are decoded here."""
    for (name, _), content in fetched_ahead(((entry, entry[1]) for entry in entries.stream), rules):
        if isinstance(content, Path | bytes) and contained.CONTAINED:
            yield Task(name, content)
            continue
        task = Task(name, content if isinstance(content, Path) else b"")
        try:
            pixels = decode(content, rules)
        except Unreadable as reason:
            task.answer = {"reason": str(reason)}
        else:
            task.answer, task.pixels = {"shape": pixels.shape, "source": ""}, pixels.tobytes()
        yield task
