"""Why an image has its share: which of its patches resemble which patches of the query, where, and how strongly.

With the normaliser of each query patch single images can be explained on their own. A result that was just made knows
those of its first draws. They are not stored: for a result that was loaded they are computed again, by one pass over
the set, or over the images to explain and a sample of all others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.attribution import Attribution
from patchtrace.compute import Compute
from patchtrace.display import shown
from patchtrace.engines import Blocks, Comparison, Job, LocalWork, NoisyQuery, get_engine
from patchtrace.engines.reference import noisy_patches, patches
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.nda.method import check_images
from patchtrace.nda.plan import Plan
from patchtrace.nda.sample import chances_of, rest_of
from patchtrace.nda_details import NDADetails, NoiseOrigin, Part
from patchtrace.progress import Counter, Progress
from patchtrace.short import short_repr

Floats = NDArray[np.float64]

#: Images that stand for all others in the explanation of an approximate result, if it does not know its normalisers.
SAMPLE = 1000


class Step(NamedTuple):
    """One scale at one noise level.

    ``weight`` is what one query patch counts in a share: the share of an image is the sum, over steps and query
    patches, of ``weight`` times the part of the patch that the image accounts for.
    """

    part: Part
    comparison: Comparison
    weight: float
    rows: int
    columns: int
    patchwork: bool


class Match(NamedTuple):
    """Two patches that resemble each other.

    Places are (row, column) of the upper left pixel, negative where a patch hangs over the border. ``weight`` is what
    the pair adds to the image's share. ``view`` names the view of the image that matched; without one it is the image
    as it is. Whatever the view, ``train`` is the place in the image itself, and ``train_size`` the side that the patch
    has there: of an enlarged view both may be fractions of a pixel.
    """

    query: tuple[int, int]
    train: tuple[float, float]
    size: int
    t: int
    pool: int
    weight: float
    view: str
    train_size: float


class Partners(NamedTuple):
    """For each query patch the patch of an image that resembles it most: (rows, columns) each.

    ``place`` is row times columns plus column, ``part`` the part of the query patch that this one pair accounts for,
    ``crop`` the number of the picture of the image that has the patch, in the order of ``Comparison.crops``.
    """

    place: NDArray[np.intp]
    part: Floats
    crop: NDArray[np.intp]

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, eq=False)
class Pair:
    """The query and one training image.

    Parameters
    ----------
    index : int
        Index of the training image.
    grids : one float64 (rows, columns) for each step
        The part of each query patch that the image accounts for, from 0 to 1.
    partners : one Partners for each step
        The patch of the image that resembles each query patch most.
    heat : one float64 (height, width) for each step
        Which pixels of the training image do the explaining. Sums to the step's part of the share.
    share : float
        The sum over steps of ``weight * grid.sum()``.
    matches : list of Match
        The strongest pairs of patches, strongest first.
    """

    index: int
    grids: list[Floats]
    partners: list[Partners]
    heat: list[Floats]
    share: float
    matches: list[Match]

    __repr__ = short_repr


#: One step of a pair: grid, partners, heat and matches.
_StepPair = tuple[Floats, Partners, Floats, list[Match]]


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
    found = outline(result, queries, train, query, images=images, draws=draws, threads=compute.threads)
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
        rest = rest_of(train, others, chances_of(shares[others], sample), rng)
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
    threads: int | None = None,
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
    return Explanation(steps, train, chosen, [], shares, clean, noisy, [], threads)


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
    threads : int, optional
        Number of threads of :meth:`pairs`; by default all.
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
    threads: int | None = None
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
        total = np.sort(self.shares)[::-1].cumsum()
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
        parts: list[list[_StepPair]] = [[] for _ in indices]
        images = [self.train.block(int(index), int(index) + 1)[0] for index in indices]
        count = Counter(progress, len(self.steps) * len(indices))
        with ThreadPoolExecutor(self.threads or os.cpu_count()) as pool:  # NumPy lets other threads work meanwhile
            for step, query, normaliser in zip(self.steps, self.noisy, self.normalisers, strict=True):
                left = [noisy_patches(version, step.comparison) for version in query]
                groups = _groups(step.comparison, self.size)
                work = partial(_step_pair, step, query, left, normaliser, groups, matches, self.size)
                for found, part in zip(parts, pool.map(work, images), strict=True):
                    found.append(part)
                    count.add(1)
        return [self._pair(int(index), found, matches) for index, found in zip(indices, parts, strict=True)]

    def _pair(self, index: int, parts: list[_StepPair], matches: int) -> Pair:
        """A pair from its steps."""
        grids, partners, heat, found = map(list, zip(*parts, strict=True))
        share = sum(step.weight * grid.sum() for step, grid in zip(self.steps, grids, strict=True))
        return Pair(index, grids, partners, heat, float(share), _strongest(chain.from_iterable(found), matches))


def _strongest(matches: Iterable[Match], count: int) -> list[Match]:
    return sorted(matches, key=lambda match: -match.weight)[:count]


def _step_pair(
    step: Step,
    query: NoisyQuery,
    left: list[Floats],
    normaliser: Floats,
    groups: list[_Group],
    matches: int,
    size: tuple[int, int],
    image: NDArray[np.float32],
) -> _StepPair:
    """One step of one pair."""
    comparison, shape = step.comparison, (step.rows, step.columns)
    count = step.rows * step.columns
    grid, part, place = np.zeros(count), np.full(count, -1.0), np.zeros(count, np.intp)
    from_crop, heat = np.zeros(count, np.intp), np.zeros(size)
    found: list[Match] = []
    for number, crop in enumerate(comparison.crops(*size)):
        right = patches(crop.of(image[None])[0], comparison)
        train_size = comparison.extent * crop.scale(size)[0]
        of_train = np.zeros(count)
        for group in groups:
            weights = _weights(query, left, right, normaliser, group, comparison.k)
            own = group.patches
            grid[own] += weights.sum(axis=1)
            of_train[own] += weights.sum(axis=0) if group.all else weights[:, 0]
            best = weights.argmax(axis=1) if group.all else np.arange(len(weights))
            largest = weights.max(axis=1)
            better = largest > part[own]
            part[own[better]], place[own[better]] = largest[better], own[best[better]]
            from_crop[own[better]] = number
            flat = np.argpartition(-weights, min(matches, weights.size) - 1, axis=None)[:matches]
            for q, u in zip(*np.unravel_index(flat, weights.shape), strict=True):
                in_crop = _place(own[u if group.all else q], step)
                places = _place(own[q], step), crop.in_picture(*in_crop, comparison.extent, size)
                weight = float(step.weight * weights[q, u])
                scale = comparison.extent, step.part.t, step.part.pool
                found.append(Match(*places, *scale, weight, crop.view.name, train_size))
        heat += step.weight * crop.onto_picture(spread(of_train.reshape(shape), comparison, size))
    partners = Partners(place.reshape(shape), part.reshape(shape), from_crop.reshape(shape))
    return grid.reshape(shape), partners, heat, _strongest(found, matches)


def _weights(query: NoisyQuery, left: list[Floats], right: Floats, normaliser: Floats, group: _Group, k: int) -> Floats:
    """The part of its query patch that each pair of a group has, in the mean over versions: (query, train or 1)."""
    total: Floats = np.zeros(1)
    own = right[group.patches]
    for number, (_, signal, variance, _) in enumerate(query):
        x = left[number][group.patches]
        if group.all:
            squares = (x**2).sum(axis=1)[:, None] + signal**2 * (own**2).sum(axis=1)
            distance = squares - 2 * signal * (x @ own.T)
        else:
            distance = ((x - signal * own) ** 2).sum(axis=1)[:, None]
        weights = np.exp(-distance / (2 * variance) - normaliser[number, group.patches, None])
        left_out = weights.shape[1] - k
        if left_out > 0:
            np.put_along_axis(weights, np.argpartition(weights, left_out, axis=1)[:, :left_out], 0, axis=1)
        total = total + weights
    return total / len(query)


def _place(patch: np.intp, step: Step) -> tuple[int, int]:
    """The upper left pixel of a patch."""
    pad = 0 if step.comparison.border == "valid" else (step.comparison.patch - 1) // 2
    return int(patch) // step.columns - pad, int(patch) % step.columns - pad


class _Group(NamedTuple):
    """Patches, by their numbers in the picture, that pair: all with all, or each with the one at its own place."""

    patches: NDArray[np.intp]
    all: bool


def _groups(comparison: Comparison, size: tuple[int, int]) -> list[_Group]:
    axes = [comparison.axis(side) for side in size]
    runs = [[axis.interior, *([i] for i in range(axis.positions) if i not in axis.interior)] for axis in axes]
    found = [np.add.outer(np.array(down) * axes[1].positions, across).ravel() for down, across in product(*runs)]
    single = np.array([group[0] for group in found if len(group) == 1], dtype=np.intp)
    several = [_Group(group, True) for group in found if len(group) > 1]
    return [*several, _Group(single, False)] if len(single) else several


def spread(values: Floats, comparison: Comparison, size: tuple[int, int]) -> Floats:
    """Values of patches (..., rows, columns), spread evenly on the pixels of each patch: (..., height, width)."""
    down, across = (_pixels_of(comparison, side) for side in size)
    return np.asarray(down @ values @ across.T)


def _pixels_of(comparison: Comparison, side: int) -> Floats:
    """For each pixel along a side its part in each patch position: (pixels, positions), columns sum to 1."""
    axis = comparison.axis(side)
    first = np.arange(axis.positions) - axis.pad
    pixel = np.arange(side)[:, None]
    inside = ((pixel >= first) & (pixel < first + comparison.extent)).astype(np.float64)
    return np.asarray(inside / inside.sum(axis=0))
