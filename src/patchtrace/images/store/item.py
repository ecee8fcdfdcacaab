"""An image to index: its id, where its bytes are, and by what a change of its file is noticed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from patchtrace.images.decode import Unreadable
from patchtrace.images.sources.base import Entries, RemoteFile, Source
from patchtrace.images.store.manifest import Origin
from patchtrace.images.store.worker import RECENT


@dataclass(frozen=True)
class Item:
    """An image that may have to be decoded."""

    id: str
    payload: Path | bytes | RemoteFile | Unreadable
    size: int = -1
    #: What changes when the file does, such as its time; empty where nothing shows a change.
    stamp: str = ""
    container: str = ""


def origin_of(source: Source) -> Origin:
    """A source as the manifest has it; an archive, a table or an array file with its length and time.

    A time of this very moment is left out: the file may change once more without its time showing it.
    """
    if not source.packed:
        return Origin(source.address)
    size, stamp = _size_and_stamp(source.place)
    fresh = stamp and time.time_ns() - int(stamp) < RECENT
    return Origin(source.address, size, "" if fresh else stamp)


def items(entries: Entries, container: str) -> Iterator[Item]:
    """The images of a source as an update takes them; of an archive or a table, with its path as ``container``."""
    for name, payload in entries.stream:
        if isinstance(payload, Path):
            yield Item(name, payload, *_size_and_stamp(payload))
        elif isinstance(payload, RemoteFile):
            yield Item(name, payload, payload.size, payload.stamp)
        elif isinstance(payload, Image.Image):
            yield Item(name, Unreadable("an open picture: a store is made from files and bytes"))
        else:
            yield Item(name, payload, len(payload) if isinstance(payload, bytes) else -1, "", container)


def _size_and_stamp(path: Path) -> tuple[int, str]:
    try:
        info = os.stat(path)
    except OSError:  # reading it will fail with the reason
        return -1, ""
    return info.st_size, str(info.st_mtime_ns)
