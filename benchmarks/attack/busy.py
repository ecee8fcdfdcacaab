"""How much longer a query takes while ten other processes want the same cores, against its fair share of them.

.venv/bin/python -m benchmarks.attack.busy    # half a minute on two cores that nobody else uses

With B busy processes beside T threads, a query that could use all cores has T / (B + T) of them: with ten and two it
should take 6 times as long. Root runs all of this, the busy processes too, at the highest priority, so that other work
on the machine hardly counts.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.attack.rows import campaign, row

from patchtrace import NDA, ImageSet, Recipe
from patchtrace.compute import Compute
from patchtrace.engines.native import default_threads

BUSY, ROUNDS = 10, 3
#: What is held to: times the fair share.
MOST = 1.5
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


def ratios(_: Path) -> None:
    """Alone and beside busy processes in turn, the least of each."""
    with suppress(OSError):  # only root may
        os.nice(-20)  # within this session, and this session among others:
        Path("/proc/self/autogroup").write_text("-20")
    threads, rng = default_threads(), np.random.default_rng(0)
    fair = (BUSY + threads) / threads
    for what, (side, count, queries) in CASES.items():
        made = [
            ImageSet(rng.integers(0, 256, (n, 3, side, side), dtype=np.uint8), tuple(map(str, range(n))))
            for n in (count, queries)
        ]
        draws = 1 if queries > 1 else 8
        method = NDA(replace(Recipe.for_size(side, side), draws=draws), compute=Compute(threads=threads)).fit(made[0])
        method.attribute(made[1])
        times: dict[int, list[float]] = {0: [], BUSY: []}
        for _ in range(ROUNDS):
            for others, taken in times.items():
                with busy(others):
                    begin = time.monotonic()
                    method.attribute(made[1])
                    taken.append(time.monotonic() - begin)
        alone, beside = min(times[0]), min(times[BUSY])
        outcome = (
            f"{alone:.2f} s alone, {beside:.2f} s beside {BUSY} busy processes: {beside / alone:.1f} times as long; "
            f"the fair share of {threads} threads would make it {fair:.1f} times"
        )
        row(f"queries of {what} while the cores are taken", ROUNDS, outcome, beside / alone < MOST * fair)


if __name__ == "__main__":
    campaign("busy", ratios)
