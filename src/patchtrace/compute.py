"""How work is computed: one object that travels whole from the command line to the engine."""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchtrace.checks import brief, store, whole
from patchtrace.errors import PatchtraceError

DEFAULT_MEMORY = "1GB"
#: Bytes of scratch memory that an engine may take under any budget.
LEAST_SCRATCH = 64_000_000
#: Threads, or processes that are started here: each needs a stack and scratch memory of its own.
MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class Compute:
    """How work is computed. None of it changes a result beyond the last digits.

    Parameters
    ----------
    engine : str, default "auto"
        The fastest that is installed, or one of ``patchtrace.engines.ENGINES``.
    device : str, optional
        PyTorch device, such as ``"cuda:1"``, for engines and methods that use PyTorch.
    threads : int, optional
        Number of threads; by default as many as the process may use.
    memory : str or int, default "1GB"
        Working memory to stay within, such as ``"500MB"`` or a number of bytes. On a cluster, that of each process.
        Stored in bytes.
    cluster : str, optional
        Address of a dask scheduler, such as ``"tcp://host:8786"``, or ``"local:4"`` for four processes here.

    Examples
    --------
    >>> Compute(threads=2, memory="500MB")
    Compute(engine='auto', device=None, threads=2, memory=500000000, cluster=None)
    >>> Compute(threads=0)
    Traceback (most recent call last):
        ...
    patchtrace.errors.PatchtraceError: threads is 0: use a whole number of at least 1
    """

    engine: str = "auto"
    device: str | None = None
    threads: int | None = None
    memory: str | int = DEFAULT_MEMORY
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            store(self, threads=whole("threads", self.threads, 1, most=MOST_THREADS))
        store(self, memory=parse_memory(self.memory))
        if self.cluster is not None:
            _, local, count = self.cluster.partition("local:")
            if not self.cluster or (local and not (count.isdecimal() and 0 < int(count[:9]) <= MOST_THREADS)):
                raise PatchtraceError(
                    f"cluster is {self.cluster!r}: use the address of a dask scheduler, such as tcp://host:8786, "
                    "or local:N with a number of workers, such as local:4"
                )

    @property
    def budget(self) -> Budget:
        """The working memory, split."""
        assert isinstance(self.memory, int)
        return Budget(self.memory)


@dataclass(frozen=True)
class Budget:
    """Bytes of working memory, and the only place that says which part of them goes where.

    A quarter each: pixels and answers of the block at work, the engine's own scratch memory, answers that wait for the
    normaliser of the whole set, and versions of a query that are compared in one call; between two comparisons, what
    is kept of them.
    """

    total: int

    @property
    def quarter(self) -> int:
        return self.total // 4

    block = quarter  # pixels of a block and the answer to it
    scratch = quarter  # what an engine needs while it works on a block
    waiting = quarter  # answers until the normaliser of the whole set is known; what is beyond it goes to a file
    versions = quarter  # answers of one block about all versions of a query at once
    cached = quarter  # what is kept between two comparisons: downscaled pictures, parts of scores

    def without(self, used: int) -> Budget:
        """What is left after ``used`` bytes."""
        return Budget(self.total - used)


def parse_memory(memory: str | int) -> int:
    """Bytes, from a number or from text such as ``"500MB"`` or ``"2 GiB"``.

    >>> parse_memory("1.5GB")
    1500000000
    """
    if isinstance(memory, int) and not isinstance(memory, bool):
        count = memory
    else:
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(memory).lower())
        if not match:
            raise PatchtraceError(f"memory is {brief(memory)}: use a size such as '500MB' or '2GB'")
        number, prefix, binary = match.groups()
        count = int(min(float(number), 1e15) * (1024 if binary else 1000) ** " kmgt".index(prefix or " "))
    if count < 10_000_000:
        raise PatchtraceError(f"memory is {brief(memory)}: use at least 10MB")
    return count
