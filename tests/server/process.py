"""The command `patchtrace serve` in a process of its own, on loopback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
from server.fakes import picture


class Served:
    """A running command: where it is, and a client that has its token."""

    def __init__(self, process: subprocess.Popen[str], link: str, errors: Path) -> None:
        self.process, self.errors, self.link = process, errors, httpx.URL(link)
        self.token = self.link.params["token"]
        self.host, self.port = str(self.link.host), int(self.link.port or 80)
        headers = {"Authorization": f"Bearer {self.token}"}
        self.site = httpx.Client(base_url=self.link.join("/"), headers=headers, timeout=60, trust_env=False)

    def memory(self, what: str = "VmHWM") -> float:
        """The most memory that the server itself has had so far, in MB; or another line of its status."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split(f"{what}:")[1].split()[0]) / 1000

    def status_seconds(self) -> float:
        """How long a status request takes, with a connection of its own."""
        begin = time.monotonic()
        with httpx.Client(headers=self.site.headers, timeout=30, trust_env=False) as client:
            assert client.get(self.link.join("/api/queries")).status_code == 200
        return time.monotonic() - begin

    def complaints(self) -> str:
        return self.errors.read_text()


def folder_of_pictures(folder: Path, count: int = 12) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        (folder / f"{number:02d}.png").write_bytes(picture((16, 16), seed=number))
    return folder


@contextmanager
def serving(
    folder: Path, *options: str, prefix: tuple[str, ...] = (), prefix_options: tuple[str, ...] = ()
) -> Iterator[Served]:
    """Serve a folder; the command is killed at the end, if it still runs."""
    errors = folder.parent / f"{folder.name}.stderr"
    command = [*prefix, sys.executable, "-m", "patchtrace", *prefix_options, "serve", "--train", str(folder)]
    command += ["--size", "16", "--no-open"]
    with (
        errors.open("w") as stderr,
        subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            assert link, errors.read_text()
            served = Served(process, link, errors)
            with served.site:
                yield served
        finally:
            process.kill()
