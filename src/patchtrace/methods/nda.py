"""NDA: how much of a query the patches of each training image account for, at several noise levels and scales."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.attribution import Attribution, Part
from patchtrace.engines import Comparison, Engine, NoisyQuery, get_engine, image_masses
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.memory import DEFAULT_MEMORY, parse_memory
from patchtrace.methods.base import Method
from patchtrace.progress import Counter, Progress
from patchtrace.recipe import Recipe
from patchtrace.sampling import Estimate, Moments, Plan, chance_of_top, estimate

#: Bytes that the running means and variances of all queries may take together in a result.
MOST_MOMENTS = 1 << 30
#: Draws of a level that are compared in one go.
TOGETHER = 16
#: What a query patch costs besides its pairs, in pairs: at 32 x 32 a draw at P 21 takes half the time of one at P 5.
WORK_OF_A_PATCH = 300
#: Up to so many patches within the picture what a patchwork keeps of an image stays in the cache. Pictures with more
#: are sampled in pairs; they have so many patches that chance matters less.
PATCHWORK_PATCHES = 256


class NDA(Method):
    """Nonparametric data attribution.

    A query is noised as a diffusion model would noise it. Each of its patches is then shared out among all patches of
    all training images by a softmax over their distances; what the patches of an image receive, its k best for each
    query patch, is the image's score.

    Parameters
    ----------
    recipe : Recipe, optional
        What is compared. Without it, ``fit`` chooses one for the size of the images (``Recipe.for_size``).
    top : int
        How long the list is that has to settle.
    confidence : float
        With ``draws="auto"`` in the recipe: draws are added until so much of the list would stay with any other noise.
    most_draws : int
        With ``draws="auto"``: no level has more.
    seconds : float, optional
        With ``draws="auto"``: no further draws for a query after this time. The result then depends on the machine.
    engine : str
        How it is computed: ``"auto"``, or one of ``patchtrace.engines.ENGINES``. All engines give the same numbers.
    device : str, optional
        For the torch engine, such as ``"cuda:1"``.
    threads : int, optional
        How many to use; without it, as many as the process may.
    memory : str or int
        Working memory to stay within, such as ``"2GB"`` or a number of bytes. The result does not depend on it.

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

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        top: int = 10,
        confidence: float = 0.95,
        most_draws: int = 256,
        seconds: float | None = None,
        engine: str = "auto",
        device: str | None = None,
        threads: int | None = None,
        memory: str | int = DEFAULT_MEMORY,
    ) -> None:
        self.recipe = recipe
        self.top = top
        self.confidence = confidence
        self.most_draws = most_draws
        self.seconds = seconds
        self.engine = engine
        self.device = device
        self.threads = threads
        self.memory = memory

    def attribute(
        self,
        queries: Any,
        *,
        progress: Progress | None = None,
        remark: Callable[[str], None] | None = None,
        noise: Mapping[int, ArrayLike] | None = None,
        parts: bool = False,
        start: Attribution | None = None,
    ) -> Attribution:
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        progress : callable, optional
            Called with (done, total), in pairs of patches. With ``draws="auto"`` the total is what is planned so far.
        remark : callable, optional
            Called with how settled the list of a query is, in words, whenever that is known anew.
        noise : mapping of t to array, optional
            The noise to use at each level, shaped like a query (channels, height, width), or (draws, channels, height,
            width). It is shared by all queries. Without it noise comes from the recipe's seed.
        parts : bool
            Keep what each level and scale adds to the scores.
        start : Attribution, optional
            An earlier result of the same queries, images and recipe (but for the draws): its draws count too.
        """
        train, opened = self._opened(queries)
        recipe, given = _with_noise(self.recipe_, train.shape, noise)
        levels = levels_of(recipe, train.shape[1:])
        # One divisor for all images, so that shares rank as scores do: the number of query patches. Where scales differ
        # in it, their mean with the weights that they have in the scores.
        patches = sum(step.weight * step.patches for level in levels for step in level.steps) / len(levels)
        if recipe.exponent * math.log(patches) > math.log(np.finfo(np.float32).max):
            raise PatchtraceError(
                f"exponent is {recipe.exponent}: scores would be too large for float32, use a smaller one"
            )
        count = Counter(progress, 0)
        work = len(opened) * len(train) * sum(level.cost for level in levels)
        engine = get_engine(self.engine, threads=self.threads, device=self.device, pairs=work)
        if start is not None:
            if parts or noise is not None:
                raise PatchtraceError(
                    "a result is continued with noise from its seed and without parts: leave them out"
                )
            _check_start(start, recipe, train, opened)
        # what a later run could go on with is not kept where it would fill the memory
        keep = 24 * len(opened) * len(levels) * len(train) <= MOST_MOMENTS
        done = []
        for q in range(len(opened)):
            one = _Sampled(self, recipe, levels, train, opened.block(q, q + 1)[0], engine, given, count, parts, remark)
            if start is not None:
                one.go_on(start, q)
            if recipe.draws != "auto" and q == 0:  # all have as many, or, in a result that goes on, about as many
                count.total = len(opened) * one.work_of(one.missing(recipe.draws))
            one.run()
            done.append(one.outcome(keep))
        mean = np.stack([one.found.mean for one in done])
        several = all(one.known for one in done)
        source = "from the seed" if noise is None else "given by the caller"
        return self._result(
            train,
            opened,
            mean**recipe.exponent,
            mean / patches,
            settings={"recipe": recipe.to_dict(), "engine": engine.name, "noise": source},
            parts=np.stack([one.parts for one in done], axis=1).astype(np.float32) if parts else None,
            part_names=tuple(step.name for level in levels for step in level.steps) if parts else (),
            errors=np.stack([one.found.error / patches for one in done]).astype(np.float32) if several else None,
            chances=np.stack([one.chances for one in done]).astype(np.float32) if several else None,
            sampling={
                "top": self.top,
                "confidence": self.confidence,
                **{name: [getattr(one, name) for one in done] for name in ("draws", "samples", "ended")},
            },
            moments=np.stack([one.moments for one in done], axis=1) if several and keep else None,
        )

    def settings(self) -> dict[str, Any]:
        return {"recipe": self.recipe_.to_dict(), "engine": self.engine}

    @property
    def recipe_(self) -> Recipe:
        """The recipe in use: the one given, or the one for the size of the training images."""
        if self.recipe is not None:
            return self.recipe
        if self.train_ is None:
            raise PatchtraceError("NDA chooses its recipe by the size of the training images: call fit(train) first")
        return Recipe.for_size(*self.train_.shape[1:])

    def _check(self, train: ImageSet) -> None:
        if self.recipe is not None and not isinstance(self.recipe, Recipe):
            raise PatchtraceError(f"recipe is {self.recipe!r}: use a Recipe, such as Recipe.preset('cifar')")
        if self.recipe is not None:
            self.recipe.check(*train.shape[1:])
        if self.top < 1 or self.most_draws < 2:
            raise PatchtraceError(f"top is {self.top} and most_draws {self.most_draws}: use at least 1 and 2")
        if not 0 < self.confidence < 1:
            raise PatchtraceError(f"confidence is {self.confidence}: use a number between 0 and 1, such as 0.95")
        if self.seconds is not None and self.seconds <= 0:
            raise PatchtraceError(f"seconds is {self.seconds}: use a time above 0, or None")


class _Step(NamedTuple):
    """One scale at one level, with its weight in the level and the work of a draw for one training image."""

    name: Part
    comparison: Comparison
    weight: float
    patches: int
    cost: int


class _Level(NamedTuple):
    """One level: its scales, which share their noise, the work of a draw, and whether it is a patchwork."""

    t: int
    steps: tuple[_Step, ...]
    cost: int
    patchwork: bool


def _check_start(start: Attribution, recipe: Recipe, train: ImageSet, queries: ImageSet) -> None:
    """Draws add up only if everything but their number is the same."""
    if start.moments is None or start.settings["noise"] != "from the seed":
        raise PatchtraceError(
            "a result with a single draw, or with noise that was given, cannot be continued: run it with draws='auto'"
        )
    same = Recipe.from_dict(start.settings["recipe"])
    if replace(same, draws=1) != replace(recipe, draws=1):
        raise PatchtraceError("a result of another recipe cannot be continued: use the one in its settings")
    for images, name in ((train, "train"), (queries, "queries")):
        if images.fingerprint() != start.facts[name]["fingerprint"]:
            raise PatchtraceError(f"a result of other images cannot be continued: the {name} changed since it was made")


def levels_of(recipe: Recipe, size: tuple[int, int]) -> list[_Level]:
    """The levels of a recipe for pictures of this size. A single draw is made as the paper does, never a patchwork."""
    levels = []
    for level in recipe.levels:
        steps = []
        for scale, weight in level.weighted_scales():
            comparison = Comparison.of(scale, recipe)
            name = Part(level.t, scale.patch, scale.pool)
            patches = comparison.patches(*size)
            cost = comparison.pairs(*size) + WORK_OF_A_PATCH * patches
            steps.append(_Step(name, comparison, weight, patches, cost))
        inside = [math.prod(len(step.comparison.inside(side)) for side in size) for step in steps]
        patchwork = recipe.draws != 1 and all(count <= PATCHWORK_PATCHES for count in inside)
        levels.append(_Level(level.t, tuple(steps), sum(step.cost for step in steps), patchwork))
    return levels


def drawn(level: _Level, seed: int, first: int, last: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Noises first to last of a level: one for each draw, or, without a patchwork, pairs of one and its negative."""
    size = 1 if level.patchwork else 2
    noises = [
        np.random.default_rng((seed, level.t, draw // size)).standard_normal(shape) * (-1) ** (draw % size)
        for draw in range(first, last)
    ]
    return np.stack(noises).astype(np.float32)


class _Outcome(NamedTuple):
    """What is known of one query in the end."""

    found: Estimate
    chances: NDArray[np.float64]
    parts: NDArray[np.float64]
    draws: list[int]
    samples: list[int]
    ended: str
    known: bool  # whether anything is known of the errors
    moments: NDArray[np.float64]  # (3, levels, train), or nothing


class _Sampled:
    """One query: draws so far, and more of them."""

    def __init__(
        self,
        method: NDA,
        recipe: Recipe,
        levels: list[_Level],
        train: ImageSet,
        clean: NDArray[np.float32],
        engine: Engine,
        noise: Mapping[int, NDArray[np.float32]] | None,
        count: Counter,
        parts: bool,
        remark: Callable[[str], None] | None,
    ) -> None:
        self.method, self.recipe, self.levels, self.train, self.clean = method, recipe, levels, train, clean
        self.engine, self.noise, self.count, self.remark = engine, noise, count, remark
        self.moments = [Moments.of(len(train)) for _ in levels]
        self.ended = "fixed"
        steps = sum(len(level.steps) for level in levels)
        self.sums = np.zeros((steps if parts else 0, len(train)))  # over draws, of what each level and scale adds

    def go_on(self, start: Attribution, query: int) -> None:
        """Take over the draws of an earlier result."""
        assert start.moments is not None
        for level, moments in enumerate(self.moments):
            moments.mean, moments.squares, moments.inner = start.moments[:, query, level]
            moments.samples = start.sampling["samples"][query][level]
            moments.draws = start.sampling["draws"][query][level]

    def missing(self, draws: int) -> list[int]:
        """Draws to add at each level so that there are so many."""
        return [max(0, draws - moments.draws) for moments in self.moments]

    def work_of(self, draws: list[int]) -> int:
        return len(self.train) * sum(n * level.cost for n, level in zip(draws, self.levels, strict=True))

    def run(self) -> None:
        draws = self.recipe.draws
        if draws != "auto":
            self._add(self.missing(draws))
            return
        begin = time.monotonic()
        plan = Plan([level.cost for level in self.levels], self.method.most_draws)
        added = self.missing(2)
        self.ended = ""
        while not self.ended:
            self.count.total += self.work_of(added)
            self._add(added)
            best = np.sort(self.chances())[::-1][: self.method.top]
            if self.remark:
                settled = int((best >= self.method.confidence).sum())
                self.remark(f"{settled} of {len(best)} settled")
            added = [2 * pairs for pairs in plan.next(self.moments, self.method.top)]
            if best.mean() >= self.method.confidence:
                self.ended = "settled"
            elif not any(added):
                self.ended = "draws"
            elif self.method.seconds is not None and time.monotonic() - begin > self.method.seconds:
                self.ended = "time"

    def _add(self, draws: list[int]) -> None:
        number = 0
        for level, moments, wanted in zip(self.levels, self.moments, draws, strict=True):
            last = moments.draws + wanted
            while moments.draws < last:
                noise = self._noise(level, moments.draws, min(last, moments.draws + TOGETHER))
                patchwork = level.patchwork and self.noise is None
                values = np.zeros((len(noise), len(self.train)))
                for place, step in enumerate(level.steps, start=number):
                    masses = step.weight * image_masses(
                        self.engine,
                        NoisyQuery.of(self.clean, noise, *self.recipe.noise_at(level.t), patchwork=patchwork),
                        self.train,
                        step.comparison,
                        flips=self.recipe.flips,
                        memory=parse_memory(self.method.memory),
                        progress=self.count.per_image(step.cost),
                    )
                    values += masses
                    if len(self.sums):
                        self.sums[place] += masses.sum(axis=0) / len(self.levels)
                size = 1 if patchwork or self.noise is not None else 2  # noises that the caller gives are no pairs
                for first in range(0, len(values), size):
                    moments.add(values[first : first + size])
            number += len(level.steps)

    def _noise(self, level: _Level, first: int, last: int) -> NDArray[np.float32]:
        """Draws first to last of a level."""
        if self.noise is not None:
            return self.noise[level.t][first:last]
        return drawn(level, self.recipe.seed, first, last, self.train.shape)

    def outcome(self, keep: bool) -> _Outcome:
        kept = [[getattr(m, name) for m in self.moments] for name in ("mean", "squares", "inner")] if keep else []
        return _Outcome(
            estimate(self.moments),
            self.chances(),
            self.parts() if len(self.sums) else self.sums,
            [m.draws for m in self.moments],
            [m.samples for m in self.moments],
            self.ended,
            all(m.known for m in self.moments),
            np.array(kept),
        )

    def chances(self) -> NDArray[np.float64]:
        return chance_of_top(estimate(self.moments), self.method.top, self.recipe.seed)

    def parts(self) -> NDArray[np.float64]:
        """What each level and scale adds to the scores: (parts, train)."""
        draws = np.repeat([m.draws for m in self.moments], [len(level.steps) for level in self.levels])
        return np.asarray(self.sums / draws[:, None])


def _with_noise(
    recipe: Recipe, shape: tuple[int, int, int], given: Mapping[int, ArrayLike] | None
) -> tuple[Recipe, dict[int, NDArray[np.float32]] | None]:
    """The noise that the caller gives for each level, if any, and the recipe with the number of draws there are."""
    if given is None:
        return recipe, None
    eps = {level.t: _checked(given, level.t, shape) for level in recipe.levels}
    counts = {len(noise) for noise in eps.values()}
    if len(counts) > 1:
        raise PatchtraceError("the noise has more draws at one t than at another: give each t the same number")
    return replace(recipe, draws=counts.pop()), eps


def _checked(given: Mapping[int, ArrayLike], t: int, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    if t not in given:
        raise PatchtraceError(f"noise has no entry for t = {t}: it needs one for each level of the recipe")
    noise = np.asarray(given[t], dtype=np.float32)
    if noise.shape[-3:] != shape or noise.ndim not in (3, 4) or noise.size == 0 or not np.isfinite(noise).all():
        raise PatchtraceError(
            f"the noise for t = {t} has shape {noise.shape}: use finite values of shape {shape} or (draws, *{shape})"
        )
    return noise.reshape(-1, *shape)
