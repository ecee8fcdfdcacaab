"""NDA: how much of a query the patches of each training image account for, at several noise levels and scales."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.attribution import Attribution, facts_of, facts_of_set, joined
from patchtrace.cluster import connected, masses_on
from patchtrace.engines import Engine, Masses, Rest, get_engine, masses_here
from patchtrace.errors import PatchtraceError
from patchtrace.images import ImageSet
from patchtrace.memory import DEFAULT_MEMORY, parse_memory
from patchtrace.methods.base import Method
from patchtrace.methods.levels import levels_of, together
from patchtrace.methods.sampled import Outcome, Rules, Sampled, Task
from patchtrace.methods.unfinished import Unfinished
from patchtrace.progress import Counter, Progress
from patchtrace.recipe import Recipe

#: The part of the memory that running means and variances of all queries may take in a result.
KEPT_PART = 8
#: Bytes that Python and its libraries take, that an image's name takes, and that comparisons have at the least.
PROCESS_BYTES, ID_BYTES, LEAST_ROOM = 120_000_000, 100, 10_000_000
#: With less, blocks may be smaller than usual, and the last digits others.
ROOM_FOR_ALL_BLOCKS = 150_000_000


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
        Working memory to stay within, such as ``"2GB"`` or a number of bytes. On a cluster, that of each process.
    cluster : str, optional
        The address of a dask scheduler, such as ``"tcp://host:8786"``, or ``"local:4"`` for so many processes here. The
        result is the same, to the last bit.

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
        cluster: str | None = None,
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
        self.cluster = cluster

    def attribute(
        self,
        queries: Any,
        *,
        progress: Progress | None = None,
        remark: Callable[[str], None] | None = None,
        noise: Mapping[int, ArrayLike] | None = None,
        parts: bool = False,
        start: Attribution | None = None,
        unfinished: str | Path | None = None,
        finished: Callable[[Attribution], None] | None = None,
        rest: Rest | None = None,
    ) -> Attribution:
        """Score every training image for every query.

        Parameters
        ----------
        queries : ImageSet, path, array, ...
            Anything that ``ImageSet.open`` takes; it is brought to the size of the training set.
        progress : callable, optional
            Called with (done, total), in pairs of patches. With ``draws="auto"`` the total is what is planned so far.
        remark : callable, optional
            Called with how settled the list of a query is, in words, whenever that is known anew; on a cluster also
            with the number of tasks done and of workers.
        noise : mapping of t to array, optional
            The noise to use at each level, shaped like a query (channels, height, width), or (draws, channels, height,
            width). It is shared by all queries. Without it noise comes from the recipe's seed.
        parts : bool
            Keep what each level and scale adds to the scores.
        start : Attribution, optional
            An earlier result of the same queries, images and recipe (but for the draws): its draws count too.
        unfinished : path, optional
            A directory in which work is kept until somebody deletes it. A run that was killed goes on from there when
            it is called again, and ends with the same numbers.
        finished : callable, optional
            Called with the result for each query as soon as it is there.
        rest : Rest, optional
            Images that stand for others which are not in the training set: they count in normalisers only.
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
        if start is not None:
            if parts or noise is not None:
                raise PatchtraceError(
                    "a result is continued with noise from its seed and without parts: leave them out"
                )
            _check_start(start, recipe, train, opened)
        images = len(train) + (len(rest.images) if rest else 0)
        work = len(opened) * images * sum(level.cost for level in levels)
        engine = get_engine(self.engine, threads=self.threads, device=self.device, pairs=work)
        rules = Rules(self.top, self.confidence, self.most_draws, self.seconds)
        count = Counter(progress, 0)
        task = Task(recipe, levels, train.shape, len(train), images, rules, given, parts, count, remark)
        room, keep = _room(parse_memory(self.memory), len(opened), task)
        settings = {
            "recipe": recipe.to_dict(),
            "engine": engine.name,
            "noise": "from the seed" if noise is None else "given by the caller",
        }
        facts = facts_of(train, opened)
        done = []
        with self._workplace(engine, train, rest, room, remark) as masses:
            for q in range(len(opened)):
                query = opened.subset([q])
                facts = {**facts, "queries": facts_of_set(query)}
                place = None
                if unfinished:
                    identity = _identity(task, settings, facts, start, rest, engine, room)
                    place = Unfinished(Path(unfinished), identity)
                one = Sampled(task, query.block(0, 1)[0], masses, place)
                if start is not None:
                    one.go_on(start, q)
                if recipe.draws != "auto" and q == 0:  # all have as many, or, in a result that goes on, about as many
                    count.total = len(opened) * one.work_to(recipe.draws)
                one.run()
                done.append(
                    self._of_one(train, query, task, patches, one.outcome(keep), settings=settings, facts=facts)
                )
                if finished:
                    finished(done[-1])
        return joined(done, opened)

    @contextmanager
    def _workplace(
        self,
        engine: Engine,
        train: ImageSet,
        rest: Rest | None,
        room: int,
        remark: Callable[[str], None] | None,
    ) -> Iterator[Masses]:
        """Where the comparisons are done: in this process, or on a cluster, in so much memory."""
        if self.cluster is None:
            yield masses_here(engine, train, room, rest)
            return
        with connected(self.cluster, memory=parse_memory(self.memory)) as client:
            yield masses_on(
                client, engine, train, room, rest=rest, threads=self.threads, device=self.device, remark=remark
            )

    def _of_one(
        self, train: ImageSet, query: ImageSet, task: Task, patches: float, outcome: Outcome, **about: Any
    ) -> Attribution:
        """The result for one query."""
        mean = outcome.found.mean[None]
        names = tuple(step.name for level in task.levels for step in level.steps)
        return self._result(
            train,
            query,
            mean**task.recipe.exponent,
            mean / patches,
            parts=outcome.parts[:, None].astype(np.float32) if task.parts else None,
            part_names=names if task.parts else (),
            errors=(outcome.found.error[None] / patches).astype(np.float32) if outcome.known else None,
            chances=outcome.chances[None].astype(np.float32) if outcome.known else None,
            sampling={
                "top": self.top,
                "confidence": self.confidence,
                **{name: [getattr(outcome, name)] for name in ("draws", "samples", "ended")},
            },
            moments=outcome.moments[:, None] if outcome.known and outcome.moments.size else None,
            **about,
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


def _room(memory: int, queries: int, task: Task) -> tuple[int, bool]:
    """What is left for comparisons when the process and what it knows of each image have taken theirs.

    Also whether the result can hold what a later run could go on with.
    """
    steps = sum(len(level.steps) for level in task.levels) if task.parts else 0
    moments = 24 * len(task.levels)
    each = ID_BYTES + moments + 8 * (2 * len(task.levels) + 8 + steps)  # of the query at work, with what it computes
    each += 3 * 8 * together(task.images)  # draws that are summed in one go
    each += 2 * queries * (16 + 4 * steps)  # of the result, for each query and then joined
    room = memory - PROCESS_BYTES - task.images * each
    if task.images * each > 3 * memory // 4:
        needed = -(-(PROCESS_BYTES + 4 * task.images * each // 3) // 10**8) / 10
        raise PatchtraceError(
            f"memory is {memory / 1e9:g} GB, but {task.images:,} images and {queries:,} queries need {needed} GB: "
            f"say memory='{needed}GB', or ask for fewer queries at once"
        )
    kept = 2 * moments * queries * task.images
    keep = kept <= memory // KEPT_PART and kept <= room // 2
    return max(room - kept * keep, LEAST_ROOM), keep


def _identity(
    task: Task,
    settings: dict[str, Any],
    facts: dict[str, Any],
    start: Attribution | None,
    rest: Rest | None,
    engine: Engine,
    room: int,
) -> str:
    """Of everything that the numbers of a query depend on."""
    given = [] if task.noise is None else [hashlib.sha256(eps.tobytes()).hexdigest() for eps in task.noise.values()]
    begun = None if start is None else [start.sampling, start.facts["queries"]["fingerprint"]]
    images = [facts[name]["fingerprint"] for name in ("train", "queries")]
    others = [rest.images.fingerprint(), rest.weight] if rest else []
    rules = asdict(task.rules) if task.recipe.draws == "auto" else None
    kind = [facts["versions"]["patchtrace"], getattr(engine, "instructions", ""), room < ROOM_FOR_ALL_BLOCKS and room]
    everything = [settings, rules, task.parts, images, others, given, begun, kind]
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


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
