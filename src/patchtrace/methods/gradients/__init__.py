"""Methods that look into a trained model: gradients of each picture, projected, kept in files, and compared."""

from patchtrace.methods.gradients.similarity import GAS, GradientSimilarity, TracInCP
from patchtrace.methods.gradients.trak import DTRAK, TRAK

__all__ = ["DTRAK", "GAS", "TRAK", "GradientSimilarity", "TracInCP"]
