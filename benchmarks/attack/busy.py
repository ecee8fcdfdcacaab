"""How much longer a query takes while ten other processes want the same cores, against its fair share of them.

.venv/bin/python -m benchmarks.attack.busy    # half a minute on two cores that nobody else uses

With B busy processes beside T threads, a query that could use all cores has T / (B + T) of them: with ten and two it
should take 6 times as long. Root runs all of this, the busy processes too, at the highest priority, so that other work
on the machine hardly counts. What it still counts for is seen by a control in the same run: as many threads that hash
bytes and never wait for each other.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.attack.rows import campaign, row

from patchtrace import NDA, ImageSet, Recipe
from patchtrace.compute import Compute
from patchtrace.engines.native import default_threads

BUSY, ROUNDS = 10, 3
#: What is held to: times the fair share, or what the control took if that is more.
MOST = 1.5
#: Bytes that each thread of the control hashes.
HASHED = bytes(1 << 28)
#: Side of the pictures, their number, queries: few images make calls of a millisecond, many make long ones.
CASES = {"calls of a millisecond": (16, 20, 40), "calls of half a millisecond": (8, 20, 80), "long calls": (32, 60, 1)}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that do nothing but run."""
    processes = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def first() -> Iterator[None]:
    """At the highest priority, where that is allowed: within this session, and this session among others."""
    session = Path("/proc/self/autogroup")
    before = session.read_text().split()[-1] if session.exists() else ""
    with suppress(OSError):  # only root may
        os.nice(-20)
        session.write_text("-20")
    try:
        yield
    finally:
        with suppress(OSError):
            session.write_text(before)
            os.nice(20)


def hashing(threads: int) -> None:
    """The control: threads that need a core each and nothing else."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: hashlib.sha256(HASHED).digest(), range(threads)))


def slowdown(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds alone and beside busy processes, in turn; the least of each."""
    times: dict[int, list[float]] = {0: [], BUSY: []}
    for _ in range(ROUNDS):
        for others, taken in times.items():
            with busy(others):
                begin = time.monotonic()
                work()
                taken.append(time.monotonic() - begin)
    return min(times[0]), min(times[BUSY])


def ratios(_: Path) -> None:
    """Queries of short and long calls, each with a control."""
    with first():  # before the first thread of the engine: each has the priority of the one that started it
        for what, (side, count, queries) in CASES.items():
            ratio(what, side, count, queries)


def ratio(what: str, side: int, count: int, queries: int) -> None:
    threads, rng = default_threads(), np.random.default_rng(0)
    fair = (BUSY + threads) / threads
    train, asked = (
        ImageSet(rng.integers(0, 256, (n, 3, side, side), dtype=np.uint8), tuple(map(str, range(n))))
        for n in (count, queries)
    )
    draws = 1 if queries > 1 else 8
    method = NDA(replace(Recipe.for_size(side, side), draws=draws), compute=Compute(threads=threads)).fit(train)
    method.attribute(asked)
    alone, beside = slowdown(lambda: method.attribute(asked))
    free, taken = slowdown(lambda: hashing(threads))
    outcome = (
        f"{alone:.2f} s alone, {beside:.2f} s beside {BUSY} busy processes: {beside / alone:.1f} times as long; "
        f"the fair share of {threads} threads would make it {fair:.1f} times, and a control that only hashes bytes "
        f"took {taken / free:.1f} times as long"
    )
    held = beside / alone < MOST * max(fair, taken / free)
    row(f"queries of {what} while the cores are taken", ROUNDS, outcome, held)


if __name__ == "__main__":
    campaign("busy", ratios)
