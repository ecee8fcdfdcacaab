"""Nonparametric data attribution: one plan of what is compared, the run of a query, the shortlist, explanations."""

from patchtrace.nda.explain import Explanation, Mosaic, explain
from patchtrace.nda.method import NDA, attribute
from patchtrace.nda.pairs import Match, Pair, Partners
from patchtrace.nda.shortlist import NDAShortlist

__all__ = ["NDA", "Explanation", "Match", "Mosaic", "NDAShortlist", "Pair", "Partners", "attribute", "explain"]
