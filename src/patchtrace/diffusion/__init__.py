"""Real diffusion models: train them, sample from them, ask for their loss."""

from patchtrace.diffusion.denoiser import Denoiser, spread
from patchtrace.diffusion.models import CONFIGURATIONS, parameters_of
from patchtrace.diffusion.training import Training, checkpoints_of, train

__all__ = ["CONFIGURATIONS", "Denoiser", "Training", "checkpoints_of", "parameters_of", "spread", "train"]
