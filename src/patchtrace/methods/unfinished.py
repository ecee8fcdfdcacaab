"""Work that a killed run has done, kept until the run is over."""

from __future__ import annotations

import re
import time
import warnings
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.files import replacing

#: What a run that is killed may lose, besides the draws it is at.
SECONDS_BETWEEN_SAVES = 10.0


class Unfinished:
    """The place of one query's unfinished work: a file that is either whole or not there.

    Parameters
    ----------
    directory : Path
        Made when there is something to keep.
    fingerprint : str
        Of everything that the numbers depend on. Work under another fingerprint is not found.
    """

    def __init__(self, directory: Path, fingerprint: str) -> None:
        self.path = directory / f"{fingerprint[:32]}.npz"
        self._saved = time.monotonic()

    def due(self) -> bool:
        """Whether the last time is long enough ago."""
        return time.monotonic() - self._saved > SECONDS_BETWEEN_SAVES

    def save(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **state)
        self._saved = time.monotonic()

    def load(self, like: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]] | None:
        """What was kept, if it has the names and shapes of this; nothing if there is nothing, or if it is damaged."""
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in archive.files}
            if {name: one.shape for name, one in found.items()} != {name: one.shape for name, one in like.items()}:
                raise ValueError("it holds something else")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            warnings.warn(f"unfinished work in {str(self.path)!r} is damaged and done again ({error})", stacklevel=2)
            return None
        return found


def clear(directory: Path) -> None:
    """Delete the unfinished work in a directory, and nothing else that may be in it."""
    if not directory.is_dir():
        return
    for path in directory.iterdir():
        if re.fullmatch(r"\.?[0-9a-f]{32}\.npz(\..*)?", path.name):
            path.unlink(missing_ok=True)
    with suppress(OSError):  # somebody else's files are in it
        directory.rmdir()
