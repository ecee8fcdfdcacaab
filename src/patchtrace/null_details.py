"""What a result holds beyond shares where a null is known: how unusual each query is, and each image for it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from patchtrace.checks import choice
from patchtrace.errors import PatchtraceError
from patchtrace.likelihood import Likelihood
from patchtrace.short import short_repr

Kind = Literal["controls", "members"]
#: Arrays that are saved with a result, under these names, with the fields that they are.
NULL_ARRAYS = {"z": "z", "null_tops": "tops"}
PLAIN = ("statistic", "kind", "rate", "values", "as_large", "remark", "groups")
#: What the pictures of a null are called in sentences.
CALLED = {"controls": "control pictures", "members": "pictures of the collection, each without itself,"}


def p_value(as_large: int, controls: int) -> float:
    """The conformal p-value: the rank of a query among controls. Never below 1 over their number plus one.

    If a query has nothing to do with the collection, and is of the same kind as the controls, then for every ``a`` its
    p-value is ``a`` or less with a probability of at most ``a``.

    >>> p_value(as_large=3, controls=99)
    0.04
    """
    return (1 + as_large) / (controls + 1)


def stand_out(p_values: Sequence[float] | NDArray[np.float64], rate: float) -> NDArray[np.bool_]:
    """Which of many queries stand out, by Benjamini and Hochberg: in the mean, at most ``rate`` of them by chance.

    >>> stand_out([0.01, 0.02, 0.03, 0.5, 0.9], rate=0.05).tolist()
    [True, True, True, False, False]
    """
    values = np.asarray(p_values, dtype=np.float64)
    ordered = np.sort(values)
    # a p-value such as 0.03 and its limit 3 * 0.01 may differ in the last digit
    passed = np.flatnonzero(ordered <= rate * np.arange(1, len(values) + 1) / max(1, len(values)) * (1 + 1e-9))
    return np.asarray(values <= ordered[passed[-1]]) if len(passed) else np.zeros(len(values), dtype=np.bool_)


@dataclass(frozen=True, eq=False)
class NullDetails:
    """How unusual queries are, as ``result.null``: rare among control pictures, not a probability of copying.

    Parameters
    ----------
    statistic : str
        What was compared with the controls, in words.
    kind : {"controls", "members"}
        What the controls are: pictures known not to stem from the collection, or its own pictures, each compared with
        the others.
    rate : float
        From which p-value a query, or an image for it, stands out.
    values : list of float
        For each query its statistic.
    as_large : list of int
        For each query the number of controls whose statistic is as large.
    z : float32 (queries, train)
        How far the agreement of an image with the query is above what is usual for that image, in spreads.
    tops : float32 (queries, controls)
        The largest z of each control, beside the query.
    remark : str, default ""
        What has to be known of the null, such as that the collection has changed since.
    groups : mapping of str to list of float, default {}
        For each group of images a p-value for each query: how often the largest z of a control within the group is as
        large as that of the query.
    likelihood : Likelihood, optional
        How the statistic becomes a likelihood ratio.

    Examples
    --------
    >>> z, tops = np.float32([[0.1, 4.0]]), np.float32([[1, 2, 3, 5]])
    >>> details = NullDetails("largest z", "controls", 0.01, [4.0], [1], z, tops)
    >>> details.p(0), details.p_of_image(0, 1)
    (0.4, 0.4)
    >>> details.sentence(0)
    '1 of 4 control pictures had a largest z as large (p 0.4; 4 controls cannot show less than 0.2): nothing \
stands out at 1 %'
    """

    statistic: str
    kind: Kind
    rate: float
    values: list[float]
    as_large: list[int]
    z: NDArray[np.float32]
    tops: NDArray[np.float32]
    remark: str = ""
    groups: Mapping[str, list[float]] = field(default_factory=dict)
    likelihood: Likelihood | None = None

    __repr__ = short_repr

    @property
    def controls(self) -> int:
        """Number of controls."""
        return int(self.tops.shape[1])

    def check(self, shape: tuple[int, int]) -> None:
        """Raise a PatchtraceError if this is not about so many (queries, train), or holds what no null comes to."""
        choice("kind", self.kind, CALLED)
        if not isinstance(self.rate, float) or not 0 < self.rate < 1:
            raise PatchtraceError(f"rate is {self.rate!r}: use a number between 0 and 1")
        if self.z.shape != shape or self.tops.ndim != 2 or len(self.tops) != shape[0] or not self.controls:
            raise PatchtraceError(f"z {self.z.shape} and tops {self.tops.shape} do not match {shape} values")
        if not np.isfinite(self.z).all() or not np.isfinite(self.tops).all():
            raise PatchtraceError("z or tops are not finite")
        values = self.values
        if len(values) != shape[0] or not all(isinstance(value, float) and math.isfinite(value) for value in values):
            raise PatchtraceError(f"{values!r} are not statistics of {shape[0]} queries")
        counts = self.as_large
        if len(counts) != shape[0] or not all(type(n) is int and 0 <= n <= self.controls for n in counts):
            raise PatchtraceError(f"{counts!r} are not numbers out of {self.controls} controls for {shape[0]} queries")
        for name, each in self.groups.items():
            if len(each) != shape[0] or not all(isinstance(value, float) and 0 < value <= 1 for value in each):
                raise PatchtraceError(f"{each!r} are not p-values of the group {name!r}")
        if not isinstance(self.statistic, str) or not isinstance(self.remark, str):
            raise PatchtraceError("the name of the statistic and the remark are not text")

    def p(self, query: int) -> float:
        """The p-value of a query."""
        return p_value(self.as_large[query], self.controls)

    def best(self, query: int) -> int:
        """The image with the largest z, which need not be the first by its share."""
        return int(self.z[query].argmax())

    def p_values(self) -> list[float]:
        """Those of all queries."""
        return [self.p(query) for query in range(len(self.values))]

    def p_of_image(self, query: int, index: int) -> float:
        """How often the largest z of a control is as large as that of this image: its p-value among many images."""
        return p_value(int((self.tops[query] >= self.z[query, index]).sum()), self.controls)

    def stands_out(self, query: int, index: int) -> bool:
        """Whether an image stands out for a query."""
        return self.p_of_image(query, index) <= self.rate

    def undecided(self, query: int) -> bool:
        """Whether a query is beyond all controls, but these are too few to say that it stands out."""
        return not self.as_large[query] and p_value(0, self.controls) > self.rate

    def sentence(self, query: int) -> str:
        """What is known of a query, in one sentence."""
        count, p, least = self.as_large[query], self.p(query), p_value(0, self.controls)
        reach = f"; {self.controls} controls cannot show less than {least:.2g}" if least > self.rate else ""
        does = "it stands out" if p <= self.rate else "nothing stands out"
        if self.undecided(query):
            does = "too few to tell whether it stands out"
        return (
            f"{count or 'none'} of {self.controls} {CALLED[self.kind]} had a {self.statistic} as large "
            f"(p {p:.2g}{reach}): {does} at {100 * self.rate:g} %"
        )

    def ratio_sentence(self, query: int) -> str:
        """The likelihood ratio of a query in one sentence; empty where there is none."""
        return self.likelihood.sentence(self.values[query]) if self.likelihood else ""

    def sentences_of_all(self) -> list[str]:
        """How many of the queries stand out, where there are several."""
        many = len(self.values)
        if many < 2:
            return []
        found = int(stand_out(self.p_values(), self.rate).sum())
        return [
            f"{found} of {many} queries stand out at a false discovery rate of {100 * self.rate:g} % "
            "(Benjamini and Hochberg)"
            + (f"; {self.controls} controls are too few to tell" if not found and 0 in self.as_large else "")
        ]

    def about(self, query: int) -> dict[str, Any]:
        """One query as plain data, for tables and pages."""
        return {
            "p": self.p(query),
            "statistic": self.statistic,
            "value": self.values[query],
            "best": self.best(query),
            "as_large": self.as_large[query],
            "controls": self.controls,
            "kind": self.kind,
            "rate": self.rate,
            "stands_out": self.p(query) <= self.rate,
            "undecided": self.undecided(query),
            "sentence": self.sentence(query),
            "remark": self.remark,
            "likelihood_ratio": self.likelihood and self.likelihood.ratio(self.values[query]),
            "likelihood_sentence": self.ratio_sentence(query),
            "usual_z": float(np.median(self.tops[query])),
        }

    @classmethod
    def joined(cls, parts: Sequence[NullDetails]) -> NullDetails:
        """The details of single queries as those of all."""
        return replace(
            parts[0],
            values=[value for one in parts for value in one.values],
            as_large=[count for one in parts for count in one.as_large],
            groups={name: [p for one in parts for p in one.groups[name]] for name in parts[0].groups},
            z=np.concatenate([one.z for one in parts]),
            tops=np.concatenate([one.tops for one in parts]),
        )

    # -- files ------------------------------------------------------------------------------------------

    def record(self) -> dict[str, Any]:
        """Everything as plain data, except the arrays."""
        more = {"controls": self.controls, "likelihood": self.likelihood and self.likelihood.record()}
        return {name: getattr(self, name) for name in PLAIN} | more

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> NullDetails:
        """What :meth:`record` wrote, with its arrays."""
        fields: dict[str, Any] = {field: np.float32(arrays[name]) for name, field in NULL_ARRAYS.items()}
        fields["likelihood"] = Likelihood.from_record(record.get("likelihood"))
        return cls(**{name: record[name] for name in PLAIN}, **fields)
