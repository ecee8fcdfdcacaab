"""NDA: how much of a query the patches of each training image account for, at several noise levels and scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
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


class NDA(Method):
    """Nonparametric data attribution.

    A query is noised as a diffusion model would noise it. Each of its patches is then shared out among all patches of
    all training images by a softmax over their distances; what the patches of an image receive, its k best for each
    query patch, is the image's score.

    Parameters
    ----------
    recipe : Recipe, optional
        What is compared. Without it, ``fit`` chooses one for the size of the images (``Recipe.for_size``).
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
        engine: str = "auto",
        device: str | None = None,
        threads: int | None = None,
        memory: str | int = DEFAULT_MEMORY,
    ) -> None:
        self.recipe = recipe
        self.engine = engine
        self.device = device
        self.threads = threads
        self.memory = memory

    def attribute(
        self,
        queries: Any,
        *,
        progress: Progress | None = None,
        noise: Mapping[int, ArrayLike] | None = None,
        parts: bool = False,
    ) -> Attribution:
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        progress : callable, optional
            Called with (done, total), in pairs of patches.
        noise : mapping of t to array, optional
            The noise to use at each level, shaped like a query (channels, height, width), or (draws, channels, height,
            width). It is shared by all queries. Without it noise comes from the recipe's seed.
        parts : bool
            Keep what each level and scale adds to the scores.
        """
        train, opened = self._opened(queries)
        recipe, eps = _with_noise(self.recipe_, train.shape, noise)
        steps = [
            _Step(level.t, Comparison.of(scale, recipe), weight / len(recipe.levels))
            for level in recipe.levels
            for scale, weight in level.weighted_scales()
        ]
        # One divisor for all images, so that shares rank as scores do: the number of query patches. Where scales differ
        # in it, their mean with the weights that they have in the scores.
        patches = sum(step.weight * step.comparison.patches(*train.shape[1:]) for step in steps)
        if recipe.exponent * math.log(patches) > math.log(np.finfo(np.float32).max):
            raise PatchtraceError(
                f"exponent is {recipe.exponent}: scores would be too large for float32, use a smaller one"
            )
        scores = np.zeros((len(opened), len(train)))
        by_step = np.zeros((len(steps) if parts else 0, *scores.shape), dtype=np.float32)
        work = [step.comparison.pairs(*train.shape[1:]) * len(eps[step.t]) for step in steps]
        count = Counter(progress, len(opened) * len(train) * sum(work))
        engine = get_engine(self.engine, threads=self.threads, device=self.device, pairs=count.total)
        for q, number, part in self._parts(train, opened, steps, eps, engine, [count.per_image(one) for one in work]):
            scores[q] += part
            if parts:
                by_step[number, q] = part
        source = "from the seed" if noise is None else "given by the caller"
        return self._result(
            train,
            opened,
            scores**recipe.exponent,
            scores / patches,
            settings={"recipe": recipe.to_dict(), "engine": engine.name, "noise": source},
            parts=by_step if parts else None,
            part_names=tuple(Part(step.t, step.comparison.patch, step.comparison.pool) for step in steps)
            if parts
            else (),
        )

    def _parts(
        self,
        train: ImageSet,
        queries: ImageSet,
        steps: list[_Step],
        eps: Mapping[int, NDArray[np.float32]],
        engine: Engine,
        advance: list[Callable[[int], None]],
    ) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """For each query and step, what the step adds to the scores of all training images, mean over draws."""
        recipe, memory = self.recipe_, parse_memory(self.memory)
        for q in range(len(queries)):
            clean = queries.block(q, q + 1)[0]
            for number, step in enumerate(steps):
                masses = image_masses(
                    engine,
                    NoisyQuery.of(clean, eps[step.t], *recipe.noise_at(step.t)),
                    train,
                    step.comparison,
                    flips=recipe.flips,
                    memory=memory,
                    progress=advance[number],
                )
                yield q, number, step.weight * masses.mean(axis=0)

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


class _Step(NamedTuple):
    """One scale at one level, with its weight in the score."""

    t: int
    comparison: Comparison
    weight: float


def _with_noise(
    recipe: Recipe, shape: tuple[int, int, int], given: Mapping[int, ArrayLike] | None
) -> tuple[Recipe, dict[int, NDArray[np.float32]]]:
    """For each level its noise (draws, channels, height, width), and the recipe with the number of draws there are."""
    if given is None:
        return recipe, {level.t: _drawn(recipe, level.t, shape) for level in recipe.levels}
    eps = {level.t: _checked(given, level.t, shape) for level in recipe.levels}
    counts = {len(noise) for noise in eps.values()}
    if len(counts) > 1:
        raise PatchtraceError("the noise has more draws at one t than at another: give each t the same number")
    return replace(recipe, draws=counts.pop()), eps


def _drawn(recipe: Recipe, t: int, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    """Noise from the seed. A draw does not depend on how many there are, nor on the other levels."""
    draws = [np.random.default_rng((recipe.seed, t, draw)).standard_normal(shape) for draw in range(recipe.draws)]
    return np.stack(draws).astype(np.float32)


def _checked(given: Mapping[int, ArrayLike], t: int, shape: tuple[int, int, int]) -> NDArray[np.float32]:
    if t not in given:
        raise PatchtraceError(f"noise has no entry for t = {t}: it needs one for each level of the recipe")
    noise = np.asarray(given[t], dtype=np.float32)
    if noise.shape[-3:] != shape or noise.ndim not in (3, 4) or noise.size == 0 or not np.isfinite(noise).all():
        raise PatchtraceError(
            f"the noise for t = {t} has shape {noise.shape}: use finite values of shape {shape} or (draws, *{shape})"
        )
    return noise.reshape(-1, *shape)
