"""How the patch softmax is computed: several engines, one contract, the same numbers."""

from __future__ import annotations

import warnings

from patchtrace.compute import Compute
from patchtrace.engines import blocked, convolution, native, reference, torch  # they register themselves
from patchtrace.engines.contract import ENGINES, BlockResult, Comparison, Engine, NoisyQuery, Patchwork, Question
from patchtrace.engines.fold import Blocks, Job, LocalWork, Rest, Work
from patchtrace.engines.torch import has_gpu
from patchtrace.errors import PatchtraceError


class SlowEngineWarning(UserWarning):
    """The native engine is missing, and a slower one is used."""


def engine_names() -> list[str]:
    """The names of all engines, the fastest on an ordinary computer first.

    >>> engine_names()[0]
    'native'
    """
    return sorted(ENGINES, key=lambda name: ENGINES[name].rank)


def get_engine(compute: Compute, pairs: int = 0) -> Engine:
    """The engine that the settings name.

    Parameters
    ----------
    compute : Compute
        ``auto`` is the fastest that works here: native; where that was not built, torch if the work is large and there
        is a GPU, else blocked, with a warning.
    pairs : int, default 0
        Number of pairs of patches that will be compared.

    Returns
    -------
    Engine

    Examples
    --------
    >>> get_engine(Compute(engine="reference")).name
    'reference'
    """
    names = engine_names()
    if compute.engine != "auto":
        if compute.engine not in names:
            raise PatchtraceError(f"there is no engine {compute.engine!r}: use one of auto, {', '.join(names)}")
        return ENGINES[compute.engine].create(compute)
    chosen = next(name for name in names if ENGINES[name].suits(compute, pairs))
    if chosen == "blocked":
        warnings.warn(
            "the native engine was not built, so the slower NumPy engine is used; see `patchtrace doctor`",
            SlowEngineWarning,
            stacklevel=2,
        )
    return ENGINES[chosen].create(compute)


__all__ = [
    "ENGINES",
    "BlockResult",
    "Blocks",
    "Comparison",
    "Engine",
    "Job",
    "LocalWork",
    "NoisyQuery",
    "Patchwork",
    "Question",
    "Rest",
    "SlowEngineWarning",
    "Work",
    "blocked",
    "convolution",
    "engine_names",
    "get_engine",
    "has_gpu",
    "native",
    "reference",
    "torch",
]
