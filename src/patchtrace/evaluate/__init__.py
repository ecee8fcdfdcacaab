"""Is it right? LDS by retraining, counterfactuals, ablation and tuning of recipes."""

from patchtrace.evaluate.ablation import Ablation
from patchtrace.evaluate.benchmark import LDSBenchmark
from patchtrace.evaluate.counterfactual import Counterfactual
from patchtrace.evaluate.lds import LDS, Comparison, Difference, compare, lds
from patchtrace.evaluate.truth import GroundTruth, make_subsets
from patchtrace.evaluate.tuning import Tuning

__all__ = [
    "LDS",
    "Ablation",
    "Comparison",
    "Counterfactual",
    "Difference",
    "GroundTruth",
    "LDSBenchmark",
    "Tuning",
    "compare",
    "lds",
    "make_subsets",
]
