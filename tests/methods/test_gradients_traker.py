"""TRAK and D-TRAK against the library of TRAK's authors; both with our projection, which has tests of its own."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from diffusers import UNet2DModel
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from trak import TRAKer
from trak.modelout_functions import AbstractModelOutput
from trak.projectors import AbstractProjector

from patchtrace import ImageSet, Schedule
from patchtrace.diffusion import Denoiser
from patchtrace.methods.gradients import DTRAK, TRAK
from patchtrace.methods.gradients.per_image import Gradients
from patchtrace.methods.gradients.projection import Projection

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

RNG = np.random.default_rng(0)
TRAIN, QUERIES = (ImageSet.open(RNG.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8)) for n in (20, 4))
TIMES = torch.tensor([100, 400, 800])
LAM, DIMENSION = 0.1, 64


@pytest.fixture(scope="module")
def model() -> Denoiser:
    blocks = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    small = {"block_out_channels": (4, 4), "layers_per_block": 1, "norm_num_groups": 2, "attention_head_dim": 4}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Denoiser(UNet2DModel(sample_size=8, **blocks, **small).eval(), Schedule.named("ddpm-linear"))


class Objective(AbstractModelOutput):
    def __init__(self, of_output: bool) -> None:
        self.of_output = of_output

    def get_output(self, model, weights, buffers, seen, noise):
        guess = functional_call(model, (weights, buffers), (seen, TIMES)).sample
        return (guess if self.of_output else guess - noise).square().mean()

    def get_out_to_loss_grad(self, model, weights, buffers, batch):
        return torch.ones(len(batch[0]), 1)


class Ours(AbstractProjector):
    def __init__(self, gradients: Gradients) -> None:
        super().__init__(gradients.width, DIMENSION, 0, "count sketch", "cpu")
        self.projection = Projection(gradients.width, DIMENSION, (0, int(gradients.model[:16], 16)))

    def project(self, grads, model_id):
        return self.projection.rows(grads.values())

    def free_memory(self):
        pass


def batch(model: Denoiser, images: ImageSet, stream: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (len(TIMES), *images.shape)
    rows = [np.random.default_rng([0, i, stream]).standard_normal(shape, dtype=np.float32) for i in range(len(images))]
    noise = torch.from_numpy(np.stack(rows))
    clean = torch.from_numpy(images.block(0, len(images)))
    return torch.stack([model.noised(a, b, TIMES) for a, b in zip(clean, noise, strict=True)]), noise


@pytest.mark.parametrize("method", [TRAK, DTRAK])
def test_scores_are_those_of_the_authors_library(method, model, tmp_path):
    ours = (
        method(model, LAM, timesteps=TIMES.tolist(), dimension=DIMENSION, cache=tmp_path).fit(TRAIN).attribute(QUERIES)
    )
    rows = next(found for path in tmp_path.glob("*.npy") if len(found := np.load(path)) == len(TRAIN))
    gradients = Gradients(model, tuple(TIMES.tolist()))
    theirs = TRAKer(
        model.model,
        Objective(method is DTRAK),
        len(TRAIN),
        save_dir=str(tmp_path / "trak"),
        device="cpu",
        projector=Ours(gradients),
        use_half_precision=False,
        # theirs is absolute, and for gradients that are divided by the root of their width
        lambda_reg=LAM * float(np.square(rows, dtype=np.float64).sum(axis=1).mean()) / gradients.width,
        logging_level=logging.ERROR,
    )
    weights = model.model.state_dict()
    with sdpa_kernel(SDPBackend.MATH):
        theirs.load_checkpoint(weights, model_id=0)
        theirs.featurize(batch(model, TRAIN, 1), num_samples=len(TRAIN))
        theirs.finalize_features()
        theirs.start_scoring_checkpoint("queries", weights, 0, num_targets=len(QUERIES))
        theirs.score(batch(model, QUERIES, 2), num_samples=len(QUERIES))
        expected = np.asarray(theirs.finalize_scores("queries")).T.astype(np.float64)
    # it divides the inverse by its mean, so that one factor for all scores is left open
    expected *= (ours.scores * expected).sum() / (expected**2).sum()
    np.testing.assert_allclose(ours.scores, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
