"""Processes of our own that may crash, hang or take memory over a hostile file: how they start, and what they may take.

Both sides talk in messages of JSON and bytes; nothing is pickled.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

#: What such a process runs. The packages are set up by hand because it needs none of what patchtrace imports at its
#: start, which would take seconds for each process and for each one that replaces it.
PROGRAM = """
import json, sys, types
from importlib import import_module
sys.path[:], places, module = json.loads(sys.argv[1])
for name, place in places.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
main = import_module(module).main
main()
"""
#: Whether there are processes whose time and memory can be limited. Elsewhere images are decoded in our own.
CONTAINED = os.name == "posix"
#: Seconds that a file may take, seconds in which a process must have started on a busy machine, and bytes of memory.
TIMEOUT, START, MEMORY = 60.0, 120.0, 4 << 30
#: Who started a process ends it when it takes too long. If they are gone, an alarm does, so many seconds later.
GRACE = 5


@dataclass(eq=False)
class Contained:
    """Such a process, seen from ours."""

    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    connection: Connection

    def end(self) -> None:
        """End it at once."""
        with self.complaints, self.connection, self.process:
            self.process.kill()

    def cause(self) -> str:
        """Why one that closed its connection is gone: it crashed, or ended with some code."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "fell silent"
        return f"ended with code {code}" if code >= 0 else f"crashed ({signal.Signals(-code).name})"

    def last_words(self) -> list[str]:
        """The last line of what it complained of, if there is one."""
        self.complaints.seek(0)
        return self.complaints.read()[-2000:].decode("utf-8", "replace").strip().splitlines()[-1:]


def started(module: str, settings: dict[str, Any]) -> Contained:
    """A process that runs ``main`` of a module below ``patchtrace.images``; its first message is the settings."""
    here = Path(__file__).resolve().parent
    names = ("patchtrace", "patchtrace.images", "patchtrace.images.sources")
    places = dict(zip(names, map(str, (here.parent, here, here / "sources")), strict=True))
    complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
    connection, far_end = Pipe()
    process = subprocess.Popen(  # noqa: S603  # our own program, and nothing of an image in the arguments
        [sys.executable, "-c", PROGRAM, json.dumps([sys.path, places, module]), str(far_end.fileno())],
        stdin=subprocess.DEVNULL,
        stdout=complaints,  # what a library prints must not end up among the answers
        stderr=complaints,
        pass_fds=[far_end.fileno()],
        process_group=0,  # Ctrl-C is for us, and we end the processes
    )
    far_end.close()
    with contextlib.suppress(ConnectionError):  # its end is seen soon
        send(connection, settings)
    return Contained(process, complaints, connection)


def send(connection: Connection, header: dict[str, Any], content: bytes | memoryview = b"") -> None:
    """Write one message: a header in JSON, and bytes."""
    connection.send_bytes(json.dumps(header).encode("ascii"))
    connection.send_bytes(content)


def receive(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """Read one message, or raise EOFError or OSError where the other side is gone."""
    return json.loads(connection.recv_bytes()), connection.recv_bytes()


# What follows is for the process itself.


def parent() -> Connection:
    """The connection to the process that started this one."""
    return Connection(int(sys.argv[-1]))


def limit_memory(most: int) -> None:
    """Take no more memory than this beyond what the process has now, and leave no core file."""
    import resource

    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + most
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


@contextlib.contextmanager
def alarmed(seconds: float) -> Iterator[None]:
    """End the process if it takes longer, also where it never comes back to Python: there is no handler."""
    signal.alarm(math.ceil(seconds) + GRACE)
    try:
        yield
    finally:
        signal.alarm(0)
