"""Is it right? LDS by retraining, counterfactuals, ablation and tuning of recipes."""

from patchtrace.evaluate.ablation import Ablation
from patchtrace.evaluate.counterfactual import Counterfactual
from patchtrace.evaluate.experiment import counterfactual_experiment, lds_experiment
from patchtrace.evaluate.lds import LDS, Difference, LDSComparison, compare, lds
from patchtrace.evaluate.retraining import LDSBenchmark
from patchtrace.evaluate.score_files import read_scores
from patchtrace.evaluate.scoring import LDSReport, judge
from patchtrace.evaluate.truth import GroundTruth, make_subsets
from patchtrace.evaluate.tuning import Tuning

__all__ = [
    "LDS",
    "Ablation",
    "Counterfactual",
    "Difference",
    "GroundTruth",
    "LDSBenchmark",
    "LDSComparison",
    "LDSReport",
    "Tuning",
    "compare",
    "counterfactual_experiment",
    "judge",
    "lds",
    "lds_experiment",
    "make_subsets",
    "read_scores",
]
