"""Results of long work, kept in files that are named after everything that decided them.

A file is either whole or not there: it is written under another name and renamed. A damaged file is reported once,
as a warning, and treated as missing, so the caller does its work again.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.files import replacing

Arrays = dict[str, NDArray[Any]]


def digest(*facts: Any) -> str:
    """A hash of plain data, the same in every process.

    >>> digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def warn_damaged(what: str, path: Path, reason: object) -> None:
    """Report a damaged file whose content is computed again."""
    warnings.warn(f"{what} in {str(path)!r} is damaged and computed again ({reason})", stacklevel=3)


class Cache:
    """Arrays by key, one ``.npz`` file each. Nothing is pickled.

    Parameters
    ----------
    directory : Path
        Created when there is something to keep. Several processes may share it.
    what : str, default "cached work"
        What the files hold, for the warning about a damaged one.

    Examples
    --------
    >>> import tempfile
    >>> cache = Cache(Path(tempfile.mkdtemp()) / "scores")
    >>> key = digest("nda", {"k": 100})
    >>> cache.load(key) is None
    True
    >>> cache.save(key, scores=np.ones(3))
    >>> cache.load(key)["scores"]
    array([1., 1., 1.])
    """

    def __init__(self, directory: Path, what: str = "cached work") -> None:
        self.directory, self.what = directory, what

    def path(self, key: str) -> Path:
        """The file of a key, whether it exists or not."""
        return self.directory / f"{key[:32]}.npz"

    def __contains__(self, key: str) -> bool:
        return self.path(key).is_file()

    def load(self, key: str, *, like: Mapping[str, tuple[int, ...] | None] | None = None) -> Arrays | None:
        """The arrays of a key, or None if there are none or the file is damaged.

        Parameters
        ----------
        key : str
            A :func:`digest`.
        like : mapping of name to shape, optional
            What the file must hold; anything else counts as damage. A shape that is None may be any.
        """
        path = self.path(key)
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
                # nothing here is compressed: what claims to be larger than its file would only take memory
                if sum(member.file_size for member in archive.zip.infolist()) > path.stat().st_size:
                    raise ValueError("it claims more than it holds")
                found = {name: archive[name] for name in archive.files}
            shapes = {name: array.shape for name, array in found.items()}
            if like is not None and shapes != {name: shape or shapes.get(name) for name, shape in like.items()}:
                raise ValueError("it holds something else")
        except FileNotFoundError:
            return None
        except Exception as error:  # a damaged file can raise nearly anything inside a reader
            warn_damaged(self.what, path, error)
            path.unlink(missing_ok=True)
            return None
        return found

    def save(self, key: str, **arrays: Any) -> None:
        """Keep the arrays of a key, in place of earlier ones."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(self.path(key)) as temporary, temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)

    def clear(self) -> None:
        """Delete the files of this cache, and its directory unless something else is in it."""
        if not self.directory.is_dir():
            return
        for path in self.directory.iterdir():
            if re.fullmatch(r"\.?[0-9a-f]{32}\.npz(\..*)?", path.name):
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.directory.rmdir()
