"""How the patch softmax is computed: several engines, one contract, the same numbers."""

from patchtrace.engines.blocked import BlockedEngine
from patchtrace.engines.contract import BlockResult, Comparison, Engine, NoisyQuery
from patchtrace.engines.fold import image_masses
from patchtrace.engines.reference import ReferenceEngine
from patchtrace.errors import PatchtraceError

ENGINES: dict[str, type[Engine]] = {"blocked": BlockedEngine, "reference": ReferenceEngine}


def get_engine(name: str) -> Engine:
    """An engine by name; ``auto`` is the fastest one at hand."""
    if name == "auto":
        name = "blocked"
    if name not in ENGINES:
        raise PatchtraceError(f"no engine is called {name!r}: use auto, {', '.join(ENGINES)}")
    return ENGINES[name]()


__all__ = ["ENGINES", "BlockResult", "Comparison", "Engine", "NoisyQuery", "get_engine", "image_masses"]
