"""Which networks there are."""

from __future__ import annotations

import json

import numpy as np
import pytest

from patchtrace import ImageSet, PatchtraceError
from patchtrace.diffusion import CONFIGURATIONS, Training, parameters_of
from patchtrace.diffusion.models import build, configuration, read_configuration
from patchtrace.diffusion.training import _TrainingRun

pytestmark = pytest.mark.slow

SIZES = {"ddpm-cifar": 32, "ddpm-celeba": 64, "ddpm-small": 16}


def test_the_papers_model_has_as_many_parameters_as_the_paper_says():
    assert round(parameters_of(build(configuration("ddpm-cifar", (3, 32, 32)))) / 1e6, 1) == 35.7


def test_the_small_model_is_small():
    for size in (16, 32):
        assert 150_000 < parameters_of(build(configuration("ddpm-small", (3, size, size)))) < 300_000


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_one_training_step(name, tmp_path):
    size = SIZES[name]
    pixels = np.random.default_rng(0).integers(0, 256, (2, size, size, 3), dtype=np.uint8)
    run = _TrainingRun(ImageSet.open(pixels), tmp_path, Training.of(name, batch=2), "", "cpu")
    before = [parameter.detach().clone() for parameter in run.model.parameters()]
    loss = run.take_step()
    # a fresh network guesses almost no noise, which has a mean square of 1
    assert 0.5 < loss < 2
    assert all((a != b).any() for a, b in zip(before, run.model.parameters(), strict=True))


def test_a_configuration_from_a_file_or_a_directory(tmp_path):
    fields = {"_class_name": "UNet2DModel", "_diffusers_version": "0", "block_out_channels": [8, 16], "norm_eps": 1e-6}
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text(json.dumps(fields))
    for path in (tmp_path, tmp_path / "unet", tmp_path / "unet" / "config.json"):
        found = configuration(path, (1, 8, 8))
        assert found == {
            "block_out_channels": [8, 16],
            "norm_eps": 1e-6,
            "sample_size": 8,
            "in_channels": 1,
            "out_channels": 1,
        }


def test_errors_say_what_would_be_right(tmp_path):
    with pytest.raises(PatchtraceError, match="ddpm-small"):
        configuration("ddpm-large", (3, 16, 16))
    with pytest.raises(PatchtraceError, match="8 divides"):
        configuration("ddpm-cifar", (3, 20, 20))
    file = tmp_path / "config.json"
    file.write_text('{"_class_name": "UNet2DConditionModel"}')
    with pytest.raises(PatchtraceError, match="unconditional"):
        read_configuration(file)
    file.write_text('{"num_class_embeds": 10}')
    with pytest.raises(PatchtraceError, match="class labels"):
        read_configuration(file)
    file.write_text("{")
    with pytest.raises(PatchtraceError, match="not a configuration"):
        read_configuration(file)
    with pytest.raises(PatchtraceError, match="cannot build"):
        build({"block_out_channels": [8], "down_block_types": ["SideBlock2D"], "up_block_types": ["UpBlock2D"]})
