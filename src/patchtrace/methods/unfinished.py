"""Work that a killed run has done, kept until the run is over."""

from __future__ import annotations

import time
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.files import replacing

#: What a run that is killed may lose, besides the comparison it is at.
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

    def load(self) -> dict[str, NDArray[Any]] | None:
        """What was kept; nothing if there is nothing, or if it is damaged."""
        for half_written in self.path.parent.glob(f".{self.path.name}.*"):
            half_written.unlink(missing_ok=True)
        try:
            with np.load(self.path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            warnings.warn(f"unfinished work in {str(self.path)!r} is damaged and done again ({error})", stacklevel=2)
            return None
