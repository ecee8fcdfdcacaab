"""The effect of each setting of a recipe: one setting at a time is varied around a base recipe, and judged by LDS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import figures
from patchtrace.evaluate.axes import ALL_LEVELS, AXES, Setting, as_text
from patchtrace.evaluate.lds import LDS, Difference, compare
from patchtrace.evaluate.partial_scores import Term, terms_of
from patchtrace.evaluate.recipe_study import RecipeStudy
from patchtrace.files import write_csv
from patchtrace.progress import Counter, Progress
from patchtrace.recipe import Recipe

#: Recipes whose scores are held at once.
AT_ONCE = 8


@dataclass(frozen=True)
class AblationRow:
    """The result for one setting.

    Parameters
    ----------
    axis, series : str
        The setting that was varied, and at which levels.
    value : float or str
        Its value.
    lds, low, high : float
        Mean over queries, between -1 and 1, and its 95 % interval (bootstrap over subsets).
    gain, gain_low, gain_high : float
        LDS minus that of the base recipe, and its 95 % interval. It is paired, and much narrower: luck with the
        subsets is the same for both.
    seconds : float
        Engine time of all parts of this setting, whether they were computed now or in an earlier run.
    is_base : bool
        Whether this is the base recipe itself.
    """

    axis: str
    series: str
    value: float | str
    lds: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    seconds: float
    is_base: bool


class AblationPlan(NamedTuple):
    """What a run will do: its settings, the parts of their scores, how many of these are missing, and their bytes."""

    settings: list[Setting]
    parts: list[Term]
    missing: int
    bytes: int


class Ablation(RecipeStudy):
    """LDS of many recipes, each of which differs from a base recipe in one setting.

    Scores are sums of parts that are computed once (see :class:`patchtrace.evaluate.partial_scores.PartialScores`): the
    weights of the scales, the choice of levels, the exponent and fewer draws cost nothing.

    Draws are those of :class:`patchtrace.NDA`: a single one is one noise for the whole picture, as in the paper; of
    several each is a patchwork, or, where the picture has many patches, they come in pairs of a noise and its negative.
    So the axis ``draws`` compares what a user gets for each number of draws.

    See Also
    --------
    patchtrace.evaluate.recipe_study.RecipeStudy : the parameters.
    patchtrace.evaluate.tuning.Tuning : chooses a recipe.

    Examples
    --------
    >>> from patchtrace import Level, Scale
    >>> from patchtrace.evaluate.truth import GroundTruth
    >>> rng = np.random.default_rng(0)
    >>> images = rng.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    >>> subsets = rng.random((16, 20)) < 0.5
    >>> numbers = tuple(map(str, range(20)))
    >>> truth = GroundTruth(subsets, -1.0 * subsets[:, :3], numbers, numbers[:3], {})
    >>> ablation = Ablation(images, images[:3], truth, base=Recipe((Level(100, (Scale(3),)),)), resamples=50)
    >>> [(row.value, row.is_base, row.lds > 0.5) for row in ablation.run(["exponent"])][2:4]
    [(1.0, True, True), (1.5, False, True)]
    """

    def plan(self, axes: Sequence[str] | None = None) -> AblationPlan:
        """What a run will do. A named axis that has nothing to vary in the base recipe is an error."""
        settings = []
        for axis in AXES if axes is None else dict.fromkeys(axes):
            found = self.axes.of(axis)
            if not found and axes is not None:
                raise PatchtraceError(
                    f"{axis} has no meaning for the base recipe: use one whose levels have a full and a pooled scale"
                )
            settings += found
        parts = list(dict.fromkeys(part for item in settings for part, _ in terms_of(item.recipe, self.axes.size)))
        return AblationPlan(settings, parts, len(self.store.missing(parts)), len(parts) * self.store.bytes_of_a_part)

    def run(self, axes: Sequence[str] | None = None, *, progress: Progress | None = None) -> list[AblationRow]:
        """Judge all settings of these axes, or of all that the base recipe has.

        Parameters
        ----------
        axes : sequence of str, optional
            Some of ``patchtrace.evaluate.axes.AXES``.
        progress : callable, optional
            Called with (done, total), in pairs of patches or what takes as long.
        """
        plan = self.plan(axes)
        recipes = list(dict.fromkeys(setting.recipe for setting in plan.settings))
        count = Counter(progress, len(recipes) * self._work_of_judging)
        # all at once, so that parts of different settings go through the engine together
        self.store.make(plan.parts, count=count)
        found = self._judged(recipes, count)
        base = self._made_of(self.axes.base)
        rows = []
        for axis, series, value, recipe in plan.settings:
            seconds, is_base, (result, gain) = self.store.seconds(recipe), self._made_of(recipe) == base, found[recipe]
            judged = result.mean, *result.interval, gain.mean, *gain.interval
            rows.append(AblationRow(axis, series, value, *judged, seconds, is_base))
        return rows

    def _judged(self, recipes: list[Recipe], count: Counter) -> dict[Recipe, tuple[LDS, Difference]]:
        """LDS and gain of each recipe, a few at a time."""
        found = {}
        base = self.store.scores(self.axes.base)
        for start in range(0, len(recipes), AT_ONCE):
            some = recipes[start : start + AT_ONCE]
            scores = {str(number): self.store.scores(recipe) for number, recipe in enumerate(some)}
            judged = compare({"base": base, **scores}, self.truth.subsets, self.truth.losses, resamples=self.resamples)
            for name, recipe in zip(scores, some, strict=True):
                found[recipe] = judged.results[name], judged.difference(name, "base")
            count.add(len(some) * self._work_of_judging)
        return found

    @property
    def _work_of_judging(self) -> int:
        """For one recipe: two subsets in a resample take about as long as a pair of patches."""
        subsets, queries = self.truth.losses.shape
        return int(queries * self.resamples * subsets**2 // 2)

    def _made_of(self, recipe: Recipe) -> tuple[float, dict[Term, float]]:
        """Equal for recipes that give the same scores, however they are written."""
        parts = terms_of(recipe, self.axes.size)
        return recipe.exponent, {part: round(weight, 9) for part, weight in parts}


# -- files ----------------------------------------------------------------------------------------------

OF_WHAT = "95 % of the difference to the base recipe"
#: Axes of names, which have no lines.
NAMED = ("border", "pooling", "flips")


def write_rows(rows: Sequence[AblationRow], path: Path) -> Path:
    """All rows as CSV."""
    return write_csv(path, [field.name for field in fields(AblationRow)], map(astuple, rows))


def draw(rows: Sequence[AblationRow], directory: Path) -> list[Path]:
    """One figure for each axis among the rows: a heat map, lines with bands, or bars. LDS in %.

    Bands and intervals are those of the difference to the base recipe, and have no width at the base recipe itself.
    """
    axes = dict.fromkeys(row.axis for row in rows)
    return [_draw(axis, [row for row in rows if row.axis == axis], directory / f"{axis}.png") for axis in axes]


def _draw(axis: str, rows: list[AblationRow], path: Path) -> Path:
    title, label = AXES[axis], "LDS (%)"
    series = {name: [row for row in rows if row.series == name] for name in dict.fromkeys(row.series for row in rows)}
    if axis.endswith("patch-timestep"):
        grid = [[100 * row.lds for row in points] for points in series.values()]
        timesteps = [name.removeprefix("t = ") for name in series]
        patches = list(dict.fromkeys(as_text(row.value) for row in rows))
        labels = {"xlabel": "patch size P", "ylabel": "timestep t", "label": label}
        return figures.heatmap(path, grid, timesteps, patches, title=title, **labels)
    if axis in NAMED:
        bars = {f"{row.value}{' (base)' * row.is_base}": (100 * row.lds, *_band([row])[:, 0]) for row in rows}
        return figures.bars(path, bars, title=title, label=f"{label}; interval: {OF_WHAT}")
    lines: dict[str, figures.Line] = {}
    for name, points in series.items():
        # bands for each level too would cover each other
        low, high = _band(points) if name == ALL_LEVELS else (None, None)
        lines[name] = [row.value for row in points], [100 * row.lds for row in points], low, high
    return figures.lines(path, lines, title=title, xlabel=f"{axis.replace('-', ' ')}; band: {OF_WHAT}", ylabel=label)


def _band(rows: list[AblationRow]) -> NDArray[np.float64]:
    """Around each LDS in % the interval of its difference to the base recipe: (2, rows)."""
    ends = [(row.gain_low - row.gain, row.gain_high - row.gain) for row in rows]
    return np.asarray(100 * (np.array([row.lds for row in rows]) + np.array(ends).T))
