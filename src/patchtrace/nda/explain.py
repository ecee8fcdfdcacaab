"""Why an image has its share: which of its patches resemble which patches of the query, where, and how strongly.

With the normaliser of each query patch single images can be explained on their own. A result that was just made knows
those of its first draws. They are not stored: for a result that was loaded they are computed again, by one pass over
the set, or over the images to explain and a sample of all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.display import shown
from patchtrace.engines import Blocks, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.nda.method import check_images
from patchtrace.nda.pairs import Floats, Pair, Step, StepPair, pairs_of_step, spread, threads_within, whole_pair
from patchtrace.nda.plan import Plan
from patchtrace.nda.sample import chances_of, rest_of
from patchtrace.nda_details import NDADetails, NoiseOrigin
from patchtrace.progress import Counter, Progress
from patchtrace.short import short_repr

#: Images that stand for all others in the explanation of an approximate result, if it does not know its normalisers.
SAMPLE = 1000


class Mosaic(NamedTuple):
    """For each pixel of the query the image that accounts for most of it, and for how much: (height, width) each.

    ``owner`` is a training index.
    """

    owner: NDArray[np.intp]
    part: Floats

    def __repr__(self) -> str:
        return short_repr(self)


def explain(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int = 0,
    *,
    images: int = 50,
    draws: int | None = 2,
    sample: int = SAMPLE,
    compute: Compute | None = None,
    progress: Progress | None = None,
) -> Explanation:
    """Explain one query of a result, patch by patch.

    Parameters
    ----------
    result : Attribution
        A result of NDA. That of a shortlist is approximate, and so is its explanation: a sample of images stands for
        all others.
    queries, train : ImageSet
        The images of the result.
    query : int, default 0
        Number of the query, counted from 0.
    images : int, default 50
        Number of images, from the top of the list, to explain.
    draws : int or None, default 2
        Number of draws of the noise to use, the first of those that the result has. None: all of them, so that the
        numbers add up to the shares of the result. With fewer the explanation has errors of its own.
    sample : int, default 1000
        Number of images that stand for all others, where the result is of a shortlist and does not know better.
    compute : Compute, default Compute()
        Engine, device, threads and memory.
    progress : callable, optional
        Called with (done, total).

    Returns
    -------
    Explanation

    Examples
    --------
    >>> import patchtrace as pt
    >>> train = pt.ImageSet.open(np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8))
    >>> result = pt.NDA(pt.Recipe((pt.Level(100, (pt.Scale(patch=3),)),))).fit(train).attribute(train.subset([7]))
    >>> found = pt.explain(result, train.subset([7]), train)
    >>> found.pair(7).matches[0].query == found.pair(7).matches[0].train
    True
    """
    compute = compute or Compute()
    found = outline(result, queries, train, query, images=images, draws=draws, compute=compute)
    details, chosen, shares = result.nda, found.images, found.shares
    assert details is not None
    plan = Plan.of(details.recipe, train.shape[1:])
    known = details.normalisers[query] if details.normalisers else None
    if known is not None and len(known) < max(len(noisy) for noisy in found.noisy):
        known = None
    rest, listed = None, np.arange(len(train))
    if known is not None:
        listed = np.sort(chosen)
    elif details.shortlists[query] is not None and len(chosen) < len(train):
        listed, others = np.sort(chosen), np.delete(listed, chosen)
        rng = np.random.default_rng((details.recipe.seed, query))
        _, rest = rest_of(train, others, chances_of(shares[others], sample), rng)
    cost = sum(len(noisy) * step.cost for noisy, step in zip(found.noisy, plan.steps, strict=True))
    total = (len(listed) + (len(rest.images) if rest else 0)) * cost
    count, engine = Counter(progress, total), get_engine(compute, total)
    work = LocalWork(engine, train.subset(listed) if len(listed) < len(train) else train, compute.budget)
    first = 0
    for noisy, step, planned in zip(found.noisy, found.steps, plan.steps, strict=True):
        job = Job(noisy, step.comparison, count.per_image(planned.cost))
        with work.compared(job, rest=rest) as blocks:
            if known is not None:
                blocks.within(known[: len(noisy), first : first + planned.patches])
            grid = _patch_shares(blocks, np.searchsorted(listed, chosen))
            found.normalisers.append(blocks.log_normaliser)
        found.grids.append(grid.reshape(len(chosen), step.rows, step.columns))
        first += planned.patches
    # of an approximate result, samples may be in the normalisers that it knows
    of_samples = known is not None and details.shortlists[query] is not None
    return replace(found, sampled=rest is not None or of_samples)


def outline(
    result: Attribution,
    queries: ImageSet,
    train: ImageSet,
    query: int = 0,
    *,
    images: int = 50,
    draws: int | None = 2,
    compute: Compute | None = None,
) -> Explanation:
    """An explanation without its numbers, which are still to be computed: no grids, no normalisers.

    Parameters are those of :func:`explain`.
    """
    details = _details(result, queries, train, query)
    plan = Plan.of(details.recipe, train.shape[1:])
    counts = [max(1, min(count, draws or count)) for count in details.draws[query]]
    clean = queries.block(query, query + 1)[0]
    steps, noisy = [], []
    for number, some in plan.walk([[(0, drawn)] for drawn in counts]):
        noised = some.on(clean)
        for step in plan.levels[number].steps:
            rows, columns = (step.comparison.axis(side).positions for side in train.shape[1:])
            weight = step.weight / len(plan.levels) / plan.patches
            steps.append(Step(step.part, step.comparison, weight, rows, columns, some.patchwork))
            noisy.append(noised)
    shares, chosen = result.shares[query].astype(np.float64), result.ranking(query)[:images]
    return Explanation(steps, train, chosen, [], shares, clean, noisy, [], compute or Compute())


def _details(result: Attribution, queries: ImageSet, train: ImageSet, query: int) -> NDADetails:
    """The details of the result, if it can be computed again from these images."""
    if result.nda is None:
        raise PatchtraceError(f"a result of method {result.method!r} cannot be explained: use a result of method 'nda'")
    if result.nda.noise is not NoiseOrigin.SEED:
        raise PatchtraceError(
            "the noise of this result was given by the caller: only noise from a seed can be drawn again"
        )
    if not 0 <= query < len(result.query_ids):
        raise PatchtraceError(f"query is {query}: the result has {len(result.query_ids)}, counted from 0")
    check_images(result, train, queries)
    return result.nda


def _patch_shares(blocks: Blocks, chosen: NDArray[np.intp]) -> NDArray[np.float32]:
    """The shares of the chosen images in each query patch, in the mean over versions: (images, patches)."""
    found = np.empty((len(chosen), blocks.log_normaliser.shape[1]), np.float32)
    for places, part, block in blocks:
        here = np.flatnonzero((chosen >= places.start) & (chosen < places.stop))
        found[here] = (block.share[:, :, chosen[here] - places.start] * part[:, :, None]).mean(axis=0).T
    return found


@dataclass(frozen=True, eq=False)
class Explanation:
    """One query against the whole set, with its best images explained. Made by :func:`explain`.

    Parameters
    ----------
    steps : list of Step
        Scales and noise levels, in the order of ``grids``.
    train : ImageSet
        The collection.
    images : int (images,)
        Indices of the explained images, best first.
    grids : one float32 (images, rows, columns) for each step
        The part of each query patch that each of them accounts for, from 0 to 1, in the mean over draws.
    shares : float64 (train,)
        Shares of all images, from the result.
    clean : float32 (channels, height, width)
        The query.
    noisy : one NoisyQuery for each step
        The query with the noise of the step.
    normalisers : one float64 (versions, patches) for each step
        Log of the normaliser of each query patch.
    compute : Compute, default Compute()
        Threads and memory of :meth:`pairs`.
    sampled : bool, default False
        Whether a sample of images stands for others in the normaliser: then the explanation is approximate.

    Examples
    --------
    >>> import patchtrace as pt
    >>> train = pt.ImageSet.open(np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), dtype=np.uint8))
    >>> result = pt.NDA(pt.Recipe((pt.Level(100, (pt.Scale(patch=3),)),))).fit(train).attribute(train.subset([7]))
    >>> found = pt.explain(result, train.subset([7]), train)
    >>> found.maps().shape, int(found.mosaic().owner[4, 4]), found.coverage()[0][0]
    ((9, 8, 8), 7, 1)
    """

    steps: list[Step]
    train: ImageSet
    images: NDArray[np.intp]
    grids: list[NDArray[np.float32]]
    shares: Floats
    clean: NDArray[np.float32]
    noisy: list[NoisyQuery]
    normalisers: list[Floats]
    compute: Compute = field(default_factory=Compute)
    sampled: bool = False

    __repr__ = short_repr

    def _repr_html_(self) -> str | None:
        return shown(self)

    @property
    def size(self) -> tuple[int, int]:
        return self.train.shape[1:]

    def on_pixels(self, grids: Sequence[NDArray[Any]]) -> Floats:
        """Parts of query patches, (..., rows, columns) for each step, as shares on its pixels: (..., height, width)."""
        steps = zip(self.steps, grids, strict=True)
        shares = (step.weight * spread(grid, step.comparison, self.size) for step, grid in steps)
        return sum(shares)  # type: ignore[return-value]  # there is at least one step

    def maps(self) -> Floats:
        """Where in the query each image has its share: (images, height, width). Sums, over pixels, to the share."""
        return self.on_pixels(self.grids)

    def whole(self) -> Floats:
        """The sum of all shares at each pixel of the query: (height, width). Sums to 1."""
        return self.on_pixels([np.ones((step.rows, step.columns)) for step in self.steps])

    def mosaic(self) -> Mosaic:
        """For each pixel the explained image that accounts for most of it."""
        parts = self.maps() / self.whole()
        best = parts.argmax(axis=0)
        return Mosaic(self.images[best], np.take_along_axis(parts, best[None], axis=0)[0])

    def region(self, where: tuple[int, int, int, int] | NDArray[np.bool_]) -> Floats:
        """Shares of the images in a part of the query: (images,).

        ``where`` is (top, left, bottom, right), the last two not included, or a mask (height, width).
        """
        mask = np.asarray(where)
        if mask.dtype != np.bool_:
            top, left, bottom, right = (int(x) for x in mask)
            mask = np.zeros(self.size, dtype=np.bool_)
            mask[max(0, top) : max(0, bottom), max(0, left) : max(0, right)] = True
        if mask.shape != self.size or not mask.any():
            raise PatchtraceError(
                f"the region has no pixel in the query: use one inside {self.size[0]} x {self.size[1]}"
            )
        return np.asarray(self.maps()[:, mask].sum(axis=1) / self.whole()[mask].sum())

    def coverage(self) -> list[tuple[int, float]]:
        """The joint share of the best 1, 2, 5, 10, ... images, up to all of them: (number, share) pairs."""
        total = np.sort(self.shares[: len(self.shares) - self.train.decoys])[::-1].cumsum()
        counts = [c for power in range(9) for c in (10**power, 2 * 10**power, 5 * 10**power) if c < len(total)]
        return [(c, float(total[c - 1])) for c in [*counts, len(total)]]

    def pair(self, index: int, matches: int = 20) -> Pair:
        """Which patches of the query resemble which patches of one training image, any of the set.

        Parameters
        ----------
        index : int
            Index of the training image.
        matches : int, default 20
            Number of matches to keep.

        Returns
        -------
        Pair
        """
        return self.pairs([index], matches)[0]

    def pairs(self, indices: Sequence[int], matches: int = 20, progress: Progress | None = None) -> list[Pair]:
        """The same as :meth:`pair` for several images; ``progress`` is called with (done, total)."""
        images = [self.train.block(int(index), int(index) + 1)[0] for index in indices]
        count = Counter(progress, len(self.steps) * len(indices))
        found: list[list[StepPair]] = []
        with ThreadPoolExecutor(self.at_once) as pool:  # NumPy lets other threads work meanwhile
            for step, query, normaliser in zip(self.steps, self.noisy, self.normalisers, strict=True):
                work = pairs_of_step(step, query, normaliser, matches, self.size)
                found.append([])
                for pair in pool.map(work, images):
                    found[-1].append(pair)
                    count.add(1)
        parts = zip(*found, strict=True)
        return [whole_pair(int(index), self.steps, part, matches) for index, part in zip(indices, parts, strict=True)]

    @property
    def at_once(self) -> int:
        """Images that are compared at once: as many as there are threads, and room in the memory for."""
        return min(threads_within(self.compute, step.comparison, self.train.shape) for step in self.steps)
