"""Lanes across training images (benchmarks/lanes.cpp) against the native engine: the last table of docs/performance.md.

    .venv/bin/python benchmarks/lanes.py

One thread, processor time, in turns, best of four. The native engine also prepares pictures and does the patches over
the border; of the other only the three stages are counted.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from engine import HERE, MEMORY, ROUNDS, block_of, noisy, pictures

from patchtrace import Recipe
from patchtrace.engines import Comparison, Question
from patchtrace.engines.native import NativeEngine, instruction_sets

IMAGES, SIDE, K = 128, 32, 100
OPTIONS = {
    "avx512": ["-DPATCHTRACE_VECTOR=64", "-mavx512f", "-mavx512vl", "-mavx512bw", "-mavx512dq", "-mfma"],
    "avx2": ["-DPATCHTRACE_VECTOR=32", "-mavx2", "-mfma"],
}


def built(instructions: str, folder: str) -> ctypes.CDLL:
    program = Path(folder) / f"{instructions}.so"
    flags = ["-O3", "-std=c++17", "-shared", "-fPIC", "-ffp-contract=fast", "-w", "-mprefer-vector-width=512"]
    source = [f"-I{HERE.parent / 'native'}", str(HERE / "lanes.cpp"), "-o", str(program)]
    subprocess.run(["g++", *flags, *OPTIONS[instructions], *source], check=True)
    return ctypes.CDLL(str(program))


def lanes(library: ctypes.CDLL, question: Question) -> tuple[np.ndarray, np.ndarray]:
    """Scores over interior patches (images,), and what lanes.cpp measured."""
    patch, query = question.comparison.patch, question.query
    shape = len(question.block), (SIDE - patch + 1) ** 2
    peak, total, top = np.empty(shape), np.empty(shape, np.float32), np.empty(shape, np.float32)
    facts, pixels = np.empty(4), np.ascontiguousarray(query.versions[0])
    at = [ctypes.c_void_p(array.ctypes.data) for array in (pixels, question.block, peak, total, top, facts)]
    factors = ctypes.c_double(query.signal[0]), ctypes.c_double(query.variance[0])
    library.lanes(patch, SIDE, ctypes.c_long(K), at[0], *factors, at[1], ctypes.c_long(shape[0]), *at[2:])
    normaliser = np.logaddexp.reduce(peak + np.log(total.astype(np.float64)), axis=0)
    return (np.exp(peak - normaliser) * top).sum(axis=1), facts


def row(t: int, patch: int, instructions: str, library: ctypes.CDLL, block: np.ndarray) -> str:
    how = Comparison(patch, 1, "orthonormal", "match", K)
    question = Question(noisy(Recipe.preset("cifar"), t, SIDE), block, how, MEMORY)
    engine = NativeEngine(1, instructions)
    native, best = np.inf, np.full(4, np.inf)
    for _ in range(ROUNDS):
        begin = time.process_time()
        answer: Any = engine.compare(question)
        native = min(native, time.process_time() - begin)
        scores, facts = lanes(library, question)
        best = min(best, facts, key=lambda one: one[:3].sum())
    axis = how.axis(SIDE)
    inside = slice(axis.interior.start, axis.interior.stop)
    share = answer.share[0].reshape(axis.positions, axis.positions, -1)[inside, inside]
    stages = best[:3].sum()
    scale = 1e9 / IMAGES / len(axis.interior) ** 4
    parts = " | ".join(f"{scale * part:.2f}" for part in (native, stages, *best[:3]))
    difference = np.abs(scores / share.sum(axis=(0, 1), dtype=np.float64) - 1).max()
    return f"| {instructions} | {t} | {patch} | {parts} | {best[3]:.1f} | {native / stages:.2f} | {difference:.0e} |"


def main() -> None:
    block = block_of(pictures(IMAGES))
    columns = (
        "instructions",
        "t",
        "patch",
        "native",
        "lanes",
        "S",
        "logits",
        "sums",
        "passes",
        "native : lanes",
        "difference",
    )
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for instructions in filter(OPTIONS.get, instruction_sets()):
            library = built(instructions, folder)
            for t, patch in ((100, 5), (200, 7), (300, 9), (500, 13)):
                print(row(t, patch, instructions, library, block), flush=True)


if __name__ == "__main__":
    main()
