"""kill -9 of commands that write, at random moments and random changes of what they write. 5 minutes.

.venv/bin/python -m benchmarks.attack.kills             # everything
.venv/bin/python -m benchmarks.attack.kills training    # some of it

The commands run in forked processes, which have everything imported: so kills come while they work, not while they
start. A kill that came too late is not counted, and tried again.
"""

from __future__ import annotations

import csv
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.attack.rows import campaign, row
from benchmarks.attack.runs import LONG_AGO
from networks import TINY
from safetensors.torch import load_file

from patchtrace import ImageSet, PatchtraceError, Store
from patchtrace.cache import digest
from patchtrace.cli import main
from patchtrace.diffusion import training as training_module
from patchtrace.diffusion.checksum import checksum

RANDOM = random.Random(7)
#: Kills that count, and tries for each of them.
KILLS, TRIES = 20, 5


def forked(command: list[Any]) -> int:
    """A command that has begun in a process of its own."""
    process = os.fork()
    if process == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        code = 99
        try:
            main([str(word) for word in command])
        except SystemExit as done:
            code = int(done.code or 0)
        finally:
            os._exit(code)
    return process


def shape(directory: Path) -> frozenset[tuple[str, int, int]]:
    """What can be seen of a directory that is being written."""
    found = set()
    for path in directory.rglob("*"):
        try:
            about = path.stat()
        except FileNotFoundError:
            continue
        found.add((path.name, about.st_size, about.st_mtime_ns))
    return frozenset(found)


def watched(
    command: list[Any], directory: Path, kill_at: int | None = None, kill_after: float = float("inf")
) -> tuple[int, int, float]:
    """Run a command; how it ended, how many changes of the directory were seen, and the seconds it took.

    At one of the changes, or after some seconds, it is killed.
    """
    begin, before, seen = time.monotonic(), shape(directory), 0
    process = forked(command)
    while True:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), seen, time.monotonic() - begin
        now = shape(directory)
        seen, before = seen + (now != before), now
        if seen == kill_at or time.monotonic() - begin > kill_after:
            time.sleep(RANDOM.uniform(0, 0.002))  # between changes too
            os.kill(process, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), seen, 0


def killed_often(
    what: str,
    prepared: Callable[[Path], list[Any]],
    place: Path,
    state: Callable[[Path], object],
    allowed: Callable[[object], bool],
    outcome: str,
) -> None:
    """Kill a command that writes a directory, look at what is left, and run it again: it must end as if undisturbed.

    ``prepared`` makes the directory as it is before, and gives the command. ``state`` is what the directory says, and
    ``allowed`` which states a kill may leave.
    """
    whole = place / "whole"
    code, changes, seconds = watched(prepared(whole), whole)
    right, hits, broken = state(whole), 0, []
    if code != 0:
        broken.append(f"undisturbed it ends with {code}")
    for number in range(KILLS * TRIES):
        if hits == KILLS or len(broken) > 3:
            break
        directory = place / f"killed{number}"
        command = prepared(directory)
        by_time = RANDOM.random() < 0.5
        moment = (
            {"kill_after": RANDOM.uniform(0, seconds)} if by_time else {"kill_at": RANDOM.randint(1, max(1, changes))}
        )
        code = watched(command, directory, **moment)[0]
        if code != -signal.SIGKILL:
            continue  # too late
        hits += 1
        left = state(directory)
        if left != right and not allowed(left):
            broken.append(f"left {left}")
        code = watched(command, directory)[0]
        if code != 0 or state(directory) != right:
            broken.append(f"run again it ends with {code}, as {state(directory)}")
        shutil.rmtree(directory)
    row(what, hits, "; ".join(broken[:3]) or outcome, not broken)


def state_of_store(store: Path) -> object:
    """The fingerprint of the pixels that it holds, None if there is none yet, or what is wrong."""
    try:
        images = ImageSet.open(store)
    except PatchtraceError as error:
        return None if not store.exists() or "not finished" in str(error) or not any(store.iterdir()) else str(error)
    if problems := Store(store).verify():
        return str(problems)
    return ImageSet(images.pixels[:], images.ids).fingerprint()


def stores(place: Path) -> None:
    """Index, update and gc of a store."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 256, (3000, 3, 16, 16), dtype=np.uint8)
    second = np.concatenate([first[:1000], 255 - first[1000:2000], first[2500:]])
    for number, pixels in enumerate((first, second)):
        np.save(place / f"{number}.npy", pixels)
        os.utime(place / f"{number}.npy", (LONG_AGO, LONG_AGO + number))
    source, begun, updated = place / "source.npy", place / "begun", place / "updated"

    def index(number: int, store: Path) -> list[Any]:
        shutil.copy2(place / f"{number}.npy", source)
        return ["index", source, "-o", store, "--jobs", 1, "-q"]

    def from_nothing(store: Path) -> list[Any]:
        return index(0, store)

    def from_begun(store: Path) -> list[Any]:
        shutil.copytree(begun, store)
        return index(1, store)

    def from_updated(store: Path) -> list[Any]:
        shutil.copytree(updated, store)
        return ["store", "gc", store]

    watched(index(0, begun), begun)
    shutil.copytree(begun, updated)
    watched(index(1, updated), updated)
    before, after = state_of_store(begun), state_of_store(updated)
    for verb, prepared, old in (
        ("index", from_nothing, None),
        ("update", from_begun, before),
        ("gc", from_updated, after),
    ):
        (place / verb).mkdir()
        killed_often(
            f"kill -9 of {verb} of a store at random moments",
            prepared,
            place / verb,
            state_of_store,
            lambda left, old=old: left == old,
            "old state or new, then whole",
        )


def tiny(place: Path) -> tuple[Path, Path]:
    """A network of a few thousand parameters, and pictures for it."""
    network, pictures = place / "tiny.json", place / "pictures.npy"
    network.write_text(json.dumps({**TINY, "dropout": 0.1}))
    np.save(pictures, np.random.default_rng(1).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8))
    return network, pictures


def files(directory: Path, *patterns: str) -> object:
    """The content of files."""
    return {
        str(path.relative_to(directory)): digest(path.read_bytes().hex())
        for pattern in patterns
        for path in sorted(directory.glob(pattern))
    }


def weights(directory: Path, pattern: str) -> object:
    """The tensors of files: the order of what their headers say about them is left to chance."""
    return {str(path.relative_to(directory)): checksum(load_file(path)) for path in sorted(directory.glob(pattern))}


def judged(table: Path) -> list[dict[str, str]]:
    """The rows of a table, without the seconds that scoring took."""
    if not table.is_file():
        return []
    with table.open(newline="", encoding="utf-8") as stream:
        return [{name: value for name, value in line.items() if name != "seconds"} for line in csv.DictReader(stream)]


def training(place: Path) -> None:
    """Training of a model, which saves its state after every step here."""
    training_module.SAVE_EVERY = -1.0
    torch.set_num_threads(1)
    network, pictures = tiny(place)
    options = ["--train", pictures, "--model", network, "--epochs", 6, "--batch", 4, "--checkpoints", 2, "-q"]
    (place / "train").mkdir()
    killed_often(
        "kill -9 of train at random moments",
        lambda directory: ["train", *options, "-o", directory],
        place / "train",
        lambda directory: weights(directory, "**/diffusion_pytorch_model.safetensors"),
        lambda left: True,
        "run again, the same weights",
    )


def evaluation(place: Path) -> None:
    """Training of many models and scoring: `lds`."""
    torch.set_num_threads(1)
    network, pictures = tiny(place)
    trained = ["--train", pictures, "--queries", pictures, "--model", network, "--epochs", 1, "--batch", 4]
    options = ["--subsets", 3, "--loss-timesteps", 2, "--loss-draws", 1, "--method", "pixel", "--threads", 1, "-q"]
    (place / "lds").mkdir()
    killed_often(
        "kill -9 of lds at random moments",
        lambda directory: ["lds", *trained, *options, "-o", directory],
        place / "lds",
        lambda directory: (files(directory, "truth.npz"), judged(directory / "lds.csv")),
        lambda left: True,
        "run again, the same truth and table",
    )


if __name__ == "__main__":
    campaign("kills", stores, training, evaluation)
