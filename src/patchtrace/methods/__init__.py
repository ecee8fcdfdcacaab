"""What is scored: one file for each method, all with the same two verbs, fit(train) and attribute(queries)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from patchtrace.attribution import Attribution
from patchtrace.images import ImageSet, has_own_size
from patchtrace.methods.base import Method
from patchtrace.methods.cascade import Cascade
from patchtrace.methods.embedding import EmbeddingSimilarity
from patchtrace.methods.gradients import DTRAK, GAS, TRAK, GradientSimilarity, TracInCP
from patchtrace.methods.influence import MachineInfluence
from patchtrace.methods.nda import NDA
from patchtrace.methods.pixel import PixelSimilarity
from patchtrace.methods.random import RandomScores
from patchtrace.progress import Progress
from patchtrace.recipe import Recipe

#: The size to which files are brought where none is said.
DEFAULT_SIZE = 32


def attribute(
    queries: Any,
    train: Any,
    *,
    size: int | tuple[int, int] | None = None,
    recipe: Recipe | None = None,
    progress: Progress | None = None,
) -> Attribution:
    """Which images of ``train`` do the queries resemble? The whole of NDA in one call.

    Parameters
    ----------
    queries, train : path, array, ...
        Anything that ``ImageSet.open`` takes.
    size : int or (int, int), optional
        Pictures are brought to this size. Without it, files to 32 x 32, and arrays stay as they are.
    recipe : Recipe, optional
        What is compared; without it one is chosen for the size, with draws until the list is settled.
    progress : callable, optional
        Called with (done, total).

    Examples
    --------
    >>> import numpy as np
    >>> train = np.random.default_rng(0).integers(0, 256, (12, 9, 9, 3), dtype=np.uint8)
    >>> result = attribute(train[4:5], train)
    >>> result.top(1)[0][0].id
    '4'
    """
    if size is None and not has_own_size(train):
        size = DEFAULT_SIZE
    images = ImageSet.open(train, size=size)
    recipe = recipe or replace(Recipe.for_size(*images.shape[1:]), draws="auto")
    return NDA(recipe).fit(images).attribute(queries, progress=progress)


__all__ = [
    "DEFAULT_SIZE",
    "DTRAK",
    "GAS",
    "NDA",
    "TRAK",
    "Cascade",
    "EmbeddingSimilarity",
    "GradientSimilarity",
    "MachineInfluence",
    "Method",
    "PixelSimilarity",
    "RandomScores",
    "TracInCP",
    "attribute",
]
