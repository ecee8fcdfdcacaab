"""What all queries of a run have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from patchtrace.compute import Budget
from patchtrace.engines import Engine, Work
from patchtrace.images import ImageSet
from patchtrace.nda.coarse import Coarse
from patchtrace.nda.plan import Plan
from patchtrace.recipe import Stopping


@dataclass(frozen=True)
class Setting:
    """What all queries of a run have in common.

    Parameters
    ----------
    plan : Plan
        What is compared.
    train : ImageSet
        The collection.
    work : Work
        Compares with all images, here or on a cluster.
    engine, budget : Engine, Budget
        Compare with some of them, always here.
    stopping : Stopping
        When draws are enough.
    coarse : Coarse, optional
        A coarse pass over all images; None where an exact first answer comes as soon.
    shortlist : int, optional
        Images to score after the coarse pass; None: all of them, as far as there is time.
    noise : mapping of t to float32 (draws, channels, height, width), optional
        The caller's own noise.
    parts, keep, explainable : bool
        Whether the result holds what each level and scale adds, what a later run could continue with, and normalisers.
    """

    plan: Plan
    train: ImageSet
    work: Work
    engine: Engine
    budget: Budget
    stopping: Stopping
    coarse: Coarse | None
    shortlist: int | None
    noise: Mapping[int, NDArray[np.float32]] | None
    parts: bool
    keep: bool
    explainable: bool
