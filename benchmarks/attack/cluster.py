"""Attacks on clusters, on loopback: workers killed, stopped and slow, a scheduler killed, something else in its place.

.venv/bin/python -m benchmarks.attack.cluster    # about 6 minutes
"""

from __future__ import annotations

import ipaddress
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.attack.commands import begun, ended, run
from benchmarks.attack.rows import campaign, row
from benchmarks.attack.runs import attributing, content, photos
from distributed.security import Security

RANDOM = random.Random(7)
#: Schedulers that are killed while they work, and most tries for it.
SCHEDULERS, MOST_TRIES = 10, 20
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Cluster:
    """A scheduler with workers, each a process."""

    def __init__(self, workers: int, *, tls: Sequence[str | Path] = (), environment: Mapping[str, str] = {}) -> None:
        self.tls, self.environment = tls, environment
        protocol, port = "tls" if tls else "tcp", free_port()
        self.address = f"{protocol}://127.0.0.1:{port}"
        self.scheduler = self._started("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--protocol", protocol)
        self.workers = [self.worker() for _ in range(workers)]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._started("dask_worker", self.address, "--nthreads", 1, "--no-nanny", "--host", "127.0.0.1")

    def _started(self, what: str, *arguments: Any) -> subprocess.Popen[bytes]:
        words = map(str, ("--no-dashboard", *arguments, *self.tls))
        command = [sys.executable, "-m", f"distributed.cli.{what}", *words]
        return subprocess.Popen(command, **QUIET, env={**os.environ, **self.environment})

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


@contextmanager
def cluster(workers: int, **how: Any) -> Iterator[Cluster]:
    started = Cluster(workers, **how)
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
    """A scheduler that is killed, at many moments: a sentence, and the same command resumes without it."""
    folder, whole = photos(place / "photos"), place / "whole"
    run(*attributing(folder, whole, draws=2000))
    hits, broken = 0, []
    for number in range(MOST_TRIES):
        if hits == SCHEDULERS or broken:
            break
        output = place / f"run{number}"
        command = attributing(folder, output, draws=2000)
        with cluster(1) as started:
            process = begun(*command, "--cluster", started.address)
            time.sleep(RANDOM.uniform(4, 14))
            started.scheduler.kill()
            done = ended(process)
        hits += "scheduler is gone" in done.err  # else it was not there yet, or not needed any more
        early = done.code == 1 and "cannot reach a scheduler" in done.err
        if not done.fine or len(done.err) > 2000 or not (early or done.code == 0 or "scheduler is gone" in done.err):
            broken.append(f"{done.code} {done.err[-300:]}")
    if run(*command).code != 0 or content(output) != content(whole):
        broken.append("resumed without it, the result is another")
    row("the scheduler killed in the middle", hits, "; ".join(broken) or "a sentence; then the same bytes", not broken)


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


def certificates(place: Path) -> None:
    """A scheduler and a worker with certificates made here: who has one of theirs is served, and nobody else."""
    folder = photos(place / "photos", 6)
    whole = place / "whole"
    run(*attributing(folder, whole, draws=2))

    def made(name: str) -> dict[str, Path]:
        security, files = Security.temporary(), {}
        for part, text in {
            "ca": security.tls_ca_file,
            "cert": security.tls_client_cert,
            "key": security.tls_client_key,
        }.items():
            files[part] = place / f"{name}.{part}.pem"
            files[part].write_text(text)
        return files

    ours, others, prefix = made("ours"), made("others"), "DASK_DISTRIBUTED__COMM__TLS__"
    clients: dict[str, dict[str, Path]] = {"ours": ours, "others": others, "none": {}, "half": {"ca": ours["ca"]}}
    names = {"ca": "CA_FILE", "cert": "CLIENT__CERT", "key": "CLIENT__KEY"}
    options = [word for part, path in ours.items() for word in (f"--tls-{part}" + "-file" * (part == "ca"), path)]
    broken = []
    with cluster(1, tls=options) as started:
        time.sleep(8)
        for name, files in clients.items():
            environment = {f"{prefix}{names[part]}": str(path) for part, path in files.items()}
            output = place / name
            command = (*attributing(folder, output, draws=2), "--cluster", started.address)
            done = run(*command, env={**os.environ, **environment})
            right = done.code == 0 and content(output) == content(whole) if name == "ours" else done.code == 1
            if not right or not done.fine:
                broken.append(f"{name}: {done.code} {done.err[-200:]}")
    said = "; ".join(broken) or "who has its certificate is served, the others are told"
    row("clients of a TLS scheduler, with its certificates, others, none, and half", len(clients), said, not broken)


def another_version(place: Path) -> None:
    """A worker that has another version of the program."""
    folder = photos(place / "photos", 4)
    (place / "sitecustomize.py").write_text(
        "import importlib.metadata as known\nright = known.version\n"
        "known.version = lambda name: '9.9' if name == 'patchtrace' else right(name)\n"
    )
    with cluster(1, environment={"PYTHONPATH": str(place)}) as started:
        done = run(*attributing(folder, place / "run", draws=2), "--cluster", started.address)
    held = done.code == 1 and done.fine and "a worker has patchtrace 9.9" in done.err
    row("a worker with another version", 1, "a sentence" if held else f"{done.code} {done.err[-200:]}", held)


def ports(place: Path) -> None:
    """Where the processes of --cluster local:2 listen."""
    folder = photos(place / "photos")
    process = begun(*attributing(folder, place / "run", draws=2000), "--cluster", "local:2")
    found: set[str] = set()
    for _ in range(20):
        time.sleep(1)
        found |= listening(process.pid)
    process.kill()
    process.communicate()
    beyond = sorted(address for address in found if not ipaddress.ip_address(address.rpartition(":")[0]).is_loopback)
    said = f"beyond this machine: {', '.join(beyond)}" if beyond else "all on loopback"
    row("ports that --cluster local:2 opens", len(found), said, bool(found) and not beyond)


def listening(parent: int) -> set[str]:
    """The addresses at which a process and those below it wait for connections."""
    family, inodes = [parent], set()
    for pid in family:
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                family += map(int, (thread / "children").read_text().split())
            for handle in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    inodes.add(os.readlink(handle).removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                words = [bytes.fromhex(address[n : n + 8])[::-1] for n in range(0, len(address), 8)]
                found.add(f"{ipaddress.ip_address(b''.join(words))}:{int(port, 16)}")
    return found


if __name__ == "__main__":
    campaign("cluster", workers_in_trouble, scheduler_killed, no_scheduler, certificates, another_version, ports)
