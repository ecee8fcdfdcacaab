"""Latents: autoencoders of latent diffusion models, in whose space pictures are compared."""

from patchtrace.latents.autoencoder import Autoencoder
from patchtrace.latents.load import load_autoencoder, recorded

__all__ = ["Autoencoder", "load_autoencoder", "recorded"]
