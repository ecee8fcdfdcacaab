"""Training ends with the same weights, however often it is killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from patchtrace import ImageSet, PatchtraceError
from patchtrace.diffusion import Denoiser, Training, checkpoints_of, train
from patchtrace.diffusion import training as module
from patchtrace.diffusion.training import _TrainingRun

pytestmark = pytest.mark.slow


def weights(model: Denoiser) -> dict[str, torch.Tensor]:
    return model.model.state_dict()


def equal(one: Denoiser, other: Denoiser) -> bool:
    return all(torch.equal(weights(one)[name], weights(other)[name]) for name in weights(one))


class Killed(BaseException):
    pass


@pytest.mark.parametrize("moments", [[1], [3, 4], [2, 9, 17]])
def test_a_killed_run_ends_with_the_same_weights(tmp_path, tiny, pictures, monkeypatch, moments):
    settings = Training(model=tiny, epochs=9, batch=5, checkpoints=3)
    whole = train(pictures, tmp_path / "whole", settings)
    monkeypatch.setattr(module, "SAVE_EVERY", -1.0)  # a state after each step
    for moment in moments:

        def kill(done: int, _: int, moment: int = moment) -> None:
            if done == moment:
                raise Killed

        with pytest.raises(Killed):
            train(pictures, tmp_path / "parts", settings, progress=kill)
    parts = train(pictures, tmp_path / "parts", settings)
    assert equal(whole, parts)
    assert not (tmp_path / "parts" / "state.safetensors").exists()
    for a, b in zip(checkpoints_of(tmp_path / "whole"), checkpoints_of(tmp_path / "parts"), strict=True):
        assert equal(Denoiser.load(a), Denoiser.load(b))


def test_a_process_that_is_killed_for_good(tmp_path, tiny, pictures):
    """kill -9 at some moment, not one that suits us."""
    np.save(tmp_path / "pictures.npy", pictures.pixels.transpose(0, 2, 3, 1))
    script = (
        "import sys, torch\n"
        "from patchtrace.diffusion import Training, train, training\n"
        "torch.set_num_threads(1)\n"
        "training.SAVE_EVERY = -1.0\n"
        "train(sys.argv[1], sys.argv[2], Training(model=sys.argv[3], epochs=16, batch=4))\n"
    )
    place = tmp_path / "killed"
    command = [sys.executable, "-c", script, str(tmp_path / "pictures.npy"), str(place), tiny]
    process = subprocess.Popen(command)
    while not (place / "state.safetensors").exists():
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (place / "training.json").exists(), "it was done before it was killed"
    settings = Training(model=tiny, epochs=16, batch=4)
    images = ImageSet.open(tmp_path / "pictures.npy")
    assert equal(train(images, place, settings), train(images, tmp_path / "whole", settings))


def test_training_learns(tmp_path, tiny):
    """On one picture alone the loss has to fall well below that of a guess of nothing."""
    picture = ImageSet.open(np.zeros((1, 8, 8, 3), np.uint8))
    model = train(picture, tmp_path / "model", Training(model=tiny, epochs=600, batch=8, rate=1e-2))
    assert model.loss(picture, timesteps=20, draws=2)[0] < 0.3
    record = json.loads((tmp_path / "model" / "training.json").read_text())
    assert record["losses"][0] > 0.8 > 0.4 > record["losses"][-1]


def test_each_epoch_shows_each_picture_once(tmp_path, tiny, pictures):
    marked = ImageSet.open(np.arange(13, dtype=np.uint8)[:, None, None, None] + np.zeros((1, 8, 8, 3), np.uint8))
    run = _TrainingRun(marked, tmp_path, Training(model=tiny, epochs=3, batch=5), "", "cpu")
    seen = []
    for step in range(run.steps):
        run.step = step
        batch, timesteps, noise = run.batch()
        assert len(batch) == len(timesteps) == len(noise)
        seen += np.rint((batch[:, 0, 0, 0] + 1) * 127.5).astype(int).tolist()
    assert [sorted(seen[i : i + 13]) for i in (0, 13, 26)] == [list(range(13))] * 3
    assert seen[:13] != seen[13:26]


def test_flips_mirror_about_half_of_the_pictures(tmp_path, tiny, pictures):
    run = _TrainingRun(pictures, tmp_path, Training(model=tiny, epochs=40, batch=13), "", "cpu")
    kinds = []
    for step in range(40):
        run.step = step
        for picture in run.batch()[0]:
            kinds += ["plain"] * bool((pictures.block(0, 13) == picture).all(axis=(1, 2, 3)).any())
            kinds += ["mirrored"] * bool((pictures.block(0, 13) == picture[..., ::-1]).all(axis=(1, 2, 3)).any())
    assert len(kinds) == 520
    assert 200 < kinds.count("mirrored") < 320
    still = _TrainingRun(pictures, tmp_path, Training(model=tiny, flips=False), "", "cpu")
    assert all((pictures.block(0, 13) == picture).all(axis=(1, 2, 3)).any() for picture in still.batch()[0])


def test_other_images_or_settings_are_not_confused(tmp_path, tiny, pictures):
    settings = Training(model=tiny, epochs=1, batch=5)
    train(pictures, tmp_path / "model", settings)
    with pytest.raises(PatchtraceError, match="other images or settings"):
        train(pictures.subset(range(12)), tmp_path / "model", settings)
    with pytest.raises(PatchtraceError, match="other images or settings"):
        train(pictures, tmp_path / "model", replace(settings, seed=1))
    assert settings.fingerprint(pictures) == replace(settings).fingerprint(pictures)


@pytest.mark.parametrize("file", ["training.json", "state.safetensors"])
def test_damaged_files_of_a_training_are_reported_and_it_begins_again(tmp_path, tiny, pictures, file):
    settings = Training(model=tiny, epochs=1, batch=5)
    whole = train(pictures, tmp_path / "whole", settings)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / file).write_bytes(b"{")
    with pytest.warns(UserWarning, match=f"{file}' is damaged and computed again") as warned:
        again = train(pictures, tmp_path / "model", settings)
    assert len(warned) == 1
    assert equal(whole, again)


def flipped(path, part):
    """A file with one bit of it flipped, after a part of its length."""
    raw = bytearray(path.read_bytes())
    raw[int(part * (len(raw) - 1))] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.9, 1])
def test_a_flipped_bit_in_the_weights_is_noticed(tmp_path, tiny, pictures, part):
    train(pictures, tmp_path / "model", Training(model=tiny, epochs=1, batch=5))
    flipped(tmp_path / "model" / "unet" / "diffusion_pytorch_model.safetensors", part)
    with pytest.raises(PatchtraceError, match=r"do not match their checksum|no model can be read"):
        Denoiser.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("file", "field", "value"),
    [("unet/config.json", "norm_eps", 1e-3), ("scheduler/scheduler_config.json", "beta_end", 0.03)],
)
def test_a_changed_number_in_the_description_of_a_model_is_noticed(tmp_path, tiny, pictures, file, field, value):
    """The weights fit as before, and the model gives other pictures."""
    train(pictures, tmp_path / "model", Training(model=tiny, epochs=1, batch=5))
    path = tmp_path / "model" / file
    fields = json.loads(path.read_text())
    assert fields[field] != value
    path.write_text(json.dumps({**fields, field: value}))
    with pytest.raises(PatchtraceError, match="is not what was saved with its weights"):
        Denoiser.load(tmp_path / "model")


@pytest.mark.parametrize("content", [b"{", b"[" * 100_000, b'{"prediction_type": []}', b'{"beta_start": "x"}'])
@pytest.mark.parametrize("file", ["scheduler/scheduler_config.json", "unet/config.json"])
def test_damaged_descriptions_of_a_model_are_refused(tmp_path, tiny, pictures, file, content):
    train(pictures, tmp_path / "model", Training(model=tiny, epochs=1, batch=5))
    (tmp_path / "model" / file).write_bytes(content)
    if (file, content[:5]) == ("unet/config.json", b'{"pre'):  # what diffusers does not know it leaves out
        return
    with pytest.raises(PatchtraceError):
        Denoiser.load(tmp_path / "model")


@pytest.mark.parametrize("part", [0, 0.01, 0.5, 0.9, 1])
def test_a_training_whose_state_has_a_flipped_bit_begins_again(tmp_path, tiny, pictures, monkeypatch, part):
    monkeypatch.setattr(module, "SAVE_EVERY", -1.0)
    settings = Training(model=tiny, epochs=2, batch=5)
    whole = train(pictures, tmp_path / "whole", settings)

    def stop(done, total):
        if done >= 3:
            raise Killed

    with pytest.raises(Killed):
        train(pictures, tmp_path / "model", settings, progress=stop)
    flipped(tmp_path / "model" / "state.safetensors", part)
    with pytest.warns(UserWarning, match="is damaged and computed again"):
        assert equal(train(pictures, tmp_path / "model", settings), whole)


def test_the_seed_matters_and_torch_is_left_as_it_was(tmp_path, tiny, pictures):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one = train(pictures, tmp_path / "one", Training(model=tiny, epochs=1))
    assert torch.equal(torch.rand(1), expected)
    assert not equal(one, train(pictures, tmp_path / "two", Training(model=tiny, epochs=1, seed=1)))


def test_half_precision_trains(tmp_path, tiny, pictures):
    model = train(pictures, tmp_path / "model", Training(model=tiny, epochs=2, precision="bf16"))
    assert all(value.dtype == torch.float32 for value in weights(model).values())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"epochs": 0}, "epochs"), ({"rate": 0.0}, "rate"), ({"precision": "fp8"}, "bf16"), ({"schedule": "x"}, "cosine")],
)
def test_wrong_settings_are_refused(wrong, says):
    with pytest.raises(PatchtraceError, match=says):
        Training(**wrong)


def test_a_device_that_is_not_there(tmp_path, tiny, pictures):
    with pytest.raises(PatchtraceError, match="no device 'cuda:7' here"):
        train(pictures, tmp_path / "model", Training(model=tiny), device="cuda:7")


def test_what_is_written_is_a_pipeline_of_diffusers(tmp_path, tiny, pictures):
    from diffusers import DDPMPipeline

    model = train(pictures, tmp_path / "model", Training(model=tiny, epochs=1))
    pipeline = DDPMPipeline.from_pretrained(tmp_path / "model", use_safetensors=True, low_cpu_mem_usage=False)
    assert np.allclose(pipeline.scheduler.alphas_cumprod.numpy(), model.schedule.alphas_cumprod, rtol=1e-4)
    found = pipeline.unet.state_dict()
    assert all(torch.equal(found[name], value) for name, value in weights(model).items())
    assert not list(Path(tmp_path / "model").rglob("*.bin"))
