"""What there is to index: an id for each image, where its bytes are, and by what a change would be seen."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from patchtrace.errors import PatchtraceError
from patchtrace.images import sources
from patchtrace.images.decode import EXTENSIONS, Decoding, Unreadable
from patchtrace.images.store.manifest import Source
from patchtrace.images.store.worker import RECENT


@dataclass(frozen=True)
class Remote:
    """A file behind an fsspec URL."""

    system: Any
    path: str
    size: int

    def read(self, rules: Decoding) -> bytes | Unreadable:
        """Its bytes, or why they cannot be had."""
        if self.size > rules.max_bytes:
            return Unreadable(f"{self.size} bytes, more than the limit of {rules.max_bytes}")
        try:
            return bytes(self.system.cat_file(self.path, start=0, end=rules.max_bytes + 1))
        except Exception as error:  # each file system has errors of its own
            return Unreadable(f"cannot be fetched: {str(error) or type(error).__name__}")


@dataclass(frozen=True)
class Item:
    """An image that may have to be decoded."""

    id: str
    payload: Path | bytes | Remote | Unreadable
    size: int = -1
    #: What changes when the file does, such as its time; empty where nothing tells.
    stamp: str = ""
    container: str = ""


@dataclass(frozen=True)
class Part:
    """The images of one source."""

    source: Source
    items: Iterator[Item]
    count: int | None = None
    remarks: list[str] = field(default_factory=list)


def is_url(path: object) -> bool:
    """Whether this is for fsspec.

    >>> is_url("s3://bucket/photos"), is_url("photos/a:b.png")
    (True, False)
    """
    return isinstance(path, str) and "://" in path


def named(path: str | os.PathLike[str]) -> str:
    """A source as the manifest has it: in full, so that it is found from anywhere."""
    if not os.fspath(path):
        raise PatchtraceError("the path is empty: '.' is the current folder")
    return str(path) if is_url(path) else os.path.abspath(path)


def parts_of(paths: Sequence[str], key: str | None, follow_symlinks: bool, rules: Decoding) -> list[Part]:
    """The images of each of these sources, with the ids that ``ImageSet.open`` gives them."""
    if any(is_url(path) for path in paths):
        if len(paths) > 1:
            raise PatchtraceError("give a URL alone, not in a list")
        return [_remote_folder(paths[0])]
    local = [Path(path) for path in paths]
    parts = []
    for path, entries in zip(local, sources.parts_of_paths(local, key, follow_symlinks, rules), strict=True):
        packed = not os.path.isdir(path) and path.name.lower().endswith(sources.TAR_SUFFIXES + sources.TABLE_SUFFIXES)
        source = container_of(path) if packed else Source(str(path))
        parts.append(Part(source, _items(entries, source.path if packed else ""), entries.count, entries.remarks))
    return parts


def stat_of(path: Path) -> Source:
    """A file with its length and time."""
    try:
        info = path.stat()
    except OSError:  # whoever reads it will say why
        return Source(str(path))
    return Source(str(path), info.st_size, str(info.st_mtime_ns))


def container_of(path: Path) -> Source:
    """An archive, a table or an array file, with what tells a change; nothing tells one of this very moment."""
    found = stat_of(path)
    fresh = found.stamp and time.time_ns() - int(found.stamp) < RECENT
    return replace(found, stamp="") if fresh else found


def _items(entries: sources.Entries, container: str) -> Iterator[Item]:
    for name, payload in entries.stream:
        assert isinstance(payload, Path | bytes | Unreadable)
        if isinstance(payload, Path):
            found = stat_of(payload)
            yield Item(name, payload, found.size, found.stamp)
        else:
            yield Item(name, payload, len(payload) if isinstance(payload, bytes) else -1, "", container)


def _remote_folder(url: str) -> Part:
    try:
        fsspec = import_module("fsspec")
    except ImportError as error:
        raise PatchtraceError(f"{url} needs fsspec: install it with  pip install 'patchtrace[remote]'") from error
    try:
        system, root = fsspec.core.url_to_fs(url)
        found = system.find(root, detail=True)
    except Exception as error:  # an unknown protocol, a missing driver, no network, no permission
        raise PatchtraceError(f"cannot list {url}: {str(error) or type(error).__name__}") from error
    prefix = root.rstrip("/") + "/"
    items = []
    for path, info in found.items():
        if os.path.splitext(path)[1].lower() in EXTENSIONS and path.startswith(prefix):
            size = info.get("size")
            stamps = [info.get(name) for name in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")]
            stamp = next((str(known) for known in stamps if known is not None), "")
            remote = Remote(system, path, -1 if size is None else int(size))
            items.append(Item(sources.shown(path.removeprefix(prefix)), remote, remote.size, stamp))
    if not items:
        raise PatchtraceError(f"no image was found at {url}: give the URL of a folder with image files below it")
    items.sort(key=lambda item: item.id)
    return Part(Source(url), iter(items), len(items))
