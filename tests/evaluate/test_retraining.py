"""The truth by retraining: units that are done once, by anybody, and are never taken for others."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from networks import TINY

from patchtrace import ImageSet, PatchtraceError
from patchtrace.diffusion import Denoiser, Training
from patchtrace.evaluate import retraining
from patchtrace.evaluate.retraining import LDSBenchmark, Unit, in_processes
from patchtrace.evaluate.truth import make_subsets

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def benchmark(tmp_path) -> LDSBenchmark:
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    pixels = np.random.default_rng(0).integers(0, 256, (14, 8, 8, 3), dtype=np.uint8)
    images = ImageSet.open(pixels)
    return LDSBenchmark(
        train=images.subset(range(10)),
        queries=images.subset(range(10, 14)),
        subsets=make_subsets(10, 3),
        directory=tmp_path / "work",
        training=Training(model=str(tmp_path / "tiny.json"), epochs=1, batch=5),
        seeds=2,
        timesteps=3,
        draws=1,
    )


@pytest.fixture
def trainings(monkeypatch) -> list[int]:
    """The number of images of each model that is trained from now on."""
    seen: list[int] = []
    original = retraining.train

    def counted(images, place, *rest, **more):
        if not (place / "training.json").exists():
            seen.append(len(images))
        return original(images, place, *rest, **more)

    monkeypatch.setattr(retraining, "train", counted)
    return seen


def test_the_truth_is_the_mean_over_seeds_of_each_models_loss(benchmark):
    benchmark.run()
    truth = benchmark.truth()
    for subset in range(3):
        each = [
            Denoiser.load(benchmark.retraining.place(benchmark.subsets[subset], seed)).loss(
                benchmark.queries, timesteps=3, draws=1
            )
            for seed in range(2)
        ]
        assert (each[0] != each[1]).all()
        assert truth.losses[subset] == pytest.approx(np.mean(each, axis=0))
    assert (truth.subsets == benchmark.subsets).all()
    assert truth.facts["training"]["epochs"] == 1


def test_a_second_run_trains_nothing(benchmark, trainings):
    benchmark.run()
    assert trainings == [5] * 6
    benchmark.run()
    replace(benchmark, queries=benchmark.queries.subset([0])).run()  # other queries, the same models
    assert trainings == [5] * 6


@pytest.mark.parametrize("other", [{"timesteps": 2}, {"draws": 2}, {"training": Training(epochs=2)}, {"queries": 1}])
def test_results_of_other_settings_are_not_taken(benchmark, other):
    benchmark.run()
    if "training" in other:
        other = {"training": replace(benchmark.training, epochs=2)}
    if "queries" in other:
        other = {"queries": benchmark.queries.subset([1, 0, 2, 3])}
    assert len(replace(benchmark, **other).missing()) == 6


def test_shards_are_the_whole_work(benchmark, trainings):
    benchmark.run(shard=(1, 2))
    with pytest.raises(PatchtraceError, match="3 of 6 models are not done"):
        benchmark.truth()
    benchmark.run(shard=(2, 2))
    assert len(trainings) == 6
    assert benchmark.truth().losses.shape == (3, 4)
    with pytest.raises(PatchtraceError, match="1/2 to 2/2"):
        benchmark.run(shard=(3, 2))


def test_processes_give_the_same_losses(benchmark, tmp_path):
    benchmark.run()
    elsewhere = replace(benchmark, directory=tmp_path / "elsewhere", seeds=1)
    done = []
    elsewhere.run(jobs=2, progress=lambda *state: done.append(state))
    assert done == [(0, 3), (1, 3), (2, 3), (3, 3)]
    for unit in elsewhere.units:
        assert (elsewhere.measure(unit) == benchmark.measure(unit)).all()


def test_damaged_losses_are_measured_again(benchmark, trainings):
    benchmark.run()
    expected, before = benchmark.truth().losses, len(trainings)
    damaged = benchmark._cache.path(benchmark._key(benchmark.units[1]))
    damaged.write_bytes(damaged.read_bytes()[:-30])
    with pytest.warns(UserWarning, match="losses of a model in .* is damaged and computed again") as warned:
        assert (benchmark.truth().losses == expected).all()
    assert len(warned) == 1
    assert len(trainings) == before  # the model is there
    assert (benchmark.truth().losses == expected).all()


def test_a_task_that_fails_ends_the_work(benchmark):
    with pytest.raises(IndexError):
        list(in_processes(benchmark.measure, [Unit(99, 0), Unit(98, 0)], 2))


def test_a_process_that_is_killed_is_reported():
    with pytest.raises(PatchtraceError, match="fewer at the same time"):
        list(in_processes(os._exit, [1, 1], 2))


def test_errors_say_what_would_be_right(benchmark):
    with pytest.raises(PatchtraceError, match="10 images"):
        replace(benchmark, subsets=benchmark.subsets[:, :9])
    with pytest.raises(PatchtraceError, match="at least 1"):
        replace(benchmark, seeds=0)
    with pytest.raises(PatchtraceError, match="no image"):
        benchmark.retraining.model(np.zeros(10, dtype=bool))
