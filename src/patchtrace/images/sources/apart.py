"""Archives and tables, read in a process of its own: their readers believe much of what a file says.

A file that crashes its reader, hangs it or makes it take all memory costs what comes after that place in it, which is
listed as unreadable, and never the run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from patchtrace.errors import PatchtraceError
from patchtrace.images import contained
from patchtrace.images.contained import MEMORY, Contained, receive, send
from patchtrace.images.decode import Decoding, Unreadable
from patchtrace.images.sources.base import Entries, Payload, Reading, shown

#: A function of a module that reads a file; its entries are bytes, or reasons.
Read: TypeAlias = Callable[[Path, Reading], Entries]


def entries_apart(read: Read, place: Path, reading: Reading) -> Entries:
    """What ``read`` finds in a file, read in a process of its own where there are such.

    Parameters
    ----------
    read : callable
        A function on the top level of a module: called with the path and how to read it. Its entries hold bytes, or
        why there are none.
    place : path
        The file.
    reading : Reading
        How it is read; ``timeout`` is for each entry.

    Returns
    -------
    Entries

    Raises
    ------
    PatchtraceError
        As ``read`` does before its first entry.
    """
    if not contained.CONTAINED:
        entries = opened(read, place, reading)
        return Entries(guarded(entries.stream, place), entries.count, entries.remarks)
    try:
        place.open("rb").close()
    except OSError as error:
        raise PatchtraceError(f"cannot read {place.name}: {error.strerror or error}") from error
    stream = _Stream(read, place, reading)
    return Entries(stream, stream.count, stream.remarks)


def opened(read: Read, place: Path, reading: Reading) -> Entries:
    """What a reader finds; whatever it fails with before its first entry is an error in words."""
    try:
        return read(place, reading)
    except PatchtraceError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything inside a reader
        raise PatchtraceError(f"cannot read {place.name}: {_words(error)}") from error


def guarded(stream: Iterator[tuple[str, Payload]], place: Path) -> Iterator[tuple[str, Payload]]:
    """A stream that ends with a reason, and not with an error, where its reader fails."""
    try:
        yield from stream
    except Exception as error:  # as above
        yield shown(place.name), Unreadable(f"the file is damaged: {_words(error)}")


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it takes more memory than reading it may"
    return f"{type(error).__name__}: {error}"[:500]


class _Stream(Iterator[tuple[str, Payload]]):
    """The entries as they come from the process, which ends with them, or with this object."""

    def __init__(self, read: Read, place: Path, reading: Reading) -> None:
        self._place, self._timeout, self._seen = place, reading.timeout, 0
        order = {"module": read.__module__, "read": read.__name__, "place": str(place), "reading": asdict(reading)}
        self._process = contained.started(__name__, order)
        self._end = weakref.finalize(self, Contained.end, self._process)
        header, _ = self._message(contained.START)
        if "error" in header:
            self._end()
            raise PatchtraceError(header["error"])
        self.count, self.remarks = header["count"], list(header["remarks"])

    def __iter__(self) -> _Stream:
        return self

    def __next__(self) -> tuple[str, Payload]:
        if not self._end.alive:
            raise StopIteration
        try:
            header, content = self._message(self._timeout)
        except PatchtraceError as error:
            return shown(self._place.name), Unreadable(f"{error}; {self._seen} entries of it were read")
        if "id" not in header:
            self._end()
            raise StopIteration
        self._seen += 1
        return header["id"], Unreadable(header["reason"]) if "reason" in header else content

    def _message(self, seconds: float) -> tuple[dict[str, Any], bytes]:
        """The next message; if there is none, the process is ended."""
        try:
            if self._process.connection.poll(seconds):
                return receive(self._process.connection)
            cause = f"took more than {seconds:g} seconds"
        except (EOFError, OSError, ValueError):
            cause = self._process.cause()
        words = "".join(f" ({line})" for line in self._process.last_words())
        self._end()
        raise PatchtraceError(f"cannot read {self._place.name}: its reader {cause}{words}")


def main() -> None:
    """In the process: read the file that the first message names, and send what is found."""
    parent = contained.parent()
    order, _ = receive(parent)
    place = Path(order["place"])
    reading = Reading(**{**order["reading"], "rules": Decoding.from_record(order["reading"]["rules"])})
    # a mapped file counts as memory
    contained.limit_memory(MEMORY + place.stat().st_size)
    try:
        with contained.alarmed(contained.START):
            entries = opened(getattr(import_module(order["module"]), order["read"]), place, reading)
    except PatchtraceError as error:
        send(parent, {"error": str(error)})
        return
    send(parent, {"count": entries.count, "remarks": entries.remarks})
    stream = guarded(entries.stream, place)
    while True:
        with contained.alarmed(reading.timeout):
            name, payload = next(stream, ("", None))
        if payload is None:
            send(parent, {})
            return
        if isinstance(payload, bytes):
            send(parent, {"id": name}, payload)
        else:
            send(parent, {"id": name, "reason": str(payload)})
