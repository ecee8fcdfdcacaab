"""Disks that are full or read-only under every command that writes. Only root can make small disks. 6 minutes.

.venv/bin/python -m benchmarks.attack.disks         # everything
.venv/bin/python -m benchmarks.attack.disks full    # one of the two; the row of the other stays
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.attack.commands import run
from benchmarks.attack.kills import tiny
from benchmarks.attack.rows import campaign, row
from benchmarks.attack.runs import attributing, evidently, photos, said

#: Bytes that are left on a full disk.
LEFT = (4 << 10, 24 << 10, 80 << 10)


@contextmanager
def disk(place: Path) -> Iterator[Callable[[str], None]]:
    """A disk of 50 MB at a place; what is given is called with other options for it."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m", "tmpfs", place], check=True)

    def again(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", place], check=True)

    try:
        yield again
    finally:
        subprocess.run(["umount", place], check=True)


def commands(place: Path) -> dict[str, Callable[[Path], list[Any]]]:
    """What writes, by its name: each puts what it needs on the disk, and gives the command."""
    folder, whole = photos(place / "photos", 30), place / "whole"
    run(*attributing(folder, whole, draws=4))
    index = ["index", folder, "--size", 32, "--jobs", 1, "-q", "-o"]
    run(*index, place / "begun")
    shutil.copytree(place / "begun", place / "updated")
    photos(folder)  # as many again
    run(*index, place / "updated")
    network, pictures = tiny(place)
    trained = ["--train", pictures, "--model", network, "--epochs", 1, "--batch", 4]
    truth = ["--queries", pictures, "--subsets", 3, "--loss-timesteps", 2, "--loss-draws", 1, "--method", "pixel"]

    def on(to: Path, before: str, command: list[Any]) -> list[Any]:
        shutil.copytree(place / before, to / before, dirs_exist_ok=True)
        return [*command, to / before]

    return {
        "index": lambda to: [*index, to / "store"],
        "update": lambda to: on(to, "begun", index),
        "gc": lambda to: on(to, "updated", ["store", "gc"]),
        "attribute": lambda to: attributing(folder, to / "run", draws=4),
        "refine": lambda to: ["refine", whole, "--draws", 8, "-q", "-o", to / "refined"],
        "attribute with evidence": lambda to: evidently(folder, to / "evidence"),
        "calibrate": lambda to: ["calibrate", "--train", folder, "--size", 16, "--count", 20, "-q", "-o", to / "null"],
        "train": lambda to: ["train", *trained, "-q", "-o", to / "model"],
        "lds": lambda to: ["lds", *trained, *truth, "-q", "-o", to / "truth"],
    }


def full(place: Path) -> None:
    """A full disk: a sentence, and with room the same command ends well."""
    on_disks(place, "full", LEFT)


def read_only(place: Path) -> None:
    """A disk that cannot be written to."""
    on_disks(place, "read-only", (0,))


def on_disks(place: Path, problem: str, sizes: tuple[int, ...]) -> None:
    if os.geteuid() != 0:
        print(f"{problem}: only root can make small disks; left out")
        return
    tries, broken, noticed, made = 0, [], 0, commands(place)
    for name, command in made.items():
        for left in sizes:
            with disk(place / "disk") as again:
                words = command(place / "disk")
                again(f"size={shutil.disk_usage(place / 'disk').used + left}" if left else "ro")
                done = run(*words)
                tries += 1
                noticed += done.code == 1
                if done.code not in (0, 1) or not done.fine or len(done.err) > 2000:  # 0: it was just enough
                    broken.append(f"{name} with {left} bytes: {done.code} {done.err[-200:]}")
                again("rw,size=50m")
                done = run(*words)
                if done.code != 0:
                    broken.append(f"{name} again: {done.code} {done.err[-200:]}")
    outcome = f"{noticed} times a sentence, else it was just enough; then resumed, or done again"
    row(f"a {problem} disk under {', '.join(made)}", tries, said(broken, outcome), not broken)


if __name__ == "__main__":
    campaign("disks", full, read_only)
