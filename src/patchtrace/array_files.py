"""Arrays in .npy and .npz files that anybody may have written: nothing is pickled, and no claim is believed.

What unpacks to far more memory than its file would make one expect is refused before it is read.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import IO, Any
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError

#: The arrays of a .npz may unpack to so many bytes, or to so many times their size in the file.
UNPACKED_BYTES, UNPACKED_RATIO = 500_000_000, 20
#: What a .npy is called among the arrays of a .npz.
SINGLE = ""


def read_arrays(path: str | Path, names: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of a file by their names; a .npy has one, :data:`SINGLE`.

    Parameters
    ----------
    path : path
        A .npy or .npz file; its content says which.
    names : container of str, optional
        Which arrays of a .npz to read; others are named and empty. By default all.

    Returns
    -------
    dict of str to array

    Raises
    ------
    PatchtraceError
        With the reason, for the caller to say what it is about: the file cannot be read, or holds objects.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     np.savez(Path(directory) / "some.npz", a=np.arange(3), b=np.ones((2, 2)))
    ...     read_arrays(Path(directory) / "some.npz", names=["a"])
    {'a': array([0, 1, 2]), 'b': array([], dtype=float64)}
    """
    try:
        with Path(path).open("rb") as stream:
            if not _is_archive(stream):
                return {SINGLE: np.load(stream, allow_pickle=False)}
            with np.load(stream, allow_pickle=False) as archive:
                wanted = [name for name in archive.files if names is None or name in names]
                check_unpacked(archive.zip, wanted)
                return {name: archive[name] if name in wanted else np.empty(0) for name in archive.files}
    except Exception as error:  # a damaged file can raise nearly anything inside a reader
        raise PatchtraceError(str(error) or type(error).__name__) from error


def header_of(path: str | Path, name: str) -> tuple[tuple[int, ...], np.dtype[Any]] | list[str]:
    """Shape and type that an array of a .npz, or the one of a .npy, has by its header; or the names that there are.

    Raises a PatchtraceError with the reason if the file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            if not _is_archive(stream):
                return _header(stream)
            with ZipFile(stream) as archive:
                held = [member.removesuffix(".npy") for member in archive.namelist()]
                if name not in held:
                    return held
                with archive.open(f"{name}.npy") as member:
                    return _header(member)
    except Exception as error:  # as above
        raise PatchtraceError(str(error) or type(error).__name__) from error


def check_unpacked(archive: ZipFile, names: Container[str]) -> None:
    """Raise a ValueError if arrays take far more memory than their file would make one expect."""
    members = [info for info in archive.infolist() if info.filename.removesuffix(".npy") in names]
    packed, unpacked = sum(info.compress_size for info in members), sum(info.file_size for info in members)
    if unpacked > max(UNPACKED_BYTES, UNPACKED_RATIO * packed):
        raise ValueError(
            f"{packed / 1e6:.1f} MB of it unpack to {unpacked / 1e9:.1f} GB of memory: save it as a .npy file, or "
            "without compression"
        )


def _is_archive(stream: IO[bytes]) -> bool:
    """Whether it is a zip file, as a .npz is."""
    begin = stream.read(2)
    stream.seek(0)
    return begin == b"PK"


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return tuple(int(side) for side in shape), dtype
