"""How the patch softmax is computed: several engines, one contract, the same numbers."""

from __future__ import annotations

import importlib.util
import warnings

from patchtrace.engines import native
from patchtrace.engines.blocked import BlockedEngine
from patchtrace.engines.contract import BlockResult, Comparison, Engine, NoisyQuery, Patchwork
from patchtrace.engines.convolution import ConvolutionEngine
from patchtrace.engines.fold import (
    MOST_IMAGES,
    Blocks,
    Job,
    Masses,
    Rest,
    Total,
    answers,
    compared,
    cut,
    image_masses,
    masses_here,
    summed_masses,
)
from patchtrace.engines.reference import ReferenceEngine
from patchtrace.engines.torch import TorchEngine
from patchtrace.errors import PatchtraceError

#: By name, the fastest on an ordinary computer first.
ENGINES = {
    "native": "C++ on all cores",
    "torch": "PyTorch, on a GPU or any other device",
    "blocked": "NumPy, on one core",
    "convolution": "PyTorch, as in the paper, to compare with",
    "reference": "the formula in float64, slow, to check against",
}
#: Pairs of patches from which on it pays to look for a GPU: importing PyTorch alone takes seconds.
MANY_PAIRS = 10**10


class SlowEngineWarning(UserWarning):
    """The fast engine is not there, and a slower one does the work."""


def get_engine(name: str, *, threads: int | None = None, device: str | None = None, pairs: int = 0) -> Engine:
    """An engine by name.

    Parameters
    ----------
    name : str
        One of ``ENGINES``, or ``auto``: native; where that was not built, torch if the work is large and there is a
        GPU, else blocked, with a warning.
    threads : int, optional
        How many to use, where an engine uses threads. Without it, as many as the process may.
    device : str, optional
        Of the torch engines, such as ``cuda:1``.
    pairs : int
        How many pairs of patches will be compared: how large the work is.
    """
    if name != "auto" and name not in ENGINES:
        raise PatchtraceError(f"no engine is called {name!r}: use auto, {', '.join(ENGINES)}")
    if threads is not None and threads < 1:
        raise PatchtraceError(f"threads is {threads}: use 1 or more")
    if name == "auto":
        name = _fastest(device, pairs)
    if name == "torch":
        return TorchEngine(device=device, threads=threads)
    if name == "convolution":
        return ConvolutionEngine(device=device, threads=threads)
    if device is not None:
        raise PatchtraceError(f"device is {device!r}: the engine {name} has none, use engine='torch'")
    if name == "native":
        return native.NativeEngine(threads=threads)
    return BlockedEngine() if name == "blocked" else ReferenceEngine()


def _fastest(device: str | None, pairs: int) -> str:
    if device is not None:
        return "torch"
    if native.available():
        return "native"
    if pairs >= MANY_PAIRS and has_gpu():
        return "torch"
    warnings.warn(
        "the native engine was not built, so the slower one in NumPy does the work; `patchtrace doctor` says more",
        SlowEngineWarning,
        stacklevel=3,
    )
    return "blocked"


def has_gpu() -> bool:
    """Whether PyTorch is installed and sees a GPU of the CUDA kind."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


__all__ = [
    "ENGINES",
    "MOST_IMAGES",
    "BlockResult",
    "Blocks",
    "Comparison",
    "Engine",
    "Job",
    "Masses",
    "NoisyQuery",
    "Patchwork",
    "Rest",
    "SlowEngineWarning",
    "Total",
    "answers",
    "compared",
    "cut",
    "get_engine",
    "has_gpu",
    "image_masses",
    "masses_here",
    "summed_masses",
]
