"""What an evaluation will cost: counted from the models that are missing, and from steps that are measured."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from networks import TINY

from patchtrace import ImageSet
from patchtrace.diffusion import Training
from patchtrace.diffusion.training import Speed, measured_speed
from patchtrace.evaluate import estimate as module
from patchtrace.evaluate.estimate import estimate
from patchtrace.evaluate.retraining import Retraining
from patchtrace.evaluate.truth import make_subsets

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SUBSETS = make_subsets(10, 4)


@pytest.fixture
def models(tmp_path):
    (tmp_path / "tiny.json").write_text(json.dumps(TINY))
    pixels = np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), dtype=np.uint8)
    training = Training(model=str(tmp_path / "tiny.json"), epochs=4, batch=2)
    return Retraining(ImageSet.open(pixels), tmp_path / "work", training)


@pytest.fixture
def known(monkeypatch):
    """A machine that takes 2 s for a step and 0.5 s for a pass."""
    monkeypatch.setattr(module, "measured_speed", lambda *_: Speed(2.0, 0.5, 3))


@pytest.mark.usefixtures("known")
def test_time_is_steps_and_passes(models):
    found = estimate(models, SUBSETS, queries=6, seeds=2, timesteps=5, draws=2)
    assert (found.models, found.mine, found.steps, found.passes) == (8, 8, 10, 60)
    assert (found.each, found.losses, found.before) == (10 * 2.0 + 60 * 0.5, 30.0, 0.0)
    assert "8 models to train, 10 steps each: 50 s a model on cpu" in str(found)
    assert "about 6.7 min in all" in str(found)


@pytest.mark.usefixtures("known")
def test_a_shard_and_several_at_a_time(models):
    found = estimate(models, SUBSETS, queries=6, timesteps=5, draws=2, shard=(1, 2), jobs=2)
    assert (found.models, found.mine) == (4, 2)
    assert "this part (2 models, 2 at a time): about 50 s" in str(found)


@pytest.mark.usefixtures("known")
def test_the_model_of_all_images_comes_first(models):
    found = estimate(models, SUBSETS, queries=6, timesteps=5, draws=2, whole=True, generated=3)
    assert found.before == 20 * 2.0 + 3 * 1000 * 0.5
    assert "after 26 min for the model of all images" in str(found)
    models.with_checkpoints()
    assert estimate(models, SUBSETS, queries=6, whole=True, generated=3).before == 0


@pytest.mark.usefixtures("known")
def test_models_that_are_there_cost_nothing(models):
    models.model(SUBSETS[1])
    assert estimate(models, SUBSETS, queries=6, shard=(2, 2)).models == 3
    assert estimate(models, SUBSETS, queries=6, shard=(2, 2)).mine == 1
    for subset in SUBSETS:
        models.model(subset)
    assert str(estimate(models, SUBSETS, queries=6)) == "all models are trained already"


def test_a_speed_is_measured_and_nothing_is_left_behind(models, tmp_path):
    import torch

    before, threads = sorted(tmp_path.rglob("*")), torch.get_num_threads()
    found = measured_speed(models.images, models.training)
    assert found.single > 0
    assert found.step > 0
    assert found.measured == 6
    estimate(models, SUBSETS, queries=1, jobs=2)
    assert sorted(tmp_path.rglob("*")) == before
    assert torch.get_num_threads() == threads


def test_a_training_of_few_steps_is_measured_on_these(models):
    assert measured_speed(models.images, replace(models.training, epochs=1, batch=10)).measured == 1
