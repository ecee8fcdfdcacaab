"""The files that images were decoded from, as long as they are what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from patchtrace.images.decode import Decoding, Unreadable, read_file
from patchtrace.images.pixels import Places


class FolderFiles(Sequence["bytes | None"]):
    """Content of the file of each image; None where there is no file, or it has changed since.

    Parameters
    ----------
    paths : sequence of Path or None
        Where each file is.
    hashes : sequence of str
        SHA-256 of what was decoded.
    """

    def __init__(self, paths: Sequence[Path | None], hashes: Sequence[str]) -> None:
        self.paths, self._hashes = paths, hashes

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        path = self.paths[index]
        try:
            content = b"" if path is None else read_file(path, Decoding())[0]
        except (OSError, Unreadable):
            return None
        return content if hashlib.sha256(content).hexdigest() == self._hashes[index] else None

    def path(self, index: int) -> Path | None:
        """The path of the file of an image."""
        return self.paths[index]

    def select(self, places: Places) -> FolderFiles:
        """Those of the images at these places."""
        return FolderFiles([self.paths[place] for place in places], [self._hashes[place] for place in places])


class JoinedFiles(Sequence["bytes | None"]):
    """The files of one set, and behind them those of another."""

    def __init__(self, *parts: tuple[Sequence[Any], int]) -> None:
        self._places = [(files if files else None, n) for files, count in parts for n in range(count)]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.select(np.arange(len(self))[index])
        files, place = self._places[index]
        return None if files is None else files[place]

    def path(self, index: int) -> Path | None:
        """The path of the file of an image of a folder."""
        files, place = self._places[index]
        return files.path(place) if isinstance(files, FolderFiles) else None

    def select(self, places: Places) -> JoinedFiles:
        """Those of the images at these places."""
        found = JoinedFiles()
        found._places = [self._places[place] for place in places]
        return found
