"""What is scored: one file for each method, all with the same two verbs, fit(train) and attribute(queries)."""

from patchtrace.methods.base import METHODS, Method, Requires, Resources, make_method
from patchtrace.methods.embedding import EmbeddingSimilarity
from patchtrace.methods.gradients import DTRAK, GAS, TRAK, GradientSimilarity, TracInCP
from patchtrace.methods.influence import MachineInfluence
from patchtrace.methods.pixel import PixelSimilarity
from patchtrace.methods.random import RandomScores

__all__ = [
    "DTRAK",
    "GAS",
    "METHODS",
    "TRAK",
    "EmbeddingSimilarity",
    "GradientSimilarity",
    "MachineInfluence",
    "Method",
    "PixelSimilarity",
    "RandomScores",
    "Requires",
    "Resources",
    "TracInCP",
    "make_method",
]
