"""The C++ kernel: exact, on all cores, with the vector instructions that the processor has.

See ``native/tables.inl`` for how it works and ``docs/performance.md`` for how fast it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import LEAST_SCRATCH, MOST_THREADS, Compute
from patchtrace.engines.contract import BlockResult, Comparison, Engine, Patchwork, Question, turned
from patchtrace.engines.preparation import Colour, query_terms
from patchtrace.errors import PatchtraceError

_CURE = "install it again where there are a C++ compiler and the headers of Python (apt-get install g++ python3-dev)"
_kernel: ModuleType | None
_reason = ""
try:
    _kernel = import_module("patchtrace._native")  # `from` would call a missing file a circular import
except ImportError as error:  # installed without a compiler, or a library that it needs is gone
    _kernel, _reason = None, str(error)


def available() -> bool:
    """Whether the kernel was built when patchtrace was installed."""
    return _kernel is not None


def kernel() -> ModuleType:
    """The compiled module."""
    if _kernel is None:
        raise PatchtraceError(
            f"the native engine was not built when patchtrace was installed ({_reason}): {_CURE}, "
            "or use engine='blocked'"
        )
    return _kernel


class NativeEngine(Engine):
    """C++ in float32; in float64 where the rounding of float32 would show.

    Parameters
    ----------
    threads : int, optional
        By default as many as the process may use (``OMP_NUM_THREADS`` if that is set).
    instructions : str, optional
        One of ``instruction_sets()``, for tests and benchmarks; by default the fastest.
    """

    name = "native"
    description = "C++ on all cores"
    rank = 0
    pairs_at_once = 2 * 10**8

    @classmethod
    def create(cls, compute: Compute, instructions: str = "") -> Self:
        super().create(compute)  # refuses a device
        if instructions and instructions not in instruction_sets():
            raise PatchtraceError(f"this processor does not have {instructions}: use machines of one kind")
        return cls(compute.threads, instructions or None)

    @classmethod
    def suits(cls, compute: Compute, pairs: int) -> bool:
        return compute.device is None and available()

    @classmethod
    def status(cls) -> tuple[bool, str]:
        if not available():
            return False, f"not built when patchtrace was installed ({_reason}); {_CURE}"
        sets, cache = instruction_sets(), kernel().second_level_cache() // 1024
        return True, f"{sets[0]} (of {', '.join(sets)}), {default_threads()} threads, {cache} KB cache a core"

    def __init__(self, threads: int | None = None, instructions: str | None = None) -> None:
        self.threads = threads or default_threads()
        self.instructions = instructions or instruction_sets()[0]

    def least_bytes(self, comparison: Comparison, shape: tuple[int, int, int]) -> int:
        """The tables of one thread, in float64."""
        return self._scratch(comparison, shape, patchwork=False)  # only small pictures have a patchwork

    def _scratch(self, comparison: Comparison, shape: tuple[int, int, int], *, patchwork: bool) -> int:
        sizes = *_axes(comparison, shape[1:]), comparison.taps, comparison.pool
        return int(kernel().scratch_bytes(*shape, *sizes, patchwork, True, self.instructions))

    def compare(self, question: Question) -> BlockResult:
        """See :class:`patchtrace.engines.contract.Engine`.

        Each thread works on one image, in tables of about the size of the second-level cache; those of large pictures
        take more, and fewer threads work then.
        """
        query, comparison = question.query, question.comparison
        channels, height, width = question.block.shape[1:]
        rows, columns = _axes(comparison, (height, width))
        each = self._scratch(comparison, (channels, height, width), patchwork=query.noise is not None)
        block = np.ascontiguousarray(question.block, dtype=np.float32)
        pictures = np.ascontiguousarray(question.pictures, dtype=np.float32)
        mean, squares = kernel().colour(pictures, comparison.border != "zero", self.threads)
        mean = np.array(mean)
        terms = [query_terms(version, Colour(mean, squares), comparison) for version in query]
        offset = np.stack([term.offset for term in terms])
        normaliser = np.empty_like(offset)
        share = np.empty((*offset.shape, len(block)), dtype=np.float32)
        wide = np.array([term.dtype == np.float64 for term in terms])
        patchwork: dict[str, NDArray[Any]] = {}
        if query.noise is not None:
            wide[:] = wide.any()  # what versions have in common is computed once, in one precision
            work = Patchwork.of(comparison, *block.shape[2:])
            noise = np.ascontiguousarray(query.noise, dtype=np.float32)
            patchwork = {"noise": noise, "turned": turned(noise), "signs": work.signs}
            patchwork |= {"noise_rows": work.rows, "noise_columns": work.columns}
            patchwork["turned_rows"] = np.asarray(work.turned.any(axis=1))
        colour_sums = np.empty((*share.shape, block.shape[1]), dtype=np.float32) if question.colours else None
        kernel().compare(
            versions=np.ascontiguousarray(query.versions, dtype=np.float32),
            signal=query.signal,
            variance=query.variance,
            wide=wide,
            block=block,
            train_colour=mean,
            query_colour=query.signal[:, None] * mean,
            rows=rows,
            columns=columns,
            taps=comparison.taps,
            pool=comparison.pool,
            middle=comparison.middle(block.shape[2]).start,
            divisor=float(comparison.pool_divisor),
            k=comparison.k,
            instructions=self.instructions,
            threads=max(1, min(self.threads, max(question.memory, LEAST_SCRATCH) // each)),
            log_normaliser=normaliser,
            share=share,
            colour=colour_sums,
            **patchwork,
        )
        return BlockResult(normaliser + offset, share, colour_sums)


def _axes(comparison: Comparison, size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """The rows and the columns of patches, as the kernel takes them."""
    for axis in map(comparison.axis, size):
        yield axis.pad, axis.positions, axis.interior.start, len(axis.interior)


def instruction_sets() -> list[str]:
    """The instruction sets that this processor has, the fastest first."""
    return list(kernel().instruction_sets())


def default_threads() -> int:
    """``OMP_NUM_THREADS``, or as many as the process may use."""
    configured = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    number = int(configured[:9]) if configured.isdecimal() else 0
    return min(number, MOST_THREADS) if number > 0 else int(kernel().processors())
