"""Random cases of every kind that the engine contract allows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from patchtrace.engines import Comparison, NoisyQuery

SMALL = st.integers(1, 11)
LARGE = st.integers(16, 20)


class Case(NamedTuple):
    query: NoisyQuery
    block: NDArray[np.float32]
    comparison: Comparison


@st.composite
def cases(
    draw: st.DrawFn,
    sides: st.SearchStrategy[int] = SMALL,
    most_images: int = 5,
    borders: tuple[str, ...] = ("match", "zero", "valid"),
) -> Case:
    height, width = draw(sides), draw(sides)
    patch = draw(st.integers(1, min(height, width)))
    comparison = Comparison(
        patch=patch,
        pool=draw(st.integers(1, patch)),
        pooling=draw(st.sampled_from(["orthonormal", "mean"])),
        border=draw(st.sampled_from(borders)),
        k=draw(st.one_of(st.integers(1, 12), st.just(10_000))),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 5)), height, width)
    abar = np.array(draw(st.lists(st.floats(0.0, 0.9995), min_size=1, max_size=2)))
    block = rng.integers(0, 256, (draw(st.integers(1, most_images)), *shape)) / 127.5 - 1
    noise = rng.standard_normal((len(abar), *shape))
    # half of the queries come from the block, so that some weights are large and some vanish
    clean = block[0] if draw(st.booleans()) else rng.uniform(-1, 1, shape)
    signal, sigma = (np.sqrt(x)[:, None, None, None] for x in (abar, 1 - abar))
    if draw(st.booleans()):
        query = NoisyQuery.of(clean, noise, float(np.sqrt(abar[0])), float(np.sqrt(1 - abar[0])), patchwork=True)
    else:
        query = NoisyQuery((signal * clean + sigma * noise).astype(np.float32), np.sqrt(abar), 1 - abar)
    return Case(query, block.astype(np.float32), comparison)
