"""The scores that are shipped for the truth at 32 x 32 are what docs/evaluation.md says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from patchtrace.evaluate import GroundTruth
from patchtrace.evaluate.score_files import read_scores

ROOT = Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "benchmarks" / "results" / "truth32"
DOCS = ROOT / "docs" / "evaluation.md"
SETS = ("validation", "generated")
TABLE = re.findall(
    r"^\| `([a-z0-9-]+)\.npz` \| (-?[\d.]+) \| (-?[\d.]+) \|$",
    (ROOT / "docs" / "evaluation.md").read_text("utf-8"),
    re.M,
)


def test_the_table_has_all_files():
    for name in SETS:
        assert {row[0] for row in TABLE} == {path.stem for path in (KEPT / "scores" / name).glob("*.npz")}


@pytest.mark.parametrize(
    ("label", "stated"), [(label, dict(zip(SETS, values, strict=True))) for label, *values in TABLE]
)
def test_the_lds_of_a_file_is_that_of_the_table(label, stated):
    for name in SETS:
        truth, path = GroundTruth.load(KEPT / f"{name}-0.npz"), KEPT / "scores" / name / f"{label}.npz"
        assert path.stat().st_size < 1_000_000
        (scores,) = read_scores(path, truth).variants.values()  # refuses other images or queries
        predicted = -truth.subsets.astype(np.float64) @ np.asarray(scores, np.float64).T
        found = [spearmanr(mine, real).statistic for mine, real in zip(predicted.T, truth.losses.T, strict=True)]
        assert f"{100 * np.mean(found):.1f}" == stated[name]
