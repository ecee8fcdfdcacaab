"""How the patch softmax is computed: several engines, one contract, the same numbers."""

from __future__ import annotations

import warnings

from patchtrace.compute import Compute
from patchtrace.engines import blocked, convolution, native, reference, torch  # noqa: F401  # they register
from patchtrace.engines.contract import ENGINES, BlockResult, Comparison, Engine, NoisyQuery, Patchwork, Question
from patchtrace.engines.fold import Blocks, Job, LocalWork, Rest, Sampled, Work, check_room, sampled_masses
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
    names, chosen = engine_names(), compute.engine
    if chosen == "auto":
        chosen = next(name for name in names if ENGINES[name].suits(compute, pairs))
        if chosen == "blocked":
            missing = "the native engine was not built, so the slower NumPy engine is used; see `patchtrace doctor`"
            warnings.warn(missing, SlowEngineWarning, stacklevel=2)
    if chosen not in names:
        raise PatchtraceError(f"there is no engine {chosen!r}: use one of auto, {', '.join(names)}")
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
    "Sampled",
    "SlowEngineWarning",
    "Work",
    "check_room",
    "engine_names",
    "get_engine",
    "sampled_masses",
]
