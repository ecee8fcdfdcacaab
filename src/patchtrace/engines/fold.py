"""From blocks to image scores, exactly, within a memory budget.

The sum over query patches needs the normaliser over the whole set, which is known only after the last block. Until then
the shares of each block wait in memory, or in a temporary file if the budget does not hold them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from patchtrace.engines.contract import BlockResult, Comparison, Engine, NoisyQuery
from patchtrace.images import ImageSet

#: Larger blocks are no faster.
MOST_IMAGES = 2048


def image_masses(
    engine: Engine,
    query: NoisyQuery,
    train: ImageSet,
    comparison: Comparison,
    *,
    flips: bool,
    memory: int,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float64]:
    """Top-k mass of every training image, summed over the query's patches: (versions, train).

    Without the cut at k the masses of a version sum to its number of patches. ``progress`` is called with the number
    of images done since the last call.
    """
    patches = comparison.patches(*train.shape[1:])
    pairs = len(query) * comparison.pairs(*train.shape[1:]) * (2 if flips else 1)
    size = min(block_size(len(query) * patches, train, memory), max(1, engine.pairs_at_once // pairs))
    total = np.full((len(query), patches), -np.inf)
    with _Waiting(memory // 4) as waiting:
        for start in range(0, len(train), size):
            block = train.block(start, start + size)
            result = engine.compare(query, block, comparison, memory // 4)
            if flips:
                mirrored = np.ascontiguousarray(block[..., ::-1])
                result = _added(result, engine.compare(query, mirrored, comparison, memory // 4))
            total = np.logaddexp(total, result.log_normaliser)
            waiting.put(result)
            if progress:
                progress(len(block))
        parts = [
            np.einsum("vl,vln->vn", np.exp(result.log_normaliser - total), result.share, dtype=np.float64)
            for result in waiting
        ]
        return np.concatenate(parts, axis=1)


def block_size(values_per_image: int, train: ImageSet, memory: int) -> int:
    """How many images to hand to an engine at once, so that pixels and answer take a quarter of the memory."""
    pixels = 4 * int(np.prod(train.shape))
    answer = 4 * 8 * values_per_image  # float32 kept, float64 while it is made, twice with mirrors
    return max(1, min(MOST_IMAGES, memory // 4 // (3 * pixels + answer)))


def _added(result: BlockResult, mirrored: BlockResult) -> BlockResult:
    """Images and their mirrors in one softmax, each mirror's mass added to its image."""
    normaliser = np.logaddexp(result.log_normaliser, mirrored.log_normaliser)
    shares = [part.share * np.exp(part.log_normaliser - normaliser)[:, :, None] for part in (result, mirrored)]
    return BlockResult(normaliser, np.add(*shares, dtype=np.float32))


class _Waiting:
    """Block results in the order they came; shares beyond the budget lie in a temporary file."""

    def __init__(self, memory: int) -> None:
        self._left = memory
        self._results: list[BlockResult | tuple[NDArray[np.float64], tuple[int, ...]]] = []
        # spooled only so that nothing touches the disk before something must
        self._file = tempfile.SpooledTemporaryFile(max_size=1, prefix="patchtrace-")  # noqa: SIM115  # see __exit__

    def __enter__(self) -> _Waiting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()  # it has no name any more, so closing it removes it

    def put(self, result: BlockResult) -> None:
        shares = result.share.astype(np.float32, copy=False)
        self._left -= shares.nbytes
        if self._left >= 0:
            self._results.append(BlockResult(result.log_normaliser, shares))
        else:
            self._file.write(np.ascontiguousarray(shares).data)
            self._results.append((result.log_normaliser, shares.shape))

    def __iter__(self) -> Iterator[BlockResult]:
        self._file.seek(0)
        for result in self._results:
            if isinstance(result, BlockResult):
                yield result
            else:
                normaliser, shape = result
                raw = self._file.read(4 * int(np.prod(shape)))
                yield BlockResult(normaliser, np.frombuffer(raw, dtype=np.float32).reshape(shape))
