"""The torch engine on a GPU beside the native engine on the processor: a table for docs/performance.md.

    .venv/bin/python benchmarks/gpu.py             # the fastest device that PyTorch sees
    .venv/bin/python benchmarks/gpu.py cuda:1
    .venv/bin/python benchmarks/gpu.py cpu 8       # with 8 images, to see that it works

Milliseconds for a query and an image at each level of the default preset, best of three, pictures already in memory;
and how far the scores of the two engines are apart. About five minutes on a GPU and eight processors.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from engine import ROUNDS, block_of, noisy, pictures

from patchtrace import Compute, Recipe
from patchtrace.engines import Comparison, Engine, Question, get_engine
from patchtrace.engines.torch import device_named

SIZES = ((32, 2048), (64, 512))
MEMORY = 4 << 30


def best(engine: Engine, question: Question) -> tuple[float, Any]:
    """Seconds and the answer. It is on the host, so that nothing is still under way on the device."""
    answer, seconds = engine.compare(question), np.inf  # the first call builds and fetches what later ones find
    for _ in range(ROUNDS - 1):
        begin = time.perf_counter()
        answer = engine.compare(question)
        seconds = min(seconds, time.perf_counter() - begin)
    return seconds, answer


def name_of(device: Any) -> str:
    import torch

    return str(torch.cuda.get_device_name(device)) if device.type == "cuda" else str(device)


def main(device: str | None = None, most: int = 10**6) -> None:
    chosen = device_named(device)
    on_device = get_engine(Compute(engine="torch", device=str(chosen)))
    native = get_engine(Compute(engine="native"))
    print(f"PyTorch on {name_of(chosen)}, native ({native.instructions})\n")
    print("| pictures | images | t | patch | native, ms an image | torch, ms an image | native : torch | difference |")
    print("|---|---|---|---|---|---|---|---|")
    recipe = Recipe.preset("patchtrace")
    for side, usual in SIZES:
        images = min(usual, most)
        block = block_of(pictures(images, side))
        for level in recipe.levels:
            how = Comparison.of(level.scales[0], recipe)
            question = Question(noisy(recipe, level.t, side), block, how, MEMORY)
            (ours, right), (theirs, found) = best(native, question), best(on_device, question)
            scores, expected = (one.share.sum(axis=1, dtype=np.float64) for one in (found, right))
            difference = np.abs(scores / expected - 1).max()
            times = f"{1e3 * ours / images:.3f} | {1e3 * theirs / images:.3f} | {ours / theirs:.1f}"
            what = f"{side} x {side} | {images} | {level.t} | {how.patch}"
            print(f"| {what} | {times} | {difference:.0e} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
