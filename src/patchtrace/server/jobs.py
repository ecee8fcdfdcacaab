"""Queries that wait, run and are done: one after the other, because the engine takes all of the machine for each."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any, Literal, NamedTuple, Protocol

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.progress import Watch
from patchtrace.server.upload import Upload
from patchtrace.viewer.data import Answer, encoded

log = logging.getLogger("patchtrace.server")

State = Literal["waiting", "running", "done", "failed", "cancelled"]
#: Longest name or remark, and longest reason, that are kept, in characters.
LONGEST, LONGEST_REASON = 120, 500
#: Clients whose turn is remembered.
MOST_CLIENTS = 1000


@dataclass(frozen=True)
class Limits:
    """How much is taken in and kept; all of it lies in memory.

    Parameters
    ----------
    upload, pixels : int, default 20 million and 50 million
        Limits of one picture: bytes of the file, and pixels.
    waiting : int, default 32
        Limit of queries in the queue.
    held : int, default 300 million
        Limit of the bytes of pictures that arrive, wait or are worked on.
    kept, kept_bytes : int, default 50 and 300 million
        Limits of the results that are kept, and of their bytes; the oldest are dropped first.
    streams : int, default 64
        Limit of event streams that are open at once.
    arriving : int, default 32
        Limit of uploads that arrive, or are decoded, at once.
    connections, connections_of_client : int, default 256 and 192
        Limits of open connections, in all and from one address.
    """

    upload: int = 20_000_000
    pixels: int = 50_000_000
    waiting: int = 32
    held: int = 300_000_000
    kept: int = 50
    kept_bytes: int = 300_000_000
    streams: int = 64
    arriving: int = 32
    connections: int = 256
    connections_of_client: int = 192


class Work(Protocol):
    """What is done with a picture. ``QueryWork`` is the real one."""

    def read(self, name: str, data: bytes, limits: Limits) -> Upload:
        """Decode an upload, before it is let into the queue; raises ``Unreadable`` with the reason."""

    def close(self) -> None:
        """Interrupt the reading of an upload: the server is being stopped."""

    def __call__(self, upload: Upload, watch: Watch) -> Answer:
        """Do the work. What the watch raises must pass through; answers on the way are for ``watch.provisional``."""


class Full(Exception):
    """No room for another query."""


class Cancelled(BaseException):
    """Raised into the work by its watch. Not an Exception, so that no handler on the way takes it for a fault."""


@dataclass(eq=False)
class Job:
    """One query and its state."""

    id: str
    name: str
    client: str
    upload: Upload | None
    thumbnail: str
    created: float = field(default_factory=time.time)
    state: State = "waiting"
    progress: tuple[int, int] = (0, 0)
    remark: str = ""
    stopping: bool = False
    error: tuple[str, str] | None = None
    began: float = 0.0
    ended: float = 0.0
    answers: int = 0
    view: bytes = b""
    evidence: list[bytes] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def show(self, answer: Answer) -> None:
        """Show an answer in place of the one before. Pictures that it has had before are not encoded again."""
        packed = pack(self.id, answer, self.names)
        self.names |= packed.names
        self.pictures = self.pictures | packed.pictures  # others may be reading
        self.view, self.evidence = packed.view, packed.evidence
        self.answers += 1

    def tidy(self, keep: bool) -> None:
        """At the end: keep the pictures of the answer, or drop the answer; the thumbnail stays."""
        if not keep:
            self.view, self.evidence, self.answers = b"", [], 0
        text, kept = self.view.decode(), self.pictures
        self.pictures = {name: kept[name] for name in kept if name == self.thumbnail or picture_url(name) in text}
        self.names = {}

    @property
    def finished(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def size(self) -> int:
        return len(self.view) + sum(map(len, self.evidence)) + sum(map(len, self.pictures.values()))


class Jobs:
    """A queue with one worker thread.

    Clients take turns: whoever has waited longest since the last turn is next, so that one with thirty pictures does
    not keep out one with a single picture.
    """

    def __init__(self, work: Work, limits: Limits) -> None:
        self.work, self.limits = work, limits
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}  # in the order of arrival
        self._ends: deque[Job] = deque()  # finished ones, in the order in which they ended
        self._turns: dict[str, int] = {}  # the last turn of each client
        self._turn = 0
        self._held = 0
        self.closing = False
        self._worker = threading.Thread(target=self._run_all, name="patchtrace-queries", daemon=True)

    def start(self) -> None:
        self._worker.start()

    def close(self, timeout: float = 1.0) -> None:
        """Accept nothing more, drop what waits, interrupt what runs. Work that ignores it ends with the process."""
        with self._changed:
            self.closing = True
            for job in self._jobs.values():
                job.stopping = True
            for job in self._waiting():
                self._end(job, "cancelled")
            self._changed.notify_all()
        if self._worker.is_alive() and self._worker is not threading.current_thread():
            self._worker.join(timeout)

    @property
    def working(self) -> bool:
        """Whether the worker thread has not ended."""
        return self._worker.is_alive()

    # -- for the application ----------------------------------------------------------------------------

    def reserve(self, size: int) -> None:
        """Reserve memory for what arrives of a picture, until ``submit`` or ``release``; raises Full without room."""
        with self._changed:
            if self.closing or len(self._waiting()) >= self.limits.waiting or self._held + size > self.limits.held:
                raise Full
            self._held += size

    def release(self, size: int) -> None:
        """Give reserved memory back."""
        with self._changed:
            self._held -= size

    def submit(self, upload: Upload, client: str, reserved: int) -> Job:
        """Add a picture to the queue. Its own size takes the place of what was reserved for it."""
        with self._changed:
            self.reserve(upload.nbytes - reserved)
            picture = secrets.token_urlsafe(16)
            pictures = {picture: upload.thumbnail}
            job = Job(secrets.token_urlsafe(12), upload.name, client, upload, picture, pictures=pictures)
            self._jobs[job.id] = job
            self._changed.notify_all()
            return job

    def get(self, identity: str) -> Job | None:
        return self._jobs.get(identity)

    def status(self, job: Job) -> dict[str, Any]:
        """The state of a job as plain data."""
        with self._changed:
            return self._status(job, self._order())

    def statuses(self) -> list[dict[str, Any]]:
        """All jobs that are remembered, the newest first."""
        with self._changed:
            order = self._order()
            return [self._status(job, order) for job in reversed(self._jobs.values())]

    def _status(self, job: Job, order: list[Job]) -> dict[str, Any]:
        done, total = job.progress
        until = job.ended or time.monotonic()
        return {
            "id": job.id,
            "name": job.name,
            "state": job.state,
            "position": order.index(job) + 1 if job.state == "waiting" else None,
            "done": done,
            "total": total,
            "remark": job.remark,
            "stopping": job.stopping and not job.finished,
            "seconds": round(until - job.began, 1) if job.began else 0.0,
            "created": round(job.created, 3),
            "answers": job.answers,
            "error": {"code": job.error[0], "message": job.error[1]} if job.error else None,
            "thumbnail": picture_url(job.thumbnail),
        }

    def picture(self, identity: str) -> bytes | None:
        with self._changed:
            return next((job.pictures[identity] for job in self._jobs.values() if identity in job.pictures), None)

    def cancel(self, job: Job) -> bool:
        """Stop a job that waits or runs; forget one that is finished. Returns whether it was forgotten."""
        with self._changed:
            if job.finished:
                self._forget(job)
                return True
            job.stopping = True
            if job.state == "waiting":
                self._end(job, "cancelled")
            return False

    # -- for the worker thread --------------------------------------------------------------------------

    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if job.state == "waiting"]

    def _order(self) -> list[Job]:
        """The jobs that wait, in the order in which they will run if no other comes."""
        of_client: dict[str, list[Job]] = {}
        for job in self._waiting():
            of_client.setdefault(job.client, []).append(job)
        clients = sorted(of_client, key=lambda client: self._turns.get(client, 0))
        rounds = zip_longest(*(of_client[client] for client in clients))
        return [job for job in chain.from_iterable(rounds) if job is not None]

    def _run_all(self) -> None:
        while (job := self._next()) is not None:
            self._run(job)

    def _next(self) -> Job | None:
        with self._changed:
            while not self.closing and not self._waiting():
                self._changed.wait()
            if self.closing:
                return None
            job = self._order()[0]
            self._turn += 1
            self._turns.pop(job.client, None)
            self._turns[job.client] = self._turn
            if len(self._turns) > MOST_CLIENTS:
                del self._turns[next(iter(self._turns))]
            job.state, job.began = "running", time.monotonic()
            return job

    def _run(self, job: Job) -> None:
        state: State = "failed"
        fault = None
        try:
            assert job.upload is not None
            job.show(self.work(job.upload, _JobWatch(job)))
            state = "done"
        except Cancelled:
            state = "cancelled"
        except (PatchtraceError, Unreadable) as reason:
            fault = "unreadable", label(str(reason), LONGEST_REASON)
        except MemoryError:
            fault = "memory", "this picture needs more memory than there is"
        except BaseException:  # one query must not end the worker, whatever it raises
            log.exception("the query %r failed", job.name)
            fault = "internal", "something went wrong inside; the terminal says more"
        with self._changed:
            if job.stopping:  # too late to interrupt the work, but not too late to drop its result
                state, fault = "cancelled", None
            job.error = fault
            job.tidy(keep=state == "done")
            self._end(job, state)

    def _end(self, job: Job, state: State) -> None:
        job.state, job.ended = state, time.monotonic()
        if job.upload is not None:
            self._held -= job.upload.nbytes
        job.upload = None
        self._ends.append(job)
        while len(self._ends) > 1 and (
            len(self._ends) > self.limits.kept or sum(job.size for job in self._ends) > self.limits.kept_bytes
        ):
            self._forget(self._ends[0])

    def _forget(self, job: Job) -> None:
        if self._jobs.pop(job.id, None) is not None:
            self._ends.remove(job)


class _JobWatch(Watch):
    """Notes how far a job is, and ends its work if it was cancelled."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job

    def __call__(self, done: int, total: int) -> None:
        self._check()
        self._job.progress = int(done), int(total)

    def remark(self, text: str) -> None:
        self._check()
        self._job.remark = label(text)

    def provisional(self, result: Answer) -> None:
        self._check()
        self._job.show(result)

    def _check(self) -> None:
        if self._job.stopping:
            raise Cancelled


class Packed(NamedTuple):
    """An answer as it is sent: JSON, and pictures under names that cannot be guessed; ``names`` are those by key."""

    view: bytes
    evidence: list[bytes]
    pictures: dict[str, bytes]
    names: dict[str, str]


def pack(query: str, answer: Answer, known: Mapping[str, str]) -> Packed:
    """Encode an answer, and give its pictures and evidence their addresses; those of ``known`` pictures are kept."""
    names = {key: known.get(key) or secrets.token_urlsafe(16) for key in answer.pictures}
    evidence = [f"/api/queries/{query}/evidence/{number}" for number in range(len(answer.evidence))]
    view = answer.placed(lambda key: picture_url(names[key]), evidence)
    new = {names[key]: encoded(key, picture) for key, picture in answer.pictures.items() if key not in known}
    return Packed(_json(view), [_json(one) for one in answer.evidence], new, names)


def picture_url(identity: str) -> str:
    """Address of a picture."""
    return f"/api/pictures/{identity}"


def label(text: str, longest: int = LONGEST) -> str:
    """A text from outside as it can be shown: on one line, without control characters, not too long.

    >>> label("../a\\x1b[31m\\n" + "b" * 200)[:12]
    '../a[31mbbbb'
    """
    shown = "".join(c for c in text if c.isprintable()).strip()
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def _json(data: Any) -> bytes:
    # a browser refuses JSON with NaN in it
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()
