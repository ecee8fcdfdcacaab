"""An image to index: its id, where its bytes are, by what a change of its file is noticed, and what became of it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.base import Entries, RemoteFile, Source
from patchtrace.images.store.manifest import NO_MARKS, Marks, Origin
from patchtrace.images.store.worker import RECENT, stamp_of


@dataclass(eq=False)
class Task:
    """An image to decode, or a place in the order with an answer already."""

    id: str
    payload: Path | bytes | RemoteFile | Unreadable
    marks: Marks = NO_MARKS
    #: Hashes of files that need not be decoded again.
    known: tuple[str, ...] = ()
    #: Sizes to decode at instead of that of the rules: heights and widths.
    sizes: tuple[tuple[int, int], ...] = ()
    answer: dict[str, Any] | None = None
    pixels: bytes = b""


def origin_of(source: Source) -> Origin:
    """A source as the manifest has it; an archive, a table or an array file with its length and time.

    A time of this very moment is left out: the file may change once more without its time showing it.
    """
    if not source.packed:
        return Origin(source.address)
    marks = _marks(source.place)
    fresh = marks.stamp and time.time_ns() - int(marks.stamp.partition(" ")[0]) < RECENT
    return Origin(source.address, marks.size, "" if fresh else marks.stamp)


def tasks(entries: Entries, container: str) -> Iterator[Task]:
    """The images of a source as an update takes them; of an archive or a table, with its path as ``container``."""
    for name, payload in entries.stream:
        if isinstance(payload, Path):
            yield Task(name, payload, _marks(payload))
        elif isinstance(payload, RemoteFile):
            yield Task(name, payload, Marks(payload.size, payload.stamp))
        elif isinstance(payload, Image.Image):
            yield Task(name, Unreadable("an open picture: a store is made from files and bytes"))
        else:
            length = len(payload) if isinstance(payload, bytes) else -1
            yield Task(name, payload, Marks(length, container=container))


def _marks(path: Path) -> Marks:
    try:
        info = os.stat(path)
    except OSError:  # reading it will fail with the reason
        return NO_MARKS
    return Marks(info.st_size, stamp_of(info))
