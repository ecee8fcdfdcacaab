"""Whole experiments from Python: what the commands call, with real models of a few thousand weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from evaluate.toys import truth_that
from networks import TINY

from patchtrace import ImageSet, PatchtraceError, PixelSimilarity
from patchtrace.diffusion import Training
from patchtrace.evaluate import Counterfactual, LDSBenchmark, counterfactual_experiment, lds, lds_experiment
from patchtrace.evaluate.scoring import MethodScores, judge
from patchtrace.evaluate.truth import GroundTruth, make_subsets
from patchtrace.progress import Watch

pytestmark = pytest.mark.usefixtures("one_thread")


class Heard(Watch):
    """Remembers everything that it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.progress: list[float] = []
        self.remarks: list[str] = []

    def __call__(self, done: int, total: int) -> None:
        self.progress.append(done / total)

    def remark(self, text: str) -> None:
        self.remarks.append(text)


@pytest.fixture
def images() -> ImageSet:
    return ImageSet.open(np.random.default_rng(0).integers(0, 256, (14, 8, 8, 3), dtype=np.uint8))


@pytest.fixture
def training(tmp_path) -> Training:
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    return Training(model=str(tmp_path / "tiny.json"), epochs=1, batch=5)


@pytest.fixture
def benchmark(images, training, tmp_path) -> LDSBenchmark:
    return LDSBenchmark(
        train=images.subset(range(10)),
        queries=images.subset(range(10, 14)),
        subsets=make_subsets(10, 4),
        directory=tmp_path / "cache",
        training=training,
        timesteps=2,
        draws=1,
    )


def test_lds_from_models_to_files(benchmark, tmp_path):
    out, heard = tmp_path / "out", Heard()
    result = PixelSimilarity("dot").fit(benchmark.train).attribute(benchmark.queries)
    report = lds_experiment(benchmark, out, methods=["pixel", "random"], runs={"mine": result}, progress=heard)
    assert sorted(path.name for path in out.iterdir()) == ["lds.csv", "lds.json", "lds.png", "truth.npz"]
    truth = GroundTruth.load(out / "truth.npz")
    assert report.comparison.results["mine"].mean == lds(result, truth.subsets, truth.losses).mean
    assert set(report.methods) == {"pixel", "random", "mine"}
    assert [line.split()[0] for line in str(report).splitlines()[1:]] == [row["method"] for row in report.rows()]
    assert json.loads((out / "lds.json").read_text(), parse_constant=pytest.fail) == report.record()
    assert heard.progress == sorted(heard.progress)
    assert heard.progress[-1] == 1
    assert heard.remarks == ["training models", "pixel", "random", "resampling"]


def test_lds_waits_for_other_shards(benchmark, tmp_path):
    assert lds_experiment(benchmark, tmp_path / "out", methods=["pixel"], shard=(1, 2)) is None
    assert len(benchmark.missing()) == 2
    assert lds_experiment(benchmark, tmp_path / "out", methods=["pixel"], shard=(2, 2)) is not None


def test_what_cannot_be_judged_is_refused_before_any_training(benchmark, tmp_path):
    result = PixelSimilarity().fit(benchmark.train).attribute(benchmark.queries)
    with pytest.raises(PatchtraceError, match="there is no method 'shapley'"):
        lds_experiment(benchmark, tmp_path / "out", methods=["shapley"])
    with pytest.raises(PatchtraceError, match="give the run another name"):
        lds_experiment(benchmark, tmp_path / "out", methods=["pixel"], runs={"pixel": result})
    assert len(benchmark.missing()) == 4


def test_damaged_generated_pictures_are_sampled_again(benchmark, monkeypatch):
    monkeypatch.setattr(
        "patchtrace.diffusion.Denoiser.sample", lambda self, count, **_: np.ones((count, 3, 8, 8), "u1")
    )
    first = benchmark.retraining.generated(2)
    (file,) = Path(benchmark.directory).glob("models/*/generated/*.npz")
    file.write_bytes(b"")
    with pytest.warns(UserWarning, match="generated pictures in .* is damaged and computed again"):
        assert (benchmark.retraining.generated(2).pixels == first.pixels).all()
    assert first.ids == ("generated-0000", "generated-0001")


def test_counterfactuals_of_every_kind_of_method(images, training, tmp_path):
    """Of a method on checkpoints too, which the model of the originals does not have."""
    experiment = Counterfactual(images, tmp_path / "out", training, remove=3, queries=2, steps=2, chance_models=1)
    heard = Heard()
    result = counterfactual_experiment(
        experiment, methods=["pixel", "gradient-dot", "gas"], cosine=False, progress=heard
    )
    assert list(result.l2) == ["pixel", "gradient-dot", "gas", "chance", "other seed"]
    assert {path.name for path in (tmp_path / "out" / "attributions").iterdir()} == {"pixel", "gradient-dot", "gas"}
    assert (tmp_path / "out" / "counterfactual.csv").is_file()
    assert sorted(path.name for path in (tmp_path / "out" / "originals").iterdir()) == [
        "query-000.png",
        "query-001.png",
    ]
    assert heard.progress == sorted(heard.progress)
    facts = result.facts["methods"]
    assert len(facts["gas"]["settings"]["models"]) > 1
    assert facts["gas"]["settings"]["models"][-1] == facts["gradient-dot"]["settings"]["models"][0]  # the same weights


def test_a_report_has_differences_to_one_method():
    scores = np.random.default_rng(0).random((3, 20)).astype(np.float32)
    report = judge(
        [MethodScores("right", {"": scores}, {}), MethodScores("wrong", {"": -scores}, {}, "nothing", 1.5)],
        truth_that(scores),
    )
    assert "against right" in report.table("right").splitlines()[0]
    assert "-200.0" in report.table("right")
    assert report.table().splitlines()[-1].split()[-2:] == ["1.5", "nothing"]
