"""Image files: one, or a folder of them. These two read what no other source recognises."""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Any

from patchtrace.images.decode import EXTENSIONS, Unreadable
from patchtrace.images.sources.base import Entries, Payload, Reading, Source, shown


class ImageFile(Source):
    """One image file; what it is called does not matter."""

    kind = "an image"
    suffixes = ("",)  # all names
    single = True

    def entries(self, reading: Reading) -> Entries:
        """The file, under its name."""
        return Entries(iter([(shown(self.place.name), self.place)]), 1)


class Folder(Source):
    """Every image file below a folder, sorted by relative path, so that ids and order are stable.

    A linked folder is entered at most once, so that a loop of links ends.
    """

    kind = "a folder"

    @classmethod
    def recognises(cls, place: Any) -> bool:
        """Whether this is a folder."""
        return isinstance(place, Path) and os.path.isdir(place)

    def entries(self, reading: Reading) -> Entries:
        """The files, and the folders that cannot be listed."""
        found: list[tuple[str, Payload]] = []
        links = 0
        seen: set[tuple[int, int]] = set()
        waiting = deque([self.place])
        while waiting:
            directory = waiting.popleft()
            relative = directory.relative_to(self.place)
            try:
                info = directory.stat()
                if (info.st_dev, info.st_ino) in seen:
                    continue
                seen.add((info.st_dev, info.st_ino))
                with os.scandir(directory) as scan:
                    children = sorted(scan, key=lambda child: child.name)
            except OSError as error:
                found.append((shown(relative.as_posix()) + "/", Unreadable(error.strerror or str(error))))
                continue
            for child in children:
                if child.is_symlink() and not reading.follow_symlinks:
                    links += 1
                elif _may_be_folder(child):
                    waiting.append(Path(child.path))
                elif os.path.splitext(child.name)[1].lower() in EXTENSIONS:
                    found.append((shown((relative / child.name).as_posix()), Path(child.path)))
        found.sort(key=lambda entry: entry[0])
        remarks = [f"symbolic links were not followed: {links}"] if links else []
        return Entries(iter(found), len(found), remarks)


def _may_be_folder(child: os.DirEntry[str]) -> bool:
    """Whether there may be images below: also where that cannot be seen, so that entering it fails with the reason.

    The entry itself mostly knows its kind; to ask the system would fail in a folder that can be listed but not entered,
    and beyond the longest path.
    """
    try:
        return child.is_dir()
    except OSError:  # a link that leads to such a place, or in a circle
        return os.path.splitext(child.name)[1].lower() not in EXTENSIONS
