"""Attacks on clusters, on loopback: workers killed, stopped and slow, a scheduler killed, something else in its place.

.venv/bin/python -m benchmarks.attack.cluster    # about 4 minutes
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.attack.commands import begun, ended, run
from benchmarks.attack.rows import campaign, row
from benchmarks.attack.runs import attributing, content, photos

QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Cluster:
    """A scheduler with workers, each a process."""

    def __init__(self, workers: int, port: int | None = None) -> None:
        self.port = port or free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.scheduler = self._started("dask_scheduler", "--host", "127.0.0.1", "--port", self.port)
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._started("dask_worker", self.address, "--nthreads", 1, "--no-nanny", "--host", "127.0.0.1")

    @staticmethod
    def _started(what: str, *arguments: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.{what}", "--no-dashboard", *map(str, arguments)]
        return subprocess.Popen(command, **QUIET)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextmanager
def cluster(workers: int) -> Iterator[Cluster]:
    started = Cluster(workers)
    try:
        yield started
    finally:
        started.close()


def workers_in_trouble(place: Path) -> None:
    """Workers that are killed, stopped for a while, or slow: the result has the same bytes."""
    folder, whole = photos(place / "photos"), place / "whole"
    run(*attributing(folder, whole))
    wanted = content(whole)
    for trouble in ("killed, and another comes", "stopped for 8 seconds", "stopped half of the time"):
        tries, broken = 2, []
        for number in range(tries):
            output = place / f"{trouble[:9].strip(',')}{number}"
            with cluster(2) as started:
                process = begun(*attributing(folder, output), "--cluster", started.address)
                time.sleep(8 + number)  # both workers and the client take some seconds to begin
                victim = started.workers[0]
                if trouble.startswith("killed"):
                    victim.kill()
                    started.workers.append(started.worker())
                elif "8" in trouble:
                    victim.send_signal(signal.SIGSTOP)
                    time.sleep(8)
                    victim.send_signal(signal.SIGCONT)
                else:
                    for _ in range(40):
                        victim.send_signal(signal.SIGSTOP)
                        time.sleep(0.1)
                        victim.send_signal(signal.SIGCONT)
                        time.sleep(0.1)
                done = ended(process)
            if done.code != 0 or content(output) != wanted:
                broken.append(f"{done.code} {done.err[-200:]}")
        row(f"a worker of two {trouble}", tries, "; ".join(broken) or "the same bytes as one process", not broken)


def scheduler_killed(place: Path) -> None:
    """A scheduler that is killed: a sentence, and the same command resumes with another one."""
    folder, whole, output = photos(place / "photos"), place / "whole", place / "run"
    run(*attributing(folder, whole, draws=2000))
    command, broken = attributing(folder, output, draws=2000), []
    with cluster(1) as started:
        process = begun(*command, "--cluster", started.address)
        time.sleep(9)
        started.scheduler.kill()
        done = ended(process)
        if done.code not in (0, 1) or not done.fine or (done.code == 1 and "scheduler is gone" not in done.err):
            broken.append(f"{done.code} {done.err[-300:]}")
    if run(*command).code != 0 or content(output) != content(whole):
        broken.append("resumed without it, the result is another")
    row("the scheduler killed in the middle", 1, "; ".join(broken) or "a sentence; then the same bytes", not broken)


def no_scheduler(place: Path) -> None:
    """Something else that answers in place of a scheduler, or nothing."""
    folder = photos(place / "photos", 4)
    answers = [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", bytes(8), (10**12).to_bytes(8, "little"), b"\xff" * 4096]
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in answers]
    held = []

    def serve(server: socket.socket, answer: bytes) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                held.append(connection)
                connection.sendall(answer)

    for server, answer in zip(servers, answers, strict=True):
        threading.Thread(target=serve, args=(server, answer), daemon=True).start()
    ports = [server.getsockname()[1] for server in servers] + [free_port()]
    begin = time.monotonic()
    processes = [
        begun(*attributing(folder, place / str(port), draws=2), "--cluster", f"tcp://127.0.0.1:{port}")
        for port in ports
    ]
    broken = [
        done.err[-200:]
        for done in (ended(process, 120) for process in processes)
        if done.code != 1 or not done.fine or "cannot reach a scheduler" not in done.err
    ]
    seconds = time.monotonic() - begin
    said = "; ".join(broken) or f"a sentence, the last after {seconds:.0f} s"
    row("something else, or nothing, in place of a scheduler", len(ports), said, not broken)


if __name__ == "__main__":
    campaign("cluster", workers_in_trouble, scheduler_killed, no_scheduler)
