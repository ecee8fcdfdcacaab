"""NDA whose results come on command, so that a test can look in between."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from patchtrace import NDA, Attribution
from patchtrace.nda_details import Ended


class Stepwise(NDA):
    """Before the last result come ``shifts``: each image has the share of the one so many places further on.

    ``go[n]`` lets it go on after result n.
    """

    def __init__(self, *arguments: Any, shifts: tuple[int, ...] = (5, 2), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.shifts, self.go = shifts, [threading.Event() for _ in shifts]

    def stream(self, queries: Any, *, progress: Any = None, **_: Any) -> Iterator[Attribution]:
        *_, last = super().stream(queries, progress=progress)
        for shift, go in zip(self.shifts, self.go, strict=True):
            scores, shares = (np.roll(values, shift, axis=1) for values in (last.scores, last.shares))
            details = replace(last.nda, ended=[Ended.PROVISIONAL], normalisers=())
            yield replace(last, scores=scores, shares=shares, nda=details)
            while not go.wait(0.01):
                progress(1, 1)  # raises if the query is cancelled
        yield last
