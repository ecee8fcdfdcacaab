"""NDA: how much of a query the patches of each training image account for, at several noise levels and scales."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.attribution import Attribution, joined
from patchtrace.cache import digest
from patchtrace.compute import Budget, Compute
from patchtrace.engines import Engine, LocalWork, Work, check_room, get_engine
from patchtrace.engines.dask import DaskWork, connected
from patchtrace.errors import PatchtraceError
from patchtrace.facts import facts_of, facts_of_set
from patchtrace.images import ImageSet, has_own_size
from patchtrace.methods.base import Method, Resources
from patchtrace.nda.checkpoint import Checkpoint
from patchtrace.nda.choice import FROM_IMAGES
from patchtrace.nda.coarse import Coarse, coarse_draws, coarse_factor, coarse_recipe
from patchtrace.nda.plan import Plan, recipe_for_images, whole_patches
from patchtrace.nda.query_run import EXPLAINED_DRAWS, QueryRun, together
from patchtrace.nda.setting import Setting
from patchtrace.progress import Progress, Watch
from patchtrace.recipe import DEFAULT_SECONDS, DEFAULT_SIZE, Recipe, Stopping

#: The part of the memory that running means and variances of all queries may take in a result.
KEPT_PART = 8
#: Bytes of normalisers that a result keeps, at most, for explanations.
NORMALISERS_BYTES = 100_000_000
#: Bytes that Python and its libraries take, that an image's name takes, and that comparisons have at the least.
PROCESS_BYTES, ID_BYTES, LEAST_ROOM = 120_000_000, 100, 10_000_000
#: Work from which a coarse pass gives a first answer: a second or two.
COARSE_FROM = 2 * 10**9
#: With less, blocks may be smaller than usual, and the last digits may differ.
ROOM_FOR_ALL_BLOCKS = 150_000_000


class NDA(Method):
    """Nonparametric data attribution.

    A query is noised as a diffusion model would noise it. Each of its patches is then shared out among all patches of
    all training images by a softmax over their distances; what the patches of an image receive, its k best for each
    query patch, is the image's score.

    Parameters
    ----------
    recipe : Recipe, optional
        What is compared; by default ``Recipe.for_size`` of the training images, ``Recipe.for_latents`` of latents.
    stopping : Stopping, default Stopping()
        When a recipe with ``draws="auto"`` has enough draws, and how long the list is that has to settle.
    parts : bool, default False
        Whether the result keeps what each level and scale adds to the scores.
    checkpoint : path, optional
        Directory in which unfinished work is kept until it is deleted. A run that was killed resumes from there when
        it is started again, and ends with the same numbers.
    compute : Compute, default Compute()
        Engine, device, threads, memory and cluster. All give the same numbers.

    Attributes
    ----------
    recipe_ : Recipe
        The recipe in use, after ``fit``.

    Examples
    --------
    >>> import patchtrace as pt
    >>> rng = np.random.default_rng(0)
    >>> train = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    >>> recipe = pt.Recipe((pt.Level(100, (pt.Scale(patch=3),)),))
    >>> result = pt.NDA(recipe).fit(train).attribute(train[7:8])
    >>> result.top(1)[0][0].index
    7
    """

    name: ClassVar[str] = "nda"
    many_shapes: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset(
        {"recipe", "draws", "views", "seed", "stopping", "parts", "checkpoint"}
        | {"engine", "device", "threads", "memory", "cluster"}
    )

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        stopping: Stopping | None = None,
        parts: bool = False,
        checkpoint: str | Path | None = None,
        compute: Compute | None = None,
    ) -> None:
        self.recipe, self.parts, self.checkpoint = recipe, parts, checkpoint
        self.stopping, self.compute = stopping or Stopping(), compute or Compute()

    @classmethod
    def create(cls, resources: Resources, **arguments: Any) -> Self:
        names = ("recipe", "stopping", "parts", "checkpoint", "compute")
        return cls(**{name: getattr(resources, name) for name in names}, **arguments)

    def attribute(
        self,
        queries: Any,
        *,
        noise: Mapping[int, ArrayLike] | None = None,
        start: Attribution | None = None,
        progress: Progress | None = None,
    ) -> Attribution:
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        noise : mapping of t to array, optional
            The noise to use at each level, shaped like a query (channels, height, width), or (draws, channels, height,
            width). It is shared by all queries. By default noise comes from the recipe's seed.
        start : Attribution, optional
            An earlier result of the same queries, images and recipe (but for the draws): its draws count too.
        progress : callable or Watch, optional
            Called with (done, total). A Watch also receives remarks on how settled a list is, what is known of a query
            so far, and the result for each query.

        Returns
        -------
        Attribution
            With ``nda`` set. Its method is ``nda-shortlist`` where a time limit left no time for all images.
        """
        watch = Watch.of(progress)
        train, opened = self._opened(queries)
        done = []
        for run, answer in self._runs(train, opened, noise, start, watch):
            for _ in run.run():
                if run.ended is None:
                    watch.provisional(answer())
            done.append(answer())
            watch.finished(done[-1])
        return joined(done, opened)

    def stream(
        self,
        queries: Any,
        *,
        noise: Mapping[int, ArrayLike] | None = None,
        start: Attribution | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Attribution]:
        """The same as :meth:`attribute`, as results of growing certainty, for one query after the other.

        All but the last result of a query have ``nda.ended == [Ended.PROVISIONAL]``.

        Examples
        --------
        >>> from patchtrace.demo import postcards
        >>> import patchtrace as pt
        >>> cards = postcards(40, size=16)
        >>> recipe = pt.Recipe((pt.Level(100, (pt.Scale(5),)),), draws="auto")
        >>> for result in pt.NDA(recipe).fit(cards).stream(cards.subset([5])):
        ...     first = result.top(1)[0][0]
        >>> first.id, str(result.nda.ended[0])
        ('card-005', 'settled')
        """
        train, opened = self._opened(queries)
        for run, answer in self._runs(train, opened, noise, start, Watch.of(progress)):
            for _ in run.run():
                yield answer()

    def _runs(
        self,
        train: ImageSet,
        opened: ImageSet,
        noise: Mapping[int, ArrayLike] | None,
        start: Attribution | None,
        watch: Watch,
    ) -> Iterator[tuple[QueryRun, Callable[[], Attribution]]]:
        """For each query its run, and what makes a result of what is known so far."""
        if noise is not None:
            train.check_one_shape("noise of the caller")
        recipe, given = _with_noise(self.recipe_, train.shape, noise)
        plan = Plan.of(recipe, _largest(train, opened), shapes=train.extents is not None)
        if recipe.exponent * math.log(plan.patches) > math.log(np.finfo(np.float32).max):
            raise PatchtraceError(
                f"exponent is {recipe.exponent}: scores would be too large for float32, use a smaller one"
            )
        if start is not None:
            if self.parts or noise is not None:
                raise PatchtraceError(
                    "a result is continued with noise from its seed and without parts: leave out noise and parts"
                )
            _check_start(start, recipe, train, opened)
        engine = get_engine(self.compute, len(opened) * len(train) * sum(level.cost for level in plan.levels))
        budget, keep = _room(self.compute.budget.total, len(opened), plan, len(train), self.parts)
        if self.stopping.seconds is None:  # else a coarse pass may be all that is needed
            largest = train.shape[0], *_largest(train, opened)
            check_room(engine, (step.comparison for step in plan.steps), largest, budget)
        patches = sum(step.patches for step in plan.steps)
        explainable = len(opened) * EXPLAINED_DRAWS * patches * 8 <= NORMALISERS_BYTES
        settings = self.settings() | {"recipe": recipe.to_dict(), "engine": engine.name}
        facts = facts_of(train, opened)
        # where blocks may be smaller than usual, the last digits depend on the memory
        kind = [engine.instructions, budget.total < ROOM_FOR_ALL_BLOCKS and budget.total]
        with ExitStack() as stack:
            small = self._small(plan, train, budget)
            if small is not None and small.pixels.in_memory:
                budget = budget.without(small.pixels.nbytes)
            place = _Place(self.compute, engine, budget, watch, stack)
            coarse = None
            if small is not None:
                factor = coarse_factor(train.shortest_side)
                small_recipe = coarse_recipe(recipe, factor, coarse_draws(len(train)), train)
                coarse = Coarse(small_recipe, small, place.work(small), factor)
            setting = Setting(
                plan, train, place.work(train), engine, budget, self.stopping, coarse, self._listed(train), given,
                self.parts, keep, explainable,
            )  # fmt: skip
            for number in range(len(opened)):
                query = opened.subset([number])
                about = {"settings": settings, "facts": {**facts, "queries": facts_of_set(query)}}
                checkpoint = None
                if self.checkpoint:
                    checkpoint = Checkpoint(Path(self.checkpoint), _key(setting, about, start, kind))
                part = watch.part(number / len(opened), (number + 1) / len(opened))
                if train.extents is not None:
                    setting = replace(setting, plan=Plan.of(recipe, query.size_of(0), shapes=True))
                run = QueryRun(setting, query, part, checkpoint)
                if start is not None:
                    run.resume(start, number)
                yield run, partial(self._answer, run, train, query, about)

    def _answer(self, run: QueryRun, train: ImageSet, query: ImageSet, about: dict[str, Any]) -> Attribution:
        mean, details = run.details()
        scores, shares = mean[None] ** run.plan.recipe.exponent, mean[None] / run.plan.patches
        result = self._result(train, query, scores, shares, nda=details, **about)
        return replace(result, method="nda-shortlist" if details.shortlist else "nda")

    def _listed(self, train: ImageSet) -> int | None:
        """Images to score after a coarse pass, if their number is given."""
        return None

    def _small(self, plan: Plan, train: ImageSet, budget: Budget) -> ImageSet | None:
        """The pictures of a coarse pass; None where an exact first answer comes as soon.

        They are read and made once, for all queries, if they do not take too much memory. Workers of a cluster make
        their own.
        """
        factor = coarse_factor(train.shortest_side)
        work = len(train) * sum(level.cost for level in plan.levels)
        if factor == 1:  # nothing is smaller: a coarse pass is a draw of all images, for a shortlist only
            asked = self.stopping.seconds is not None and len(train) >= FROM_IMAGES
        else:
            asked = self.stopping.seconds is not None or plan.recipe.draws == "auto"
        wanted = asked and work > COARSE_FROM
        if self._listed(train) is None and not wanted:
            return None
        small = train.smaller(factor)
        if self.compute.cluster is not None or small.pixels.nbytes > budget.cached:
            return small
        return small.loaded()

    def settings(self) -> dict[str, Any]:
        return {"recipe": self.recipe_.to_dict(), "engine": self.compute.engine}

    def describe(self) -> str:
        return f"{self.recipe_.note or 'recipe'}: {self.recipe_.summary()}"

    @property
    def recipe_(self) -> Recipe:
        """The recipe in use: the one given, or the one for the size of the training images."""
        if self.recipe is not None:
            return self.recipe if self.train_ is None else whole_patches(self.recipe, self.train_)
        if self.train_ is None:
            raise PatchtraceError("NDA chooses its recipe by the size of the training images: call fit(train) first")
        return recipe_for_images(self.train_)

    def _check(self, train: ImageSet) -> None:
        for name, kind in (("recipe", Recipe), ("stopping", Stopping), ("compute", Compute)):
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                example = "Recipe.preset('cifar')" if kind is Recipe else f"{kind.__name__}()"
                raise PatchtraceError(f"{name} is {value!r}: use a {kind.__name__}, such as {example}")
        if self.recipe is not None:
            one_shape = train.extents is None
            self.recipe.check(*(train.shape[1:] if one_shape else (train.shortest_side, train.shortest_side)))


class _Place:
    """Where comparisons are made: in this process, or on a cluster."""

    def __init__(self, compute: Compute, engine: Engine, budget: Budget, watch: Watch, stack: ExitStack) -> None:
        self.compute, self.engine, self.budget, self.watch = compute, engine, budget, watch
        self.client = None
        if compute.cluster is not None:
            self.client = stack.enter_context(connected(compute.cluster, memory=compute.budget.total))

    def work(self, images: ImageSet) -> Work:
        local = LocalWork(self.engine, images, self.budget)
        return DaskWork(self.client, local, compute=self.compute, watch=self.watch) if self.client else local


def attribute(
    queries: Any,
    train: Any,
    *,
    size: int | tuple[int, int] | None = None,
    recipe: Recipe | None = None,
    compute: Compute | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Which images of ``train`` do the queries resemble? The whole of NDA in one call.

    Parameters
    ----------
    queries, train : path, array, ...
        Anything that ``ImageSet.open`` takes.
    size : int or (int, int), optional
        Size that pictures are brought to; by default files to 32 x 32, and arrays stay as they are.
    recipe : Recipe, optional
        What is compared; by default one for the size, with draws until the list is settled.
    compute : Compute, default Compute()
        Engine, device, threads, memory and cluster.
    progress : callable or Watch, optional
        Called with (done, total).

    Returns
    -------
    Attribution

    Examples
    --------
    >>> import numpy as np
    >>> train = np.random.default_rng(0).integers(0, 256, (12, 9, 9, 3), dtype=np.uint8)
    >>> result = attribute(train[4:5], train)
    >>> result.top(1)[0][0].id
    '4'
    """
    if size is None and not has_own_size(train):
        size = DEFAULT_SIZE
    images = ImageSet.open(train, size=size)
    recipe = recipe or replace(recipe_for_images(images), draws="auto")
    stopping = Stopping(seconds=DEFAULT_SECONDS if recipe.draws == "auto" else None)
    return NDA(recipe, stopping=stopping, compute=compute).fit(images).attribute(queries, progress=progress)


def _largest(train: ImageSet, queries: ImageSet) -> tuple[int, int]:
    """Height and width of what has room for every image and query: of sets of one shape, that of each."""
    if train.extents is None or queries.extents is None:
        return train.shape[1:]
    height, width = np.concatenate([train.extents, queries.extents]).max(axis=0).tolist()
    return height, width


def check_images(result: Attribution, train: ImageSet, queries: ImageSet) -> None:
    """Raise a PatchtraceError if these are not the images of the result."""
    for images, name in ((train, "train"), (queries, "queries")):
        if images.fingerprint() != result.facts.get(name, {}).get("fingerprint"):
            raise PatchtraceError(f"the images of {name!r} changed since the result was made: use the original ones")


def _check_start(start: Attribution, recipe: Recipe, train: ImageSet, queries: ImageSet) -> None:
    """Draws add up only if everything but their number is the same."""
    if start.nda is None or not start.nda.can_continue:
        raise PatchtraceError(
            "a result with a single draw, or with noise that was given, cannot be continued: run it with draws='auto'"
        )
    if replace(start.nda.recipe, draws=1) != replace(recipe, draws=1):
        raise PatchtraceError("a result of another recipe cannot be continued: use the one in its settings")
    try:
        check_images(start, train, queries)
    except PatchtraceError as error:
        raise PatchtraceError(f"a result of other images cannot be continued: {error}") from error


def _room(memory: int, queries: int, plan: Plan, images: int, parts: bool) -> tuple[Budget, bool]:
    """The memory left for comparisons after that of the process and of what is kept for each image.

    Also whether the result can hold what a later run could continue with.
    """
    steps = len(plan.steps) if parts else 0
    moments = 40 * len(plan.levels)
    each = ID_BYTES + moments + 8 * (2 * len(plan.levels) + 8 + steps)  # of the query at work, with what it computes
    each += 3 * 8 * together(images)  # draws that are summed at once
    each += 2 * queries * (16 + 4 * steps)  # of the result, for each query and then joined
    room = memory - PROCESS_BYTES - images * each
    if images * each > 3 * memory // 4:
        needed = -(-(PROCESS_BYTES + 4 * images * each // 3) // 10**8) / 10
        raise PatchtraceError(
            f"memory is {memory / 1e9:g} GB, but {images:,} images and {queries:,} queries need {needed} GB: "
            f"use memory='{needed}GB', or fewer queries at once"
        )
    kept = 2 * moments * queries * images
    keep = kept <= memory // KEPT_PART and kept <= room // 2
    return Budget(max(room - kept * keep, LEAST_ROOM)), keep


def _key(setting: Setting, about: Mapping[str, Any], start: Attribution | None, kind: list[Any]) -> str:
    """A hash of everything that the numbers of a query depend on."""
    given = [hashlib.sha256(eps.tobytes()).hexdigest() for eps in (setting.noise or {}).values()]
    facts = about["facts"]
    begun = start and start.nda and [start.nda.record(), start.facts["queries"]["fingerprint"]]
    images = [facts[name]["fingerprint"] for name in ("train", "queries")]
    limited = setting.plan.recipe.draws == "auto" or setting.stopping.seconds is not None
    rules = asdict(setting.stopping) if limited else None
    kind = [facts["versions"]["patchtrace"], *kind]
    return digest(about["settings"], rules, setting.parts, images, given, begun, kind)


def _with_noise(
    recipe: Recipe, shape: tuple[int, int, int], given: Mapping[int, ArrayLike] | None
) -> tuple[Recipe, dict[int, NDArray[np.float32]] | None]:
    """The caller's noise for each level, if any, and the recipe with the number of draws there are."""
    if given is None:
        return recipe, None
    eps = {}
    for t in (level.t for level in recipe.levels):
        if t not in given:
            raise PatchtraceError(f"noise has no entry for t = {t}: it needs one for each level of the recipe")
        noise = np.asarray(given[t], dtype=np.float32)
        if noise.shape[-3:] != shape or noise.ndim not in (3, 4) or noise.size == 0 or not np.isfinite(noise).all():
            raise PatchtraceError(
                f"the noise for t = {t} has shape {noise.shape}: "
                f"use finite values of shape {shape} or (draws, *{shape})"
            )
        eps[t] = noise.reshape(-1, *shape)
    counts = {len(noise) for noise in eps.values()}
    if len(counts) > 1:
        raise PatchtraceError("the noise has more draws at one t than at another: give each t the same number of draws")
    return replace(recipe, draws=counts.pop()), eps
