"""From blocks to the whole set, exactly, within a memory budget.

What an image has in the whole needs the normaliser over the whole set, which is known only after the last block. Until
then the answers for each block wait in memory, or in a temporary file if the budget does not hold them.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import LEAST_SCRATCH, Budget
from patchtrace.engines.contract import BlockResult, Comparison, Engine, Float64, NoisyQuery, Question
from patchtrace.engines.shapes import shape_by_shape
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet

#: Larger blocks are no faster.
MOST_IMAGES = 2048
#: Patches of the query times images in a block: what keeps the answer for 16 versions below 250 MB.
MOST_ANSWERS = 400_000
#: Pairs of patches in a run of blocks, or patches of the query times images: normalisers are added up run by run.
PAIRS_OF_A_RUN, ANSWERS_OF_A_RUN = 10**9, 4_000_000
#: Bytes that a process takes besides its comparisons.
REST_OF_THE_PROCESS = 200_000_000
#: Groups of a sample of images, for the jackknife, and the least part of the listed images in a normaliser.
GROUPS, LEAST_PART = 10, 1e-300
#: The bias of one over a sampled normaliser falls with a power of the size of the sample: nearly the first where it is
#: small, a lower one where it is large, because a few images hold most of some patches (docs/stability.md). The largest
#: and the least, and by how much it falls with the bias, taken as a part of a share under the largest.
POWERS, POWER_SLOPE = (0.85, 0.5), 2.5
#: What a block's answer is made of, as it waits: normaliser, share, colour.
KINDS: tuple[type[np.floating[Any]], ...] = (np.float64, np.float32, np.float32)


class Rest(NamedTuple):
    """A sample that stands for many more images: each counts ``weights`` times in normalisers, and nowhere else."""

    images: ImageSet
    weights: Float64

    @property
    def unseen(self) -> float:
        """Of the images that it stands for by chance, the part that is not in it."""
        drawn = self.weights[self.weights > 1]
        return 1 - len(drawn) / float(drawn.sum()) if len(drawn) else 0.0


class Job(NamedTuple):
    """A query to be compared with the whole set.

    ``progress`` is called with the number of images done since the last call, each counted once for each version;
    ``keep`` with the log normaliser of the whole set, (versions, patches), for some versions after the other.
    """

    query: NoisyQuery
    comparison: Comparison
    progress: Callable[[int], None] | None = None
    keep: Callable[[Float64], None] | None = None

    def part(self, first: int, last: int) -> Job:
        """The same with some versions of the query."""
        return self._replace(query=self.query.part(first, last))


class Work(Protocol):
    """Something that does jobs: this process, or a cluster. All give the same numbers."""

    def masses(self, jobs: Iterable[Job]) -> Iterator[Float64]:
        """Top-k mass of every training image, summed over the query's patches: (versions, train) for each job.

        Without the cut at k the masses of a version sum to its number of patches.
        """
        ...


class LocalWork(NamedTuple):
    """Does jobs in this process, one after the other."""

    engine: Engine
    train: ImageSet
    budget: Budget

    def masses(self, jobs: Iterable[Job]) -> Iterator[Float64]:
        """See :class:`Work`."""
        for job in jobs:
            size, run, group = self.cut(job)
            parts = []
            for first in range(0, len(job.query), group):
                some = job.part(first, first + group)
                with closing(Blocks(self.budget.waiting, run)) as blocks:
                    for block in self.answers(some, size):
                        blocks.add(block)
                    if job.keep:
                        job.keep(blocks.log_normaliser)
                    parts.append(blocks.masses())
            yield np.concatenate(parts)

    @contextmanager
    def compared(
        self, job: Job, *, rest: Rest | None = None, colours: bool = False, most_images: int = MOST_IMAGES
    ) -> Iterator[Blocks]:
        """The query against the whole set. The answers can be iterated over, several times, until the context ends.

        With a ``rest``, shares are those in the set and all images that the rest stands for. **Approximate**: see
        :func:`part_of_listed`.
        """
        patches, pairs = (len(job.query) * count for count in self.counts(job))
        size = self.block_size(patches * (1 + self.train.shape[0] * colours))
        size = min(size, max(1, self.engine.pairs_at_once // pairs), most_images)
        waiting = self.budget.waiting // (1 if rest is None else 2)
        with closing(Blocks(waiting)) as blocks, closing(Blocks(waiting)) as others:
            for result in self.answers(job, size, colours):
                blocks.add(result)
            if rest is not None:
                all_patches = replace(job.comparison, k=self.counts(job)[0])  # not the k best only
                for result in self._replace(train=rest.images).answers(job._replace(comparison=all_patches), size):
                    others.add(result)
                blocks.count_in(others, rest)
            yield blocks

    def answers(self, job: Job, size: int, colours: bool = False) -> Iterator[BlockResult]:
        """What the engine answers for each block of ``size`` images, with all their views."""
        query, comparison, progress, _ = job
        check_room(self.engine, [comparison], (self.train.shape[0], *self.frame(job)), self.budget)
        for start in range(0, len(self.train), size):
            block = self.train.framed_block(start, start + size)
            question = Question(query, block, comparison, self.budget.scratch, colours)
            if self.train.extents is None:
                yield reduce(BlockResult.with_views, map(self.engine.compare, question.views()))
            else:
                yield shape_by_shape(self.engine, question, self.train.extents[start : start + size])
            if progress:
                progress(len(query) * len(block))

    def cut(self, job: Job) -> tuple[int, int, int]:
        """How many images make a block, how many blocks a run, and how many versions of the query go together.

        How a set is cut decides how sums are rounded. So blocks and runs depend only on what is compared, not on where,
        unless the memory is too small for them. Versions go together as far as their answers can wait in memory: fewer
        at once are better than answers that wait on disk.
        """
        patches, pairs = self.counts(job)
        size = min(MOST_IMAGES, MOST_ANSWERS // patches, self.engine.pairs_at_once // pairs)
        size = max(1, min(size, self.block_size(patches)))
        waiting = self.budget.waiting // (4 * patches * len(self.train))
        working = self.budget.versions // (4 * 8 * patches * size)
        run = min(PAIRS_OF_A_RUN // (size * pairs), ANSWERS_OF_A_RUN // (size * patches))
        return size, max(1, run), max(1, min(len(job.query), waiting, working))

    def counts(self, job: Job) -> tuple[int, int]:
        """Patches of the query, and pairs of patches with one training image."""
        size, comparison = self.frame(job), job.comparison
        return comparison.patches(*size), comparison.pairs(*size)

    def frame(self, job: Job) -> tuple[int, int]:
        """Height and width of what is compared: of images with shapes of their own, of what has room for the largest.

        The query has room in it too.
        """
        if self.train.extents is None:
            return self.train.shape[1:]
        height, width = np.maximum(self.train.extents.max(axis=0), job.query.versions.shape[2:]).tolist()
        return height, width

    def block_size(self, values_per_image: int) -> int:
        """How many images go to an engine at once, so that pixels and answer stay within their part of the budget."""
        pixels = 4 * math.prod(self.train.shape)
        answer = 4 * 8 * values_per_image  # float32 kept, float64 while it is made, twice with views
        return max(1, min(MOST_IMAGES, self.budget.block // (3 * pixels + answer)))


def check_room(engine: Engine, comparisons: Iterable[Comparison], shape: tuple[int, int, int], budget: Budget) -> None:
    """Raise a PatchtraceError if pictures of this shape need far more memory than there is, with what would be enough.

    An engine works on one image at the least; it may take half of the memory for that.
    """
    least = max(engine.least_bytes(comparison, shape) for comparison in comparisons)
    if least > max(2 * budget.scratch, LEAST_SCRATCH):
        enough = -(-(2 * least + REST_OF_THE_PROCESS) // 10**8) / 10
        raise PatchtraceError(
            f"pictures of {shape[1]} x {shape[2]} need {least / 1e9:.1f} GB at once to be compared by the engine "
            f"{engine.name}: use memory='{enough:g}GB' (--memory), smaller pictures (--size) or smaller patches"
        )


def summed_masses(part: Float64, block: BlockResult) -> Float64:
    """The masses of the images of a block, which has this part in the whole: (versions, images)."""
    return np.asarray(np.einsum("vl,vln->vn", part, block.share, dtype=np.float64))


class Sampled(NamedTuple):
    """What a set has where samples stand for all other images: see :func:`sampled_masses`.

    Parameters
    ----------
    masses : float64 (versions, train)
        Top-k masses of the images of the set.
    corrections : float64 (samples,)
        What the correction of :func:`part_of_listed` took away: where that is little, a smaller sample would do.
    seen : sequence of float64 (images,)
        The mass of each image of each sample, of all its patches, in the mean over versions.
    """

    masses: Float64
    corrections: Float64
    seen: list[Float64]


def sampled_masses(work: LocalWork, job: Job, rests: Sequence[Rest]) -> Sampled:
    """Top-k masses where samples stand for all images that are not in the set.

    ``rests`` are the samples, each for equally many versions of the query. **Approximate**: see :func:`part_of_listed`.
    """
    found, corrections, seen = [], [], []
    each = -(-len(job.query) // len(rests))
    for number, rest in enumerate(rests):
        with work.compared(job.part(number * each, (number + 1) * each), rest=rest) as blocks:
            assert blocks.others is not None
            if job.keep:
                job.keep(blocks.log_normaliser)
            found.append(blocks.masses())
            corrections.append(blocks.correction)
            seen.append(blocks.others.masses().mean(axis=0))
    return Sampled(np.concatenate(found), np.array(corrections), seen)


def part_of_listed(groups: Float64, unseen: float = 1.0) -> tuple[Float64, float]:
    """The part of the listed images in the normaliser of all, from a sample of the others: (versions, patches).

    ``groups`` (versions, patches, 1 + groups) are the logs of what each group of the sample stands for, with the listed
    images as 1; the first group stands for itself alone, the other groups together for all others. That is unbiased.
    But one over an estimate is too large in the mean, much so where a few images hold most of a patch. The jackknife
    takes most of that away: the same from all groups but one tells how the error depends on the size of the sample. It
    is the less, the smaller the part of these others is that is not in the sample (``unseen``).
    The second value is what that took away, over all patches, as a part of what is left.

    >>> groups = np.log([[[0.5] + [0.05] * 10]])  # ten groups that agree: listed and others are equal
    >>> part, correction = part_of_listed(groups)
    >>> part.round(6), round(correction, 6)
    (array([[0.5]]), 0.0)
    """
    largest = np.maximum(groups.max(axis=-1), 0)
    listed, sums = np.exp(-largest), np.exp(groups - largest[..., None])
    certain, sums = listed + sums[..., 0] + LEAST_PART, sums[..., 1:]
    others, count = sums.sum(axis=-1), sums.shape[-1]
    without = 1 / (certain[..., None] + (others[..., None] - sums) * (count / (count - 1)))
    plain = listed / (certain + others)
    more = listed * without.mean(axis=-1) - plain  # too large by so much more with one group less
    usual, least = POWERS
    bias = more / ((count / (count - 1)) ** usual - 1)
    power = float(np.clip(1 - POWER_SLOPE * bias.sum() / plain.sum(), least, usual))
    bias = more / ((count / (count - 1)) ** power - 1)
    part = np.maximum(plain - unseen * bias, LEAST_PART)
    return np.asarray(part), float(unseen * bias.sum() / part.sum())


class Blocks:
    """What the blocks of a set answered, in their order, each with its part in the whole (versions, patches).

    Shares and colours of a block times that part are those in the whole set. Answers beyond the memory wait in a
    temporary file. Normalisers are added in the order of their blocks: first within each run, then over runs.
    """

    def __init__(self, memory: int, run: int = 1) -> None:
        self._run, self._left = run, memory
        self._earlier_runs = self._current_run = np.array(-np.inf)  # what adds nothing
        self._part = np.array(1.0)  # of these blocks in the whole
        self.correction = 0.0  # see part_of_listed
        self.others: Blocks | None = None  # a sample of images besides these
        self._results: list[BlockResult | list[tuple[int, ...]]] = []
        # spooled only so that nothing touches the disk before something must
        self._file = tempfile.SpooledTemporaryFile(max_size=1, prefix="patchtrace-")  # noqa: SIM115  # see close

    def close(self) -> None:
        self._file.close()  # it has no name any more, so closing it removes it

    @property
    def log_normaliser(self) -> Float64:
        """The normaliser of the whole set: (versions, patches)."""
        return np.asarray(np.logaddexp(self._earlier_runs, self._current_run) - np.log(self._part))

    def masses(self) -> Float64:
        """The mass of each image, summed over patches: (versions, images)."""
        return np.concatenate([summed_masses(part, block) for _, part, block in self], axis=1)

    def count_in(self, others: Blocks, rest: Rest) -> None:
        """Count all images in for which a sample stands: what it answered is enough to tell, with all patches."""
        groups = others.sums_of_groups(rest.weights) - self.log_normaliser[..., None]
        self._part, self.correction = part_of_listed(groups, rest.unseen)
        self.others = others
        others.within(self.log_normaliser)

    def sums_of_groups(self, counts: Float64) -> Float64:
        """The log of what each group of a sample adds to the normalisers: (versions, patches, groups).

        Each image counts so often. The first group are those that stand for themselves alone.
        """
        group = np.where(counts > 1, 1 + np.cumsum(counts > 1) % GROUPS, 0)
        weights = np.where(group[:, None] == np.arange(GROUPS + 1), counts[:, None], 0.0)
        sums: Float64 = np.array(-np.inf)
        for places, _, block in self:
            with np.errstate(divide="ignore"):  # a block need not have an image of each group
                logs = np.log(block.share.astype(np.float64) @ weights[places])
            sums = np.logaddexp(sums, block.log_normaliser[..., None] + logs)
        return sums

    def within(self, log_normaliser: Float64) -> None:
        """Take the set as a part of a larger one, of which this is known."""
        self._part = np.maximum(np.exp(self.log_normaliser - log_normaliser), LEAST_PART)  # none of it may be left

    def add(self, result: BlockResult) -> None:
        """The answer for the next block."""
        self._current_run = np.logaddexp(self._current_run, result.log_normaliser)
        if (len(self._results) + 1) % self._run == 0:
            self._earlier_runs = np.logaddexp(self._earlier_runs, self._current_run)
            self._current_run = np.array(-np.inf)
        arrays: list[NDArray[Any]] = [np.ascontiguousarray(result.log_normaliser)]
        arrays += [np.ascontiguousarray(a, dtype=np.float32) for a in (result.share, result.colour) if a is not None]
        self._left -= sum(array.nbytes for array in arrays)
        if self._left >= 0:
            self._results.append(BlockResult(*arrays))
        else:
            for array in arrays:
                self._file.write(array.data)
            self._results.append([array.shape for array in arrays])

    def __iter__(self) -> Iterator[tuple[slice, Float64, BlockResult]]:
        """The places of its images in the set, its part in the whole, and the answer, for each block."""
        whole, start = self.log_normaliser, 0
        self._file.seek(0)
        for kept in self._results:
            result = kept if isinstance(kept, BlockResult) else BlockResult(*map(self._read, kept, KINDS))
            stop = start + result.share.shape[2]
            yield slice(start, stop), np.exp(result.log_normaliser - whole), result
            start = stop

    def _read(self, shape: tuple[int, ...], kind: type[np.floating[Any]]) -> NDArray[Any]:
        raw = self._file.read(np.dtype(kind).itemsize * math.prod(shape))
        return np.frombuffer(raw, kind).reshape(shape)
