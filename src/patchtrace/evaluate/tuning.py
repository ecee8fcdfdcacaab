"""Search for a recipe, on some of the queries, and judge it on the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.checks import choice
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.axes import ALL_LEVELS, Axes, as_text
from patchtrace.evaluate.lds import LDS, Difference, compare, unit_ranks
from patchtrace.evaluate.partial_scores import terms_of
from patchtrace.evaluate.recipe_study import RecipeStudy
from patchtrace.evaluate.truth import split
from patchtrace.files import write_csv, write_text
from patchtrace.progress import Counter, Progress, Watch
from patchtrace.recipe import Recipe

#: The search order: first what changes all parts, last what costs nothing. The number of draws can be searched too, but
#: more of them seldom harm and always cost: better set it to what is affordable.
COORDINATES = ("flips", "border", "pooling", "patch", "levels", "gamma", "k", "exponent")
ALL_COORDINATES = (*COORDINATES, "draws")


@dataclass(frozen=True)
class TuningStep:
    """A change that was taken, how many it was chosen from, and the LDS on the tuning queries after it."""

    change: str
    tried: int
    lds: float


@dataclass(frozen=True)
class Judged:
    """Base recipe and chosen recipe on the same queries: LDS of each, and the gain with its paired interval."""

    queries: NDArray[np.intp]
    base: LDS
    chosen: LDS
    gain: Difference


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Parameters
    ----------
    recipe, base : Recipe
        The recipe chosen, and the one the search started from.
    steps : tuple of TuningStep
        The changes from one to the other.
    tuning : Judged
        On the tuning queries. It flatters: do not report it.
    held_out : Judged
        On the other queries, which had no part in the choice.
    """

    recipe: Recipe
    base: Recipe
    steps: tuple[TuningStep, ...]
    tuning: Judged
    held_out: Judged

    def summary(self) -> list[str]:
        """The changes and their gain, in sentences."""
        few, held = self.tuning, self.held_out
        low, high = held.gain.interval
        changes = "; ".join(step.change for step in self.steps) or "nothing that was tried was better"
        return [
            f"Chosen on {len(few.queries)} tuning queries: {changes}.",
            f"LDS on the tuning queries: {few.chosen}, base recipe {few.base}. "
            "They chose the recipe, so this flatters it.",
            f"LDS on the other {len(held.queries)} queries, which had no say: {held.chosen}, base recipe {held.base}.",
            f"Gain there: {100 * held.gain.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}) percentage points.",
        ]

    def rows(self) -> list[dict[str, Any]]:
        """LDS of both recipes, and the gain, on the queries that chose and on the others."""
        names = ("recipe", "queries", "count", "lds", "low", "high")
        return [
            dict(zip(names, (name, queries, len(judged.queries), found.mean, *found.interval), strict=True))
            for queries, judged in (("tuning", self.tuning), ("held out", self.held_out))
            for name, found in (("base", judged.base), ("chosen", judged.chosen), ("gain", judged.gain))
        ]

    def save(self, path: str | Path) -> list[Path]:
        """Write the recipe as TOML, under comments that say how it was chosen, and beside it tables and a figure.

        The tables are ``.csv`` (LDS on both parts of the queries) and ``-steps.csv``; the figure is ``.png``.
        """
        path = Path(path)
        table, figure = path.with_suffix(".csv"), path.with_suffix(".png")
        steps = path.with_name(f"{path.stem}-steps.csv")
        rows = self.rows()
        write_csv(table, list(rows[0]), [list(row.values()) for row in rows])
        write_csv(steps, ["change", "tried", "lds"], [[step.change, step.tried, step.lds] for step in self.steps])
        halves = {"tuning queries": self.tuning, "held out queries": self.held_out}
        base = {queries: judged.base.percent for queries, judged in halves.items()}
        chosen = {queries: judged.chosen.percent for queries, judged in halves.items()}
        label = "LDS (%); tuning queries chose, so they flatter"
        figures.bars(figure, {"base": base, "chosen": chosen}, title="Recipe found by tuning", label=label)
        comments = "".join(f"# {line}\n" for line in ("A recipe found by patchtrace tune.", *self.summary()))
        write_text(path, f"{comments}\n{self.recipe.to_toml()}")
        return [path, table, steps, figure]


class Tuning(RecipeStudy):
    """Greedy search for a recipe with a larger LDS.

    One coordinate after the other (flips, patch sizes, levels, ...) is changed where that is better for the **tuning
    queries**, a random part of all; then all of them once more, until nothing changes. The recipe is then judged on the
    other queries. These were measured on the same models, so the result holds for other queries, not for other
    trainings.

    See Also
    --------
    patchtrace.evaluate.recipe_study.RecipeStudy : the parameters.
    patchtrace.evaluate.ablation.Ablation : what each setting is worth.

    Examples
    --------
    >>> from patchtrace import ImageSet, Level, Scale
    >>> from patchtrace.evaluate.truth import GroundTruth
    >>> from patchtrace.evaluate.partial_scores import PartialScores
    >>> rng = np.random.default_rng(0)
    >>> coarse = rng.integers(0, 256, (20, 4, 4, 3), dtype=np.uint8)
    >>> images = ImageSet.open(coarse.repeat(2, axis=1).repeat(2, axis=2))
    >>> better, base = (Recipe((Level(t, (Scale(3),)),)) for t in (300, 20))
    >>> subsets = rng.random((32, 20)) < 0.5
    >>> losses = -(subsets @ PartialScores(images, images.subset(range(8))).scores(better).T)
    >>> truth = GroundTruth(subsets, losses, images.ids, images.ids[:8], {})
    >>> found = Tuning(images, images.subset(range(8)), truth, base=base, resamples=50).run(["levels"])
    >>> [level.t for level in found.recipe.levels], round(found.held_out.chosen.mean, 2)
    ([300], 1.0)
    """

    def run(
        self,
        coordinates: Sequence[str] = COORDINATES,
        *,
        fraction: float = 0.5,
        rounds: int = 2,
        errors: float = 1.0,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Tuned:
        """Search, and judge what was found.

        Parameters
        ----------
        coordinates : sequence of str
            What may change, in this order: some of ``ALL_COORDINATES``.
        fraction : float, default 0.5
            Fraction of the queries that are tuning queries.
        rounds : int, default 2
            Limit of passes through all coordinates.
        errors : float, default 1.0
            A change must gain this many standard errors of its gain (over tuning queries), else it counts as chance.
            The more changes are tried, the more of them are luck all the same.
        seed : int, default 0
            Seed of the choice of tuning queries.
        progress : callable, optional
            Called with (done, total), in pairs of patches, where the total is what is planned so far. A Watch also
            gets remarks on what is being tried.
        """
        for name in coordinates:
            choice("coordinate", name, ALL_COORDINATES)
        queries = len(self.store.queries)
        tuning, held_out = split(queries, fraction, seed)
        if not len(tuning) or not len(held_out):
            raise PatchtraceError(
                f"{fraction:g} of {queries} queries leaves none on one side: queries that choose and others that "
                "report are both needed"
            )
        search = _Search(self, tuning, errors, Watch.of(progress))
        best, steps = self.axes.base, list[TuningStep]()
        for number in range(1, rounds + 1):
            before = best
            for name in coordinates:
                for step, changed in search.climb(name, best, number):
                    steps.append(step)
                    best = changed
            if best == before:
                break
        best = replace(best, note=f"found by tuning on {len(tuning)} queries, from: {self.axes.base.summary()}")
        judged = [self._judge(half, best, search.count) for half in (tuning, held_out)]
        return Tuned(best, self.axes.base, tuple(steps), *judged)

    def _judge(self, queries: NDArray[np.intp], chosen: Recipe, count: Counter) -> Judged:
        recipes = {"chosen": chosen, "base": self.axes.base}
        scores = {name: self.store.scores(recipe, queries, count) for name, recipe in recipes.items()}
        truth = self.truth.select(queries)
        found = compare(scores, truth.subsets, truth.losses, resamples=self.resamples)
        return Judged(queries, found.results["base"], found.results["chosen"], found.difference("chosen", "base"))


class _Search:
    """LDS of each tuning query, of each recipe once."""

    def __init__(self, study: RecipeStudy, queries: NDArray[np.intp], errors: float, watch: Watch) -> None:
        truth = study.truth.select(queries)
        self.study, self.queries, self.errors, self.watch = study, queries, errors, watch
        self.count = Counter(watch, 0)
        self._known: dict[Recipe, NDArray[np.float64]] = {}
        self._subsets, self._losses = truth.subsets.astype(np.float64), unit_ranks(truth.losses)

    def lds(self, recipe: Recipe) -> NDArray[np.float64]:
        """LDS of each query, without the intervals, which take most of the time of patchtrace.evaluate.lds."""
        if recipe not in self._known:
            scores = self.study.store.scores(recipe, self.queries, self.count)
            self._known[recipe] = (unit_ranks(-self._subsets @ scores.T) * self._losses).sum(axis=0)
        return self._known[recipe]

    def climb(self, name: str, recipe: Recipe, number: int) -> Iterator[tuple[TuningStep, Recipe]]:
        """Change one coordinate as long as that is better."""
        while True:
            before = self.lds(recipe)
            self.watch.remark(f"round {number}, {name}: {100 * before.mean():.1f} %")
            changes = neighbours(name, Axes(recipe, self.study.axes.size, self.study.values))
            parts = [part for changed in changes.values() for part, _ in terms_of(changed, self.study.axes.size)]
            self.study.store.make(parts, self.queries, self.count)
            found = {change: self.lds(changed) for change, changed in changes.items()}
            better = [change for change, after in found.items() if self._gains(after - before)]
            if not better:
                return
            change = max(better, key=lambda change: float(found[change].mean()))
            recipe = changes[change]
            yield TuningStep(change, len(found), float(found[change].mean())), recipe

    def _gains(self, gains: NDArray[np.float64]) -> bool:
        error = gains.std(ddof=1) / np.sqrt(len(gains)) if len(gains) > 1 else 0.0
        return bool(gains.mean() > max(1e-6, self.errors * error))


def neighbours(name: str, around: Axes) -> dict[str, Recipe]:
    """All recipes that differ in one coordinate, by what changes."""
    if name == "patch":
        return dict(_patches(around))
    if name == "levels":
        return dict(_levels(around))
    settings = [setting for setting in around.of(name) if setting.series == ALL_LEVELS]
    return {f"{name} {as_text(one.value)}": one.recipe for one in settings if one.recipe != around.base}


def _patches(around: Axes) -> Iterator[tuple[str, Recipe]]:
    """Another patch size in one scale of one level."""
    base = around.base
    for level, scale in around.scales:
        kind = "patch" if scale.pool == 1 else "pooled patch"
        for size in around.patches(scale.pool):
            if size != scale.patch:
                scales = tuple(replace(one, patch=size) if one is scale else one for one in level.scales)
                levels = tuple(replace(one, scales=scales) if one is level else one for one in base.levels)
                yield f"{kind} {size} at t = {level.t}", replace(base, levels=levels)


def _levels(around: Axes) -> Iterator[tuple[str, Recipe]]:
    """One level fewer, or one more, with the scales of the nearest."""
    levels = around.base.levels
    for level in levels:
        rest = tuple(other for other in levels if other != level)
        if rest:
            yield f"without t = {level.t}", replace(around.base, levels=rest)
    for t in around.timesteps():
        if t not in {level.t for level in levels}:
            nearest = min(levels, key=lambda level: abs(level.t - t))
            more = (*levels, replace(nearest, t=t))
            yield f"with t = {t}", replace(around.base, levels=tuple(sorted(more, key=lambda level: level.t)))
