"""The loss of a model, and its pictures."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from patchtrace import ImageSet, PatchtraceError, Schedule
from patchtrace.diffusion import Denoiser, Training, spread, train
from patchtrace.diffusion.denoiser import query_noise

pytestmark = pytest.mark.slow


@pytest.fixture
def model(tmp_path, tiny, pictures) -> Denoiser:
    return train(pictures, tmp_path / "model", Training(model=tiny, epochs=3))


class Fixed(torch.nn.Module):
    """A model that always guesses the same."""

    def __init__(self, model, guess):
        super().__init__()
        self.config, self.guess, self.weight = model.model.config, guess, torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, t):
        return type("Out", (), {"sample": torch.full_like(x, self.guess)})()


def test_loss_by_hand(model, pictures):
    noise = query_noise(3, 1, 4, (3, 8, 8)).double().numpy()
    found = Denoiser(Fixed(model, 0.5), model.schedule).loss(pictures, timesteps=2, draws=2, seed=3)
    assert found[1] == pytest.approx(((noise - 0.5) ** 2).mean(), rel=1e-6)


def test_loss_sees_the_picture_at_the_right_noise(model, pictures):
    schedule = model.schedule
    found = model.loss(pictures.subset([0]), timesteps=[10, 400], seed=3)
    clean = torch.from_numpy(pictures.block(0, 1))
    noise = query_noise(3, 0, 2, (3, 8, 8))
    each = []
    for t, eps in zip((10, 400), noise, strict=True):
        signal, strength = schedule.at(t)
        with torch.no_grad():
            guess = model.model(signal * clean + strength * eps, torch.tensor([t])).sample[0]
        each.append(float((guess - eps).square().mean()))
    assert found[0] == pytest.approx(np.mean(each), rel=1e-5)


def test_noise_depends_on_neither_batch_nor_the_other_queries(model, pictures):
    all_of_them = model.loss(pictures, timesteps=3, draws=2)
    assert model.loss(pictures.subset([0, 1]), timesteps=3, draws=2) == pytest.approx(all_of_them[:2], rel=1e-5)
    assert model.loss(pictures, timesteps=3, draws=2, batch=4) == pytest.approx(all_of_them, rel=1e-5)


@pytest.mark.parametrize("sampler", ["ddim", "ddpm"])
def test_a_picture_depends_on_its_number_alone(model, sampler):
    several = model.sample(4, sampler=sampler, steps=5, seed=2)
    assert several.dtype == np.uint8
    alone = model.sample(1, sampler=sampler, steps=5, seed=2, first=3)
    assert np.abs(several[3].astype(int) - alone[0]).max() <= 1  # rounding of another batch size
    assert (model.sample(1, sampler=sampler, steps=5, seed=3) != several[:1]).any()


def test_ddim_finds_the_picture_that_the_model_knows(model):
    """A model that knows one picture only guesses the noise exactly; then every way leads to that picture."""
    target = torch.full((3, 8, 8), 0.4)

    class Knows(Fixed):
        def forward(self, x, t):
            alpha = torch.tensor(model.schedule.alphas_cumprod)[t.long()].reshape(-1, 1, 1, 1)
            guess = (x - alpha.sqrt() * target) / (1 - alpha).sqrt()
            return type("Out", (), {"sample": guess.to(x)})()

    for sampler in ("ddim", "ddpm"):
        made = Denoiser(Knows(model, 0), model.schedule).sample(2, sampler=sampler, steps=20)
        assert np.abs(made.astype(int) - round(1.4 * 127.5)).max() <= 1


@pytest.mark.parametrize("name", ["ddpm-linear", "scaled-linear", "cosine"])
def test_a_schedule_survives_saving(model, tmp_path, name):
    Denoiser(model.model, Schedule.named(name)).save(tmp_path / "again")
    again = Denoiser.load(tmp_path / "again")
    assert np.allclose(again.schedule.alphas_cumprod, Schedule.named(name).alphas_cumprod, rtol=1e-9, atol=1e-15)
    assert not again.model.training


def test_errors_say_what_would_be_right(model, pictures, tmp_path):
    with pytest.raises(PatchtraceError, match="the model's size"):
        model.loss(ImageSet.open(np.zeros((1, 16, 16, 3), np.uint8)))
    with pytest.raises(PatchtraceError, match="0 to 999"):
        model.loss(pictures, timesteps=[1000])
    with pytest.raises(PatchtraceError, match="1 to 1000"):
        spread(0, 1000)
    with pytest.raises(PatchtraceError, match="ddim, ddpm"):
        model.sample(1, sampler="euler")
    with pytest.raises(PatchtraceError, match="1 to 1000"):
        model.sample(1, steps=0)
    with pytest.raises(PatchtraceError, match="there is no model"):
        Denoiser.load(tmp_path / "nothing")
    scheduler = tmp_path / "model" / "scheduler" / "scheduler_config.json"
    scheduler.write_text(json.dumps({**json.loads(scheduler.read_text()), "prediction_type": "v_prediction"}))
    with pytest.raises(PatchtraceError, match="epsilon"):
        Denoiser.load(tmp_path / "model")
    (tmp_path / "model" / "unet" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(PatchtraceError, match="safetensors"):
        Denoiser.load(tmp_path / "model")
