"""The native engine beside an earlier build of it, in turns in one run: the tables of docs/performance.md that compare.

    git worktree add /tmp/before COMMIT && pip install --target /tmp/old /tmp/before
    .venv/bin/python benchmarks/beside.py /tmp/old/patchtrace/_native*.so
    .venv/bin/python benchmarks/beside.py /tmp/old/patchtrace/_native*.so avx2 latents
    .venv/bin/python benchmarks/beside.py queries       # 16 queries in one question beside each alone

One thread, processor time, so that a busy machine disturbs little; the better of a few. Ratios are what counts.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from types import ModuleType
from typing import Any

import numpy as np
from engine import MEMORY, block_of, noisy, pictures
from scipy.ndimage import gaussian_filter

from patchtrace import Recipe
from patchtrace.engines import Comparison, NoisyQuery, Question, native, preparation

ROUNDS = 3
#: t, patch, pool
PATCHTRACE = ((100, 5, 1), (200, 7, 1), (300, 9, 1), (400, 11, 1), (500, 13, 1))
CIFAR = ((100, 8, 2), (200, 8, 2), (300, 10, 2), (400, 21, 1), (400, 20, 2))
LATENTS = (1, 4, 16, 32)
K = 100


def module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_native", path)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def latents(channels: int, side: int = 32) -> np.ndarray:
    """Smooth, with something of its own in each channel, standard deviation 0.8: (images, channels, side, side)."""
    noise = np.random.default_rng(0).standard_normal((25, channels, side, side))
    return (0.8 * (0.9 * 7 * gaussian_filter(noise, (0, 0, 2, 2)) + 0.4 * noise)).astype(np.float32)


def questions(chosen: list[str]) -> Any:
    recipe = Recipe.preset("cifar")
    for name, side, images, steps in (
        ("pictures", 32, 120, PATCHTRACE),
        ("pooled", 32, 120, CIFAR),
        ("large", 64, 6, PATCHTRACE[::2]),
    ):
        if name in chosen:
            block = block_of(pictures(images, side))
            for t, patch, pool in steps:
                yield f"{side} x {side}", t, Question(noisy(recipe, t, side), block, how(patch, pool), MEMORY)
    for channels in LATENTS if "latents" in chosen else ():
        block = latents(channels)
        for t, patch in ((100, 3), (300, 5)):
            noise = np.random.default_rng(t).standard_normal((1, *block[0].shape)).astype(np.float32)
            query = NoisyQuery.of(block[-1], noise, *recipe.noise_at(t))
            yield f"{channels} channels", t, Question(query, block[:-1], how(patch, 1), MEMORY)


def how(patch: int, pool: int) -> Comparison:
    return Comparison(patch, pool, "orthonormal", "match", K)


def main(path: str, instructions: str | None = None, *chosen: str) -> None:
    independent = preparation.independent_channels
    builds = ((module(path), lambda _: 1.0), (native.kernel(), independent))  # before, latents were float64 more often
    print("| instructions | pictures | t | patch / pool | before, ns a pair | now | before : now | difference |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    sums = np.zeros(2)
    for name, t, question in questions(list(chosen) or ["pictures", "pooled", "large", "latents"]):
        engine, best, scores = native.NativeEngine(1, instructions), np.full(2, np.inf), [np.zeros(1)] * 2
        for turn in range(2 * ROUNDS):
            build = (turn + turn // 2) % 2  # each is as often the first as the second
            native._kernel, preparation.independent_channels = builds[build]
            begin = time.process_time()
            result: Any = engine.compare(question)
            best[build] = min(best[build], time.process_time() - begin)
            scores[build] = result.share.sum(axis=1, dtype=np.float64)
        images, _, height, width = question.block.shape
        before, now = 1e9 * best / images / question.comparison.pairs(height, width)
        sums += best / images
        step = f"{t} | {question.comparison.patch} / {question.comparison.pool}"
        figures = f"{before:.2f} | {now:.2f} | {before / now:.2f} | {np.abs(scores[0] / scores[1] - 1).max():.0e}"
        print(f"| {engine.instructions} | {name} | {step} | {figures} |", flush=True)
    print(f"all: before : now {sums[0] / sums[1]:.2f}")


def queries() -> None:
    recipe, engine, pool = Recipe.preset("cifar"), native.NativeEngine(1), block_of(pictures(5000))
    print("| t | patch | images in a block | alone, ms for a query and an image | together | together : alone |")
    print("|---|---|---|---|---|---|")
    for t, patch in (PATCHTRACE[0][:2], PATCHTRACE[-1][:2]):
        noise = np.random.default_rng(t).standard_normal((1, *pool[0].shape)).astype(np.float32)
        clean = [NoisyQuery.of(picture, noise, *recipe.noise_at(t)) for picture in pool[-16:]]
        for images in (8, 64):
            best = np.full(2, np.inf)
            for turn in range(2 * ROUNDS):
                asked = [NoisyQuery.joined(clean)] if turn % 2 else clean
                begin = time.process_time()
                for query in asked:
                    engine.compare(Question(query, pool[:images], how(patch, 1), MEMORY))
                best[turn % 2] = min(best[turn % 2], time.process_time() - begin)
            alone, together = 1e3 * best / len(clean) / images
            print(f"| {t} | {patch} | {images} | {alone:.3f} | {together:.3f} | {together / alone:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["queries"]:
        queries()
    else:
        main(*sys.argv[1:])
