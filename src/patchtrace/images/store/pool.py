"""Decoding in processes that can be killed: a crash, a hang or a flood of memory costs one image, never the run."""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Decoding
from patchtrace.images.store.item import Task
from patchtrace.images.store.worker import receive, send

#: What a worker runs. The packages are set up by hand because a decoder needs none of what patchtrace imports at
#: its start, which would take seconds for each worker and for each one that replaces it.
PROGRAM = """
import json, sys, types
sys.path[:], places = json.loads(sys.argv[1])
for name, place in places.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
from patchtrace.images.store.worker import main
main()
"""
#: Whether there are processes whose time and memory can be limited. Elsewhere images are decoded in our own.
CONTAINED = os.name == "posix"
TIMEOUT = 60.0
#: Seconds in which a worker must have started, on a machine that is busy with other things.
START = 120.0
MEMORY = 4 << 30

#: Seconds for which the first process works alone; starting another one takes some tenths of a second.
_ALONE = 0.5
#: Orders that a worker may have waiting, so that it need not wait for us.
_DEPTH = 4
#: Most answers that wait for an earlier image, and most bytes in them.
_WINDOW, _WAITING = 1024, 64 << 20


@dataclass(eq=False)
class _Worker:
    process: subprocess.Popen[bytes]
    complaints: IO[bytes]
    connection: Connection
    tasks: deque[Task] = field(default_factory=deque)
    since: float = 0.0  # when it began with the first of them
    allowed: float = 0.0  # seconds that it may take for it
    ready: bool = False

    def end(self) -> None:
        with self.complaints, self.connection, self.process:
            self.process.kill()


class Pool:
    """Decodes in several processes and gives the answers in the order of the tasks.

    Parameters
    ----------
    rules : Decoding
    jobs : int
        How many processes.
    timeout : float
        Seconds that one image may take.
    memory : int
        Bytes that a process may take for it.
    """

    def __init__(self, rules: Decoding, jobs: int, timeout: float = TIMEOUT, memory: int = MEMORY) -> None:
        self.rules, self.jobs, self.timeout, self.memory = rules, jobs, timeout, memory
        self._workers: list[_Worker] = []
        self._waiting: deque[Task] = deque()  # tasks that no worker has
        self._held = 0  # bytes in answers that were not given back
        self._grow = math.inf  # when more processes may be started
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def kill(self) -> None:
        """Kill the processes, from any thread: what they have in hand is answered with that as the reason."""
        for worker in list(self._workers):
            worker.process.kill()

    def run(self, tasks: Iterator[Task]) -> Iterator[Task]:
        """The tasks with their answers, in order. Workers start when there is something to decode."""
        order: deque[Task] = deque()  # all that were begun and not given back
        more = True
        while more or order:
            while order and order[0].answer is not None:
                self._held -= len(order[0].pixels)
                yield order.popleft()
            while more and len(self._waiting) < self.jobs and len(order) < _WINDOW and self._held < _WAITING:
                task = next(tasks, None)
                if task is None:
                    more = False
                    break
                order.append(task)
                if task.answer is None:
                    self._waiting.append(task)
                    self._hand_out()
            if order and order[0].answer is None:
                self._hand_out()
                self._wait()

    def _hand_out(self) -> None:
        while self._waiting:
            free = min(self._workers, key=lambda worker: len(worker.tasks), default=None)
            # another one only once the first has been at work for a while: a few images take less time than its start
            if free is None or (free.tasks and time.monotonic() > self._grow and len(self._workers) < self.jobs):
                free = self._start()
            # A worker takes orders between two answers. A few short ones fit into the socket; a long one would block us
            # here while the worker is blocked there with its answer.
            task = self._waiting[0]
            if len(free.tasks) >= (_DEPTH if isinstance(task.payload, Path) else 1):
                return
            self._waiting.popleft()
            if not free.tasks:
                free.since = time.monotonic()
            free.tasks.append(task)
            path = {"path": str(task.payload)} if isinstance(task.payload, Path) else {}
            content = task.payload if isinstance(task.payload, bytes) else b""
            try:
                send(free.connection, {"known": task.known, "sizes": task.sizes, **path}, content)
            except ConnectionError:
                return  # it has died: what it had is dealt with when its end is seen

    def _start(self) -> _Worker:
        here = Path(__file__).resolve().parents[2]
        places = {"patchtrace": str(here), "patchtrace.images": str(here / "images")}
        complaints = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        connection, far_end = Pipe()
        process = subprocess.Popen(  # noqa: S603  # our own program, and nothing of an image in the arguments
            [sys.executable, "-c", PROGRAM, json.dumps([sys.path, places]), str(far_end.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=complaints,  # what a library prints must not end up among the answers
            stderr=complaints,
            pass_fds=[far_end.fileno()],
            process_group=0,  # Ctrl-C is for us, and we end the workers
        )
        far_end.close()
        worker = _Worker(process, complaints, connection, allowed=START)
        self._workers.append(worker)
        self._selector.register(connection, selectors.EVENT_READ, worker)
        with contextlib.suppress(ConnectionError):  # its end is seen soon
            send(connection, {"rules": asdict(self.rules), "memory": self.memory, "timeout": self.timeout})
        return worker

    def _wait(self) -> None:
        """Take what answers there are, or wait for one until the next worker has had its time."""
        ends = [worker.since + worker.allowed for worker in self._workers if worker.tasks]
        patience = max(0.0, min(ends) - time.monotonic()) if ends else None
        for key, _ in self._selector.select(patience):
            worker: _Worker = key.data
            try:
                answer, pixels = receive(worker.connection)
            except (EOFError, OSError, ValueError):
                self._replace(worker, _cause(worker.process))
                continue
            if worker.ready:
                task = worker.tasks.popleft()
                task.answer, task.pixels = answer, pixels
                self._held += len(pixels)
            if not worker.ready:
                self._grow = min(self._grow, time.monotonic() + _ALONE)
            worker.ready, worker.since, worker.allowed = True, time.monotonic(), self.timeout
        now = time.monotonic()
        for worker in list(self._workers):
            if worker.tasks and now - worker.since >= worker.allowed:
                doing = "decoding" if worker.ready else "its start"
                self._replace(worker, f"{doing} took more than {worker.allowed:g} seconds")

    def _replace(self, worker: _Worker, cause: str) -> None:
        """End a worker. The image that it had in hand is the one to blame; the others go to the next worker."""
        self._selector.unregister(worker.connection)
        self._workers.remove(worker)
        if not worker.ready:
            worker.complaints.seek(0)
            lines = worker.complaints.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
            worker.end()
            raise PatchtraceError(f"a decoding process did not start ({cause}): {lines[-1:] or 'no output'}")
        worker.end()
        if worker.tasks:
            worker.tasks.popleft().answer = {"reason": cause}
            self._waiting.extendleft(reversed(worker.tasks))


def _cause(process: subprocess.Popen[bytes]) -> str:
    """Why a worker that closed its pipe is gone."""
    try:
        code = process.wait(5)
    except subprocess.TimeoutExpired:
        return "the decoder fell silent"
    if code >= 0:
        return f"the decoder ended with code {code}"
    return f"the decoder crashed ({signal.Signals(-code).name})"


def default_jobs() -> int:
    """One for each core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
