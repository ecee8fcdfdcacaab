"""From blocks to the whole set, exactly, within a memory budget.

What an image has in the whole needs the normaliser over the whole set, which is known only after the last block. Until
then the answers for each block wait in memory, or in a temporary file if the budget does not hold them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import TracebackType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines.contract import BlockResult, Comparison, Engine, NoisyQuery
from patchtrace.images import ImageSet

#: Larger blocks are no faster.
MOST_IMAGES = 2048
#: Patches of the query times images in a block of :func:`cut`: what keeps the answer for 16 versions below 250 MB.
MOST_ANSWERS = 400_000


class Rest(NamedTuple):
    """Images that stand for many more which are not compared: each counts so often in normalisers, and nowhere else."""

    images: ImageSet
    weight: float


def image_masses(
    engine: Engine,
    query: NoisyQuery,
    train: ImageSet,
    comparison: Comparison,
    *,
    flips: bool,
    memory: int,
    rest: Rest | None = None,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Top-k mass of every training image, summed over the query's patches: (versions, train).

    Without the cut at k the masses of a version sum to its number of patches, with a ``rest`` to less. ``progress`` is
    called with the number of images done since the last call, each counted once for each version.
    """
    size, group = cut(engine, query, train, comparison, flips=flips, memory=memory)
    masses = []
    for first in range(0, len(query), group):
        some = query.part(first, first + group)
        tell = progress and _times(len(some), progress)
        blocks = answers(engine, some, train, comparison, size=size, flips=flips, memory=memory)
        with _all_of(blocks, memory, tell) as folded:
            if rest:
                for block in answers(engine, some, rest.images, comparison, size=size, flips=flips, memory=memory):
                    folded.count_in(block.log_normaliser, rest.weight)
                    if tell:
                        tell(block.share.shape[2])
            masses.append(np.concatenate([summed_masses(part, block) for part, block in folded], axis=1))
    return np.concatenate(masses)


class Job(NamedTuple):
    """A query to be compared with the whole set; ``progress`` as in :func:`image_masses`."""

    query: NoisyQuery
    comparison: Comparison
    flips: bool
    progress: Callable[[int], None] | None = None


def masses_here(
    engine: Engine, train: ImageSet, memory: int, rest: Rest | None = None
) -> Callable[[Iterable[Job]], Iterator[NDArray[np.float64]]]:
    """What does jobs in this process, one after the other."""

    def masses(jobs: Iterable[Job]) -> Iterator[NDArray[np.float64]]:
        for query, comparison, flips, progress in jobs:
            yield image_masses(
                engine, query, train, comparison, flips=flips, memory=memory, rest=rest, progress=progress
            )

    return masses


def cut(
    engine: Engine, query: NoisyQuery, train: ImageSet, comparison: Comparison, *, flips: bool, memory: int
) -> tuple[int, int]:
    """How many images make a block, and how many versions of the query are compared in one go.

    How a set is cut into blocks decides how sums are rounded. So the blocks depend on what is compared alone, whoever
    does it, unless the memory is too small for them. How many versions go together changes no bit: there the memory
    decides, so that answers do not wait on disk where fewer at once could wait in memory.
    """
    patches = comparison.patches(*train.shape[1:])
    pairs = comparison.pairs(*train.shape[1:]) * (2 if flips else 1)
    size = min(MOST_IMAGES, MOST_ANSWERS // patches, engine.pairs_at_once // pairs)
    size = max(1, min(size, block_size(patches, train, memory)))
    waiting = memory // 4 // (4 * patches * len(train))
    working = memory // 4 // (4 * 8 * patches * size)
    return size, max(1, min(len(query), waiting, working))


def summed_masses(part: NDArray[np.float64], block: BlockResult) -> NDArray[np.float64]:
    """The masses of the images of a block, which has this part in the whole: (versions, images)."""
    return np.asarray(np.einsum("vl,vln->vn", part, block.share, dtype=np.float64))


def _times(count: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda images: progress(count * images)


def answers(
    engine: Engine,
    query: NoisyQuery,
    images: ImageSet,
    comparison: Comparison,
    *,
    size: int,
    flips: bool,
    memory: int,
    colours: bool = False,
) -> Iterator[BlockResult]:
    """What the engine says of each block of so many images."""
    for start in range(0, len(images), size):
        block = images.block(start, start + size)
        result = engine.compare(query, block, comparison, memory // 4, colours=colours)
        if flips:
            mirrored = np.ascontiguousarray(block[..., ::-1])
            result = _added(result, engine.compare(query, mirrored, comparison, memory // 4, colours=colours))
        yield result


def compared(
    engine: Engine,
    query: NoisyQuery,
    train: ImageSet,
    comparison: Comparison,
    *,
    flips: bool = False,
    colours: bool = False,
    most_images: int = MOST_IMAGES,
    memory: int,
    progress: Callable[[int], None] | None = None,
) -> AbstractContextManager[Blocks]:
    """The query against the whole set. The answers can be gone through, several times, until the context ends."""
    patches = comparison.patches(*train.shape[1:])
    pairs = len(query) * comparison.pairs(*train.shape[1:]) * (2 if flips else 1)
    values = len(query) * patches * (1 + train.shape[0] * colours)
    size = min(block_size(values, train, memory), max(1, engine.pairs_at_once // pairs), most_images)
    blocks = answers(engine, query, train, comparison, size=size, flips=flips, memory=memory, colours=colours)
    return _all_of(blocks, memory, progress)


@contextmanager
def _all_of(blocks: Iterator[BlockResult], memory: int, progress: Callable[[int], None] | None) -> Iterator[Blocks]:
    """All blocks, waiting to be gone through with the normaliser of the whole."""
    total: NDArray[np.float64] | None = None
    with _Waiting(memory // 4) as waiting:
        for result in blocks:
            total = result.log_normaliser if total is None else np.logaddexp(total, result.log_normaliser)
            waiting.put(result)
            if progress:
                progress(result.share.shape[2])
        assert total is not None, "a set has at least one image"
        yield Blocks(total, waiting)


class Blocks:
    """What the blocks of a set answered, in their order, each with its part in the whole (versions, patches).

    Shares and colours of a block times that part are those in the whole set.
    """

    def __init__(self, log_normaliser: NDArray[np.float64], waiting: _Waiting) -> None:
        self.log_normaliser = log_normaliser
        self._waiting = waiting

    def count_in(self, log_normaliser: NDArray[np.float64], weight: float) -> None:
        """Let a block that is not among these count in the whole, so many times."""
        self.log_normaliser = np.logaddexp(self.log_normaliser, math.log(weight) + log_normaliser)

    def __iter__(self) -> Iterator[tuple[NDArray[np.float64], BlockResult]]:
        for result in self._waiting:
            yield np.exp(result.log_normaliser - self.log_normaliser), result


def block_size(values_per_image: int, train: ImageSet, memory: int) -> int:
    """How many images to hand to an engine at once, so that pixels and answer take a quarter of the memory."""
    pixels = 4 * int(np.prod(train.shape))
    answer = 4 * 8 * values_per_image  # float32 kept, float64 while it is made, twice with mirrors
    return max(1, min(MOST_IMAGES, memory // 4 // (3 * pixels + answer)))


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
    """Block results in the order they came; those beyond the budget lie in a temporary file."""

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._results: list[BlockResult | tuple[NDArray[np.float64], list[tuple[int, ...]]]] = []
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
        self._left -= sum(array.nbytes for array in arrays)
        if self._left >= 0:
            self._results.append(BlockResult(result.log_normaliser, *arrays))
        else:
            for array in arrays:
                self._file.write(array.data)
            self._results.append((result.log_normaliser, [array.shape for array in arrays]))

    def __iter__(self) -> Iterator[BlockResult]:
        self._file.seek(0)
        for result in self._results:
            if isinstance(result, BlockResult):
                yield result
            else:
                normaliser, shapes = result
                raw = [self._file.read(4 * int(np.prod(shape))) for shape in shapes]
                arrays = [np.frombuffer(part, np.float32).reshape(s) for part, s in zip(raw, shapes, strict=True)]
                yield BlockResult(normaliser, *arrays)
