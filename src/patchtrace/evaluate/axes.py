"""Recipes around a base recipe: one thing at a time is varied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, get_args

from patchtrace.checks import choice
from patchtrace.engines import Comparison
from patchtrace.errors import PatchtraceError
from patchtrace.recipe import Border, Level, Pooling, Recipe, Scale
from patchtrace.views import FLIPS

#: Default values to try. Those that the pictures or the schedule do not allow are left out; the base recipe's own value
#: is always among them.
VALUES: Mapping[str, tuple[float, ...]] = {
    "timestep": (20, 50, 100, 200, 300, 400, 500, 700),
    "patch": (3, 5, 7, 9, 11, 13, 15, 17, 21, 31, 47, 63),
    "pooled-patch": (4, 6, 8, 10, 12, 14, 16, 20, 30, 46, 62),
    "gamma": (0, 0.25, 0.5, 0.75, 1),
    "k": (1, 3, 10, 30, 100, 300, 1000),
    "draws": (1, 2, 4, 8, 16),
    "exponent": (0.5, 0.75, 1, 1.5, 2, 3),
}
#: What can be varied, with the titles of tables and figures.
AXES = {
    "patch-timestep": "Patch size and timestep, one level, full scale",
    "pooled-patch-timestep": "Patch size and timestep, one level, pooled scale",
    "gamma": "Weight of the full scale (gamma)",
    "k": "Patches of an image that count (k)",
    "largest-t": "Largest timestep of the levels",
    "border": "Border rule",
    "pooling": "Pooling",
    "draws": "Draws of the noise",
    "flips": "Mirrored training images",
    "exponent": "Exponent of the scores",
}
#: The series of a recipe with all its levels.
ALL_LEVELS = "all levels"


class Setting(NamedTuple):
    """One recipe of an axis: the line (or row of a heat map) it belongs to, and its position on it."""

    axis: str
    series: str
    value: float | str
    recipe: Recipe


class Axes:
    """The settings around a base recipe, for pictures of a size.

    Parameters
    ----------
    base : Recipe
        The recipe that is varied, one setting at a time.
    size : (int, int)
        Height and width.
    values : mapping of str to numbers, optional
        Replace those in ``VALUES``.

    Examples
    --------
    >>> base = Recipe((Level(100, (Scale(5),)), Level(300, (Scale(7),))))
    >>> [(s.series, s.value) for s in Axes(base, (16, 16), {"exponent": [2]}).of("exponent")]
    [('all levels', 1.0), ('all levels', 2)]
    >>> [s.value for s in Axes(base, (16, 16), {"timestep": [200, 500]}).of("largest-t")]
    [100, 300, 500]
    """

    def __init__(
        self, base: Recipe, size: tuple[int, int], values: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        self.base, self.size, self.chosen = base, size, values or {}
        base.check(*size)
        for name, given in self.chosen.items():
            if name not in VALUES or not given:
                raise PatchtraceError(f"values are given for {name!r}: give some for {', '.join(VALUES)}")
            for value in given:
                if name == "gamma" and not 0 <= value <= 1:
                    raise PatchtraceError(f"gamma is {value:g}: use numbers from 0 to 1")
                if name not in ("gamma", "exponent") and (value < 1 or value % 1):
                    raise PatchtraceError(f"{name} is {value:g}: use whole numbers of at least 1")

    def of(self, axis: str) -> list[Setting]:
        """All settings of an axis; an empty list where the base recipe has nothing to vary."""
        choice("axis", axis, AXES)
        return [Setting(axis, *varied) for varied in self._varied(axis)]

    @property
    def scales(self) -> list[tuple[Level, Scale]]:
        """All scales of the base recipe, each with its level."""
        return [(level, scale) for level in self.base.levels for scale in level.scales]

    # -- values -----------------------------------------------------------------------------------------

    def values(self, name: str, own: Iterable[float] = ()) -> list[float]:
        """Those to try, and the base recipe's own."""
        return sorted({*own, *self.chosen.get(name, VALUES[name])})

    def timesteps(self) -> list[int]:
        """Those that the schedule has."""
        found = []
        for t in map(int, self.values("timestep")):
            with suppress(PatchtraceError):
                self.base.noise_at(t)
                found.append(t)
        return found

    def patches(self, pool: int = 1) -> list[int]:
        """Patch sizes that fit the pictures: at full scale, or of patches that are pooled."""
        name = "patch" if pool == 1 else "pooled-patch"
        return [int(patch) for patch in self.values(name) if pool <= patch <= min(self.size)]

    def ks(self) -> list[int]:
        """Up to the number of patches; more than all of them is the same as all."""
        most = max(Comparison.of(scale, self.base).patches(*self.size) for _, scale in self.scales)
        return sorted({min(int(k), most) for k in self.values("k", [self.base.k])})

    # -- axes -------------------------------------------------------------------------------------------

    def _varied(self, axis: str) -> Iterator[tuple[str, float | str, Recipe]]:
        """Series, value and recipe of each setting."""
        base = self.base
        if axis.endswith("patch-timestep"):  # one level and one scale: every timestep with every patch size
            pooled = axis == "pooled-patch-timestep"
            pool = max((scale.pool for _, scale in self.scales if scale.pool > 1), default=2) if pooled else 1
            for t, patch in product(self.timesteps(), self.patches(pool)):
                yield f"t = {t}", patch, replace(base, levels=(Level(t, (Scale(patch, pool),)),))
        elif axis == "largest-t":  # beyond the levels of the base recipe with the patches of its last
            levels = sorted(base.levels, key=lambda level: level.t)
            levels += [replace(levels[-1], t=t) for t in self.timesteps() if t > levels[-1].t]
            for count, level in enumerate(levels, start=1):
                yield ALL_LEVELS, level.t, replace(base, levels=tuple(levels[:count]))
        elif axis == "flips":
            others = tuple(view for view in base.views if view != FLIPS)
            yield ALL_LEVELS, "without", replace(base, views=others)
            yield ALL_LEVELS, "with", replace(base, views=(FLIPS, *others))
        else:
            for value in self._values_of(axis):
                changed = with_gamma(base, value) if axis == "gamma" else replace(base, **{axis: value})
                yield ALL_LEVELS, value, changed
                if axis in ("gamma", "k") and len(changed.levels) > 1:  # each level alone costs nothing more
                    for level in changed.levels:
                        yield f"t = {level.t}", value, replace(changed, levels=(level,))

    def _values_of(self, axis: str) -> Iterable[Any]:
        """The values of a setting; none where the base recipe has nothing to vary."""
        base = self.base
        match axis:
            case "gamma" if all(map(has_full_and_low, base.levels)):
                weighted = [pair for level in base.levels for pair in level.weighted_scales()]
                own = {round(weight, 9) for scale, weight in weighted if scale.pool == 1}
                return self.values("gamma", own if len(own) == 1 else ())
            case "k":
                return self.ks()
            case "border":
                return get_args(Border)
            case "pooling" if any(scale.pool > 1 for _, scale in self.scales):
                return get_args(Pooling)
            case "draws":
                return map(int, self.values("draws", () if base.draws == "auto" else [base.draws]))
            case "exponent":
                return self.values("exponent", [base.exponent])
        return ()


def as_text(value: float | str) -> str:
    """A value for people.

    >>> as_text(1.0), as_text(0.75), as_text("match")
    ('1', '0.75', 'match')
    """
    return value if isinstance(value, str) else f"{value:g}"


def has_full_and_low(level: Level) -> bool:
    """Whether a level has one full and one pooled scale, and no more."""
    pools = sorted(scale.pool for scale in level.scales)
    return len(pools) == 2 and pools[0] == 1 < pools[1]


def with_gamma(recipe: Recipe, gamma: float) -> Recipe:
    """Each level, of a full and a pooled scale, as ``gamma * full + (1 - gamma) * low``; weight 0 is left out."""
    levels = []
    for level in recipe.levels:
        both = sorted(level.scales, key=lambda scale: scale.pool)
        weighted = zip(both, (gamma, 1 - gamma), strict=True)
        scales = tuple(replace(scale, weight=float(weight)) for scale, weight in weighted if weight > 0)
        levels.append(replace(level, scales=scales))
    return replace(recipe, levels=tuple(levels))
