"""A likelihood ratio: how many times as often pictures with sources in a collection have a statistic as others do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from patchtrace.errors import PatchtraceError
from patchtrace.short import short_repr

Values = NDArray[np.float64]

#: Each part of the sample is held out once. Fewer pictures of a kind than this say nothing.
FOLDS, LEAST = 5, 19
#: Weight of the squared slope, in spreads of the statistic: without it the slope of kinds that do not overlap has no
#: end.
RIDGE = 1e-3
#: Steps of Newton's method, of which a few are enough, and a change after which it ends.
STEPS, CLOSE = 100, 1e-10


@dataclass(frozen=True)
class Likelihood:
    """How a statistic becomes a likelihood ratio: by logistic regression on pictures of which the truth is known.

    Parameters
    ----------
    intercept, slope : float
        Of the natural logarithm of the ratio, as a function of the statistic.
    cllr : float
        What the ratios of held-out pictures cost: 0 if they were perfect, 1 if they said nothing.
    sources, others : int
        Numbers of pictures that have sources in the collection, and that have none. No ratio is larger than
        ``others + 1`` or smaller than ``1 / (sources + 1)``: so many pictures cannot show more.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> known = Likelihood.fitted(rng.normal(4, 1, 50), rng.normal(2, 1, 50))
    >>> known.earned, [float(f"{known.ratio(value):.2g}") for value in (-50, 3, 50)]
    (True, [0.02, 0.74, 51.0])
    """

    intercept: float
    slope: float
    cllr: float
    sources: int
    others: int

    __repr__ = short_repr

    def __post_init__(self) -> None:
        numbers = self.intercept, self.slope, self.cllr
        if not all(isinstance(one, float) and np.isfinite(one) for one in numbers) or self.cllr < 0:
            raise PatchtraceError(f"{numbers} are no intercept, slope and cost of a likelihood ratio")
        if not all(type(one) is int and one >= LEAST for one in (self.sources, self.others)):
            raise PatchtraceError(f"a likelihood ratio needs {LEAST} pictures of each kind at least")

    @classmethod
    def fitted(cls, sources: Values, others: Values) -> Likelihood:
        """From the statistics of pictures that have sources, and of others.

        Pictures with the same number are held out together: they may be related.
        """
        if min(len(sources), len(others)) < LEAST:
            raise PatchtraceError(
                f"a likelihood ratio needs {LEAST} pictures of each kind at least, not {len(sources)} and {len(others)}"
            )
        parts = [np.arange(len(values)) % FOLDS for values in (sources, others)]
        held: tuple[list[Values], list[Values]] = [], []
        for fold in range(FOLDS):
            known = [values[part != fold] for values, part in zip((sources, others), parts, strict=True)]
            line = _line(*known)
            for found, values, part in zip(held, (sources, others), parts, strict=True):
                found.append(_ratios(values[part == fold], *line, *map(len, known)))
        cost = cllr(*map(np.concatenate, held))
        return cls(*_line(sources, others), cost, len(sources), len(others))

    @property
    def earned(self) -> bool:
        """Whether its ratios say more than none."""
        return self.cllr < 1

    def ratio(self, value: float) -> float:
        """The ratio for a statistic."""
        return float(_ratios(np.float64(value), self.intercept, self.slope, self.sources, self.others))

    def sentence(self, value: float) -> str:
        """The ratio for a statistic, with what it rests on and what it does not say."""
        ratio = self.ratio(value)
        most = " (no more can be shown)" if ratio >= self.others or 1 / ratio >= self.sources else ""
        times, how = (ratio, "more") if ratio >= 1 else (1 / ratio, "less")
        return (
            f"likelihood ratio {in_figures(ratio)}{most}: such a value is {in_figures(times)} times {how} frequent "
            f"among {self.sources} pictures that were painted from the collection, or have a square of it, than "
            f"among the {self.others} others (Cllr {self.cllr:.2f} on held-out ones); it holds for such pictures "
            "only, and is not the odds of copying"
        )

    def record(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Likelihood | None:
        """What :meth:`record` wrote; None stays None."""
        return None if record is None else cls(**record)


def in_figures(ratio: float) -> str:
    """A ratio with as many figures as it has a meaning in: two, or those before the point.

    >>> in_figures(100.2), in_figures(6.23), in_figures(0.0321)
    ('100', '6.2', '0.032')
    """
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def cllr(sources: Values, others: Values) -> float:
    """The cost of likelihood ratios (Bruemmer and du Preez): of pictures that have sources, and of others.

    >>> cllr(np.ones(3), np.ones(5))
    1.0
    """
    return float(np.mean(np.log2(1 + 1 / sources)) + np.mean(np.log2(1 + others))) / 2


def _ratios(values: Any, intercept: float, slope: float, sources: int, others: int) -> Any:
    """Ratios, no larger and no smaller than so many pictures can show."""
    return np.exp(np.clip(intercept + slope * values, -np.log(sources + 1), np.log(others + 1)))


def _line(sources: Values, others: Values) -> tuple[float, float]:
    """Logistic regression of "has sources" on a statistic, as if both were equally many: intercept and slope."""
    values = np.concatenate([sources, others]).astype(np.float64)
    middle, spread = values.mean(), max(values.std(), 1e-12)
    columns = np.stack([np.ones(len(values)), (values - middle) / spread], axis=1)
    truth = np.repeat([1.0, 0.0], [len(sources), len(others)])
    weights = np.repeat([0.5 / len(sources), 0.5 / len(others)], [len(sources), len(others)])
    ridge, found = np.diag([0.0, RIDGE]), np.zeros(2)
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-columns @ found))
        slopes = columns.T @ (weights * (chance - truth)) + ridge @ found
        curvature = columns.T @ (columns * (weights * chance * (1 - chance))[:, None]) + ridge
        step = np.linalg.solve(curvature + 1e-12 * np.eye(2), slopes)
        # a whole step can overshoot where the curve is flat
        found = found - step / max(1.0, np.abs(step).max())
        if np.abs(step).max() < CLOSE:
            break
    return float(found[0] - found[1] * middle / spread), float(found[1] / spread)
