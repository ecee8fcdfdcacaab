"""What two pictures have to do with each other: the same, a changed copy, a part in common, or mere resemblance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from patchtrace.copies.outline import Polygon, area

#: Pictures are compared with a longest side of at most so many pixels.
LONGEST = 256


class Kind(StrEnum):
    """What an image is to a query."""

    SAME = "same picture"
    CHANGED = "changed copy"
    PART = "has a part in common"
    RESEMBLES = "resembles"


@dataclass(frozen=True)
class Verdict:
    """What an image is to a query, by points and pixels that agree under one shift, scale, small turn and mirror.

    It is about the two pictures alone. It does not say how they came to have something in common.

    Parameters
    ----------
    kind : Kind
        ``RESEMBLES`` where nothing in common was found; then nothing else is known but how much agrees.
    changes : tuple of str
        What was done to a changed copy: mirrored, cropped, turned, recoloured, ...
    mirrored : bool
        Whether one is seen in the mirror.
    scale, turn : float
        How many times larger what they have in common is in the query, and how far it is turned, in degrees.
    agreement : float
        Part of the detail that agrees, from 0 to 1, in what they have in common; where that is nothing, in the part of
        the query that the image reaches to.
    points : int
        Points of both pictures that agree on the place.
    in_query, in_image : polygon
        Outline of what they have in common, in parts of width and height of each picture; empty if there is nothing.

    Examples
    --------
    >>> from PIL import Image
    >>> from patchtrace.copies.sight import Sight
    >>> from patchtrace.demo import postcards
    >>> card = postcards(1, size=128).picture(0)
    >>> found = Sight(card.transpose(Image.Transpose.FLIP_LEFT_RIGHT)).verdict(card)
    >>> found.kind.value, found.changes, found.words()
    ('changed copy', ('mirrored',), 'changed copy: mirrored')
    """

    kind: Kind
    changes: tuple[str, ...] = ()
    mirrored: bool = False
    scale: float = 1.0
    turn: float = 0.0
    agreement: float = 0.0
    points: int = 0
    in_query: Polygon = ()
    in_image: Polygon = ()

    @property
    def of_query(self) -> float:
        """Part of the query's area that they have in common."""
        return area(self.in_query)

    @property
    def of_image(self) -> float:
        """Part of the image's area that they have in common."""
        return area(self.in_image)

    @property
    def found(self) -> bool:
        """Whether they have anything in common."""
        return self.kind is not Kind.RESEMBLES

    def words(self) -> str:
        """The verdict in a few words."""
        if self.kind is Kind.CHANGED:
            return f"{self.kind}: {', '.join(self.changes)}"
        if self.kind is Kind.PART:
            changed = "".join(f", {change}" for change in self.changes)
            return f"{self.kind}, {100 * self.of_query:.0f} % of the query{changed}"
        return str(self.kind)

    def record(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "kind": self.kind.value, "of_query": self.of_query, "of_image": self.of_image}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Verdict:
        """What :meth:`record` wrote; raises a ValueError or TypeError if it did not."""
        known = {name: record[name] for name in cls.__dataclass_fields__}
        if type(known["mirrored"]) is not bool or type(known["points"]) is not int:
            raise ValueError("a verdict does not say whether one is mirrored, or how many points agree")
        known |= {name: finite(known[name]) for name in ("scale", "turn", "agreement")}
        if not all(isinstance(change, str) for change in known["changes"]):
            raise ValueError("changes of a copy are not text")
        polygons = {name: tuple((finite(x), finite(y)) for x, y in record[name]) for name in ("in_query", "in_image")}
        return cls(**{**known, **polygons, "kind": Kind(record["kind"]), "changes": tuple(record["changes"])})


def finite(value: Any) -> float:
    """A number that is finite, or a ValueError."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number
