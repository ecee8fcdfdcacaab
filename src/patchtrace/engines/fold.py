"""From blocks to the whole set, exactly, within a memory budget.

What an image has in the whole needs the normaliser over the whole set, which is known only after the last block. Until
then the answers for each block wait in memory, or in a temporary file if the budget does not hold them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Budget
from patchtrace.engines.contract import BlockResult, Comparison, Engine, NoisyQuery
from patchtrace.images import ImageSet

#: Larger blocks are no faster.
MOST_IMAGES = 2048
#: Patches of the query times images in a block of :func:`cut`: what keeps the answer for 16 versions below 250 MB.
MOST_ANSWERS = 400_000
#: Pairs of patches in a run of blocks, or patches of the query times images: normalisers are added up run by run.
PAIRS_OF_A_RUN, ANSWERS_OF_A_RUN = 10**9, 4_000_000


class Rest(NamedTuple):
    """Images that stand for many more: each counts ``weight`` times in normalisers, and nowhere else."""

    images: ImageSet
    weight: float


class Job(NamedTuple):
    """A query to be compared with the whole set.

    ``progress`` is called with the number of images done since the last call, each counted once for each version.
    """

    query: NoisyQuery
    comparison: Comparison
    progress: Callable[[int], None] | None = None


class Work(Protocol):
    """Something that does jobs: this process, or a cluster. All give the same numbers."""

    def masses(self, jobs: Iterable[Job]) -> Iterator[NDArray[np.float64]]:
        """Top-k mass of every training image, summed over the query's patches: (versions, train) for each job.

        Without the cut at k the masses of a version sum to its number of patches, with a ``rest`` to less.
        """
        ...


class LocalWork(NamedTuple):
    """Does jobs in this process, one after the other."""

    engine: Engine
    train: ImageSet
    budget: Budget
    rest: Rest | None = None

    def masses(self, jobs: Iterable[Job]) -> Iterator[NDArray[np.float64]]:
        """See :class:`Work`."""
        for query, comparison, progress in jobs:
            size, run, group = cut(self.engine, query, self.train, comparison, self.budget)
            parts = []
            for first in range(0, len(query), group):
                some = query.part(first, first + group)
                total = Total(run)
                with _Waiting(self.budget.waiting) as waiting:
                    for block in answers(self.engine, some, self.train, comparison, self.budget, size):
                        total.add(block.log_normaliser)
                        waiting.put(block)
                        if progress:
                            progress(len(some) * block.share.shape[2])
                    blocks = Blocks(total.whole(), waiting)
                    if self.rest:
                        rest = Total(run)
                        for block in answers(self.engine, some, self.rest.images, comparison, self.budget, size):
                            rest.add(block.log_normaliser)
                            if progress:
                                progress(len(some) * block.share.shape[2])
                        blocks.count_in(rest.whole(), self.rest.weight)
                    parts.append(np.concatenate([summed_masses(part, block) for part, block in blocks], axis=1))
            yield np.concatenate(parts)


def cut(
    engine: Engine, query: NoisyQuery, train: ImageSet, comparison: Comparison, budget: Budget
) -> tuple[int, int, int]:
    """How many images make a block, how many blocks a run, and how many versions of the query are compared at once.

    How a set is cut decides how sums are rounded. So blocks and runs depend only on what is compared, not on where,
    unless the memory is too small for them. Versions go together as far as their answers can wait in memory: fewer at
    once are better than answers that wait on disk.
    """
    patches = comparison.patches(*train.shape[1:])
    pairs = comparison.pairs(*train.shape[1:]) * comparison.sides
    size = min(MOST_IMAGES, MOST_ANSWERS // patches, engine.pairs_at_once // pairs)
    size = max(1, min(size, block_size(patches, train, budget)))
    waiting = budget.waiting // (4 * patches * len(train))
    working = budget.versions // (4 * 8 * patches * size)
    run = min(PAIRS_OF_A_RUN // (size * pairs), ANSWERS_OF_A_RUN // (size * patches))
    return size, max(1, run), max(1, min(len(query), waiting, working))


class Total:
    """The sum of normalisers, which come in the order of their blocks: first within each run, then over runs."""

    def __init__(self, run: int) -> None:
        self._run, self._blocks = run, 0
        self._whole: NDArray[np.float64] | None = None
        self._current: NDArray[np.float64] | None = None

    def add(self, log_normaliser: NDArray[np.float64]) -> None:
        """One more block."""
        self._current = _sum(self._current, log_normaliser)
        self._blocks += 1
        if self._blocks % self._run == 0:
            self.add_run(self._current)
            self._current = None

    def add_run(self, log_normaliser: NDArray[np.float64]) -> None:
        """One more run, whose blocks have been added up."""
        self._whole = _sum(self._whole, log_normaliser)

    def whole(self) -> NDArray[np.float64]:
        """The normaliser of all blocks so far."""
        if self._current is None:
            assert self._whole is not None, "a set has at least one image"
            return self._whole
        return _sum(self._whole, self._current)


def _sum(one: NDArray[np.float64] | None, other: NDArray[np.float64]) -> NDArray[np.float64]:
    return other if one is None else np.logaddexp(one, other)


def summed_masses(part: NDArray[np.float64], block: BlockResult) -> NDArray[np.float64]:
    """The masses of the images of a block, which has this part in the whole: (versions, images)."""
    return np.asarray(np.einsum("vl,vln->vn", part, block.share, dtype=np.float64))


def answers(
    engine: Engine,
    query: NoisyQuery,
    images: ImageSet,
    comparison: Comparison,
    budget: Budget,
    size: int,
    *,
    colours: bool = False,
) -> Iterator[BlockResult]:
    """What the engine answers for each block of ``size`` images, with their mirrors where the comparison says so."""
    for start in range(0, len(images), size):
        block = images.block(start, start + size)
        result = engine.compare(query, block, comparison, budget.scratch, colours=colours)
        if comparison.flips:
            mirrored = np.ascontiguousarray(block[..., ::-1])
            result = _added(result, engine.compare(query, mirrored, comparison, budget.scratch, colours=colours))
        yield result


@contextmanager
def compared(
    engine: Engine,
    query: NoisyQuery,
    train: ImageSet,
    comparison: Comparison,
    budget: Budget,
    *,
    colours: bool = False,
    most_images: int = MOST_IMAGES,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Blocks]:
    """The query against the whole set. The answers can be iterated over, several times, until the context ends."""
    patches = comparison.patches(*train.shape[1:])
    pairs = len(query) * comparison.pairs(*train.shape[1:]) * comparison.sides
    values = len(query) * patches * (1 + train.shape[0] * colours)
    size = min(block_size(values, train, budget), max(1, engine.pairs_at_once // pairs), most_images)
    total = Total(1)
    with _Waiting(budget.waiting) as waiting:
        for result in answers(engine, query, train, comparison, budget, size, colours=colours):
            total.add(result.log_normaliser)
            waiting.put(result)
            if progress:
                progress(result.share.shape[2])
        yield Blocks(total.whole(), waiting)


class Blocks:
    """What the blocks of a set answered, in their order, each with its part in the whole (versions, patches).

    Shares and colours of a block times that part are those in the whole set.
    """

    def __init__(self, log_normaliser: NDArray[np.float64], waiting: _Waiting) -> None:
        self.log_normaliser = log_normaliser
        self._waiting = waiting

    def count_in(self, log_normaliser: NDArray[np.float64], weight: float) -> None:
        """Count another block in the whole, ``weight`` times."""
        self.log_normaliser = np.logaddexp(self.log_normaliser, math.log(weight) + log_normaliser)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float64], BlockResult]]:
        for result in self._waiting:
            yield np.exp(result.log_normaliser - self.log_normaliser), result


def block_size(values_per_image: int, train: ImageSet, budget: Budget) -> int:
    """How many images to hand to an engine at once, so that pixels and answer stay within their part of the budget."""
    pixels = 4 * int(np.prod(train.shape))
    answer = 4 * 8 * values_per_image  # float32 kept, float64 while it is made, twice with mirrors
    return max(1, min(MOST_IMAGES, budget.block // (3 * pixels + answer)))


def _added(result: BlockResult, mirrored: BlockResult) -> BlockResult:
    """Images and their mirrors in one softmax, each mirror's mass added to its image."""
    normaliser = np.logaddexp(result.log_normaliser, mirrored.log_normaliser)
    parts = [np.exp(part.log_normaliser - normaliser)[:, :, None] for part in (result, mirrored)]
    share = np.add(result.share * parts[0], mirrored.share * parts[1], dtype=np.float32)
    if result.colour is None or mirrored.colour is None:
        return BlockResult(normaliser, share)
    colours = result.colour * parts[0][..., None], mirrored.colour * parts[1][..., None]
    return BlockResult(normaliser, share, np.add(*colours, dtype=np.float32))


class _Waiting:
    """Block results in the order they came; those beyond the budget are in a temporary file."""

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._results: list[BlockResult | list[tuple[int, ...]]] = []
        # spooled only so that nothing touches the disk before something must
        self._file = tempfile.SpooledTemporaryFile(max_size=1, prefix="patchtrace-")  # noqa: SIM115  # see __exit__

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()  # it has no name any more, so closing it removes it

    def put(self, result: BlockResult) -> None:
        arrays = [
            np.ascontiguousarray(array, dtype=np.float32)
            for array in (result.share, result.colour)
            if array is not None
        ]
        normaliser = np.ascontiguousarray(result.log_normaliser)
        self._left -= normaliser.nbytes + sum(array.nbytes for array in arrays)
        if self._left >= 0:
            self._results.append(BlockResult(normaliser, *arrays))
        else:
            together: list[NDArray[Any]] = [normaliser, *arrays]
            for array in together:
                self._file.write(array.data)
            self._results.append([array.shape for array in together])

    def __iter__(self) -> Iterator[BlockResult]:
        self._file.seek(0)
        for result in self._results:
            if isinstance(result, BlockResult):
                yield result
            else:
                first, *rest = result
                yield BlockResult(self._read(first, np.float64), *(self._read(shape, np.float32) for shape in rest))

    def _read(self, shape: tuple[int, ...], kind: type[np.floating[Any]]) -> NDArray[Any]:
        raw = self._file.read(np.dtype(kind).itemsize * math.prod(shape))
        return np.frombuffer(raw, kind).reshape(shape)
