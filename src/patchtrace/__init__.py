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
from patchtrace.compute import Compute
from patchtrace.drawing import html as _html  # noqa: F401  # results learn how to show themselves
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store, shrunken
from patchtrace.latents import Autoencoder
from patchtrace.methods import (
    DTRAK,
    GAS,
    TRAK,
    EmbeddingSimilarity,
    GradientSimilarity,
    MachineInfluence,
    PixelSimilarity,
    RandomScores,
    TracInCP,
)
from patchtrace.nda import NDA, Explanation, NDAShortlist, attribute, explain
from patchtrace.nda_details import NDADetails
from patchtrace.null import Null, calibrate
from patchtrace.null_details import NullDetails
from patchtrace.progress import Watch
from patchtrace.provenance import Provenance, Samples
from patchtrace.recipe import Level, Recipe, Scale, Stopping
from patchtrace.schedule import Schedule
from patchtrace.score_machine import ScoreMachine

__version__ = version("patchtrace")

__all__ = [
    "DTRAK",
    "GAS",
    "NDA",
    "TRAK",
    "Attribution",
    "Autoencoder",
    "Compute",
    "Decoding",
    "EmbeddingSimilarity",
    "Explanation",
    "GradientSimilarity",
    "Hit",
    "ImageSet",
    "Level",
    "MachineInfluence",
    "NDADetails",
    "NDAShortlist",
    "Null",
    "NullDetails",
    "PatchtraceError",
    "PixelSimilarity",
    "Provenance",
    "RandomScores",
    "Recipe",
    "Samples",
    "Scale",
    "Schedule",
    "ScoreMachine",
    "Stopping",
    "Store",
    "TracInCP",
    "Watch",
    "attribute",
    "calibrate",
    "explain",
    "shrunken",
]
