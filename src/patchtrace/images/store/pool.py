"""Decoding in processes that can be killed: a crash, a hang or a flood of memory costs one image, never the run."""

from __future__ import annotations

import math
import os
import selectors
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from patchtrace.errors import PatchtraceError
from patchtrace.images import contained
from patchtrace.images.contained import MEMORY, TIMEOUT, Contained, receive, send
from patchtrace.images.decode import Decoding
from patchtrace.images.store.item import Task

#: Seconds for which the first process works alone; starting another one takes some tenths of a second.
_ALONE = 0.5
#: Orders that a worker may have waiting, so that it need not wait for us.
_DEPTH = 4
#: Most answers that wait for an earlier image, and most bytes in them.
_WINDOW, _WAITING = 1024, 64 << 20


@dataclass(eq=False)
class _Worker:
    contained: Contained
    tasks: deque[Task] = field(default_factory=deque)
    since: float = 0.0  # when it began with the first of them
    allowed: float = 0.0  # seconds that it may take for it
    ready: bool = False


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
            worker.contained.end()
        self._workers.clear()

    def kill(self) -> None:
        """Kill the processes, from any thread: what they have in hand is answered with that as the reason."""
        for worker in list(self._workers):
            worker.contained.process.kill()

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
                send(free.contained.connection, {"known": task.known, "sizes": task.sizes, **path}, content)
            except ConnectionError:
                return  # it has died: what it had is dealt with when its end is seen

    def _start(self) -> _Worker:
        settings = {"rules": asdict(self.rules), "memory": self.memory, "timeout": self.timeout}
        worker = _Worker(contained.started("patchtrace.images.store.worker", settings), allowed=contained.START)
        self._workers.append(worker)
        self._selector.register(worker.contained.connection, selectors.EVENT_READ, worker)
        return worker

    def _wait(self) -> None:
        """Take what answers there are, or wait for one until the next worker has had its time."""
        ends = [worker.since + worker.allowed for worker in self._workers if worker.tasks]
        patience = max(0.0, min(ends) - time.monotonic()) if ends else None
        for key, _ in self._selector.select(patience):
            worker: _Worker = key.data
            try:
                answer, pixels = receive(worker.contained.connection)
            except (EOFError, OSError, ValueError):
                self._replace(worker, f"the decoder {worker.contained.cause()}")
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
        self._selector.unregister(worker.contained.connection)
        self._workers.remove(worker)
        if not worker.ready:
            words = worker.contained.last_words()
            worker.contained.end()
            raise PatchtraceError(f"a decoding process did not start ({cause}): {words or 'no output'}")
        worker.contained.end()
        if worker.tasks:
            worker.tasks.popleft().answer = {"reason": cause}
            self._waiting.extendleft(reversed(worker.tasks))


def default_jobs() -> int:
    """One for each core that we may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
