"""Which images of a collection does a generated picture resemble, patch by patch?

>>> import numpy as np, patchtrace as pt
>>> photos = np.random.default_rng(0).integers(0, 256, (30, 16, 16, 3), dtype=np.uint8)
>>> train = pt.ImageSet.open(photos)
>>> result = pt.NDA(pt.Recipe.for_size(16, 16)).fit(train).attribute(photos[:2])
>>> [hits[0].index for hits in result.top(3)]
[0, 1]
"""

from importlib.metadata import version

from patchtrace.attribution import Attribution, Hit
from patchtrace.errors import PatchtraceError
from patchtrace.explain import Explanation, explain
from patchtrace.images import Decoding, ImageSet, Store
from patchtrace.methods import (
    DTRAK,
    GAS,
    NDA,
    TRAK,
    Cascade,
    EmbeddingSimilarity,
    GradientSimilarity,
    MachineInfluence,
    PixelSimilarity,
    RandomScores,
    TracInCP,
    attribute,
)
from patchtrace.provenance import Provenance, Samples
from patchtrace.recipe import Level, Recipe, Scale
from patchtrace.schedule import Schedule
from patchtrace.score_machine import ScoreMachine

__version__ = version("patchtrace")

__all__ = [
    "DTRAK",
    "GAS",
    "NDA",
    "TRAK",
    "Attribution",
    "Cascade",
    "Decoding",
    "EmbeddingSimilarity",
    "Explanation",
    "GradientSimilarity",
    "Hit",
    "ImageSet",
    "Level",
    "MachineInfluence",
    "PatchtraceError",
    "PixelSimilarity",
    "Provenance",
    "RandomScores",
    "Recipe",
    "Samples",
    "Scale",
    "Schedule",
    "ScoreMachine",
    "Store",
    "TracInCP",
    "attribute",
    "explain",
]
