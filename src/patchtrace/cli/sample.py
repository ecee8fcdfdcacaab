"""patchtrace sample: pictures from a diffusion model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import note, progress_bar
from patchtrace.cli.kinds import COUNT, DIRECTORY, SEED, Choice
from patchtrace.cli.values import check_output
from patchtrace.diffusion import Denoiser
from patchtrace.images import ImageSet
from patchtrace.images.write import write_pictures


@opts.command("sample")
@click.argument("model", type=DIRECTORY)
@click.option("-n", "--count", type=COUNT, default=16, help="Number of pictures.")
@click.option(
    "--sampler",
    type=Choice(["ddim", "ddpm"]),
    default="ddim",
    help="Sampler; ddim adds no noise between steps, ddpm does and needs more steps.",
)
@click.option("--steps", type=COUNT, default=50, help="Number of sampling steps.")
@click.option("--seed", type=SEED, default=0, help="Noise seed.")
@click.option("--device", default="cpu", help="PyTorch device, such as cuda:1.")
@opts.output("Directory for the pictures.", required=True)
@opts.quiet
def sample(model: Path, **options: Any) -> None:
    """Make pictures with the diffusion model in the directory MODEL.

    MODEL is what `patchtrace train` wrote, or any unconditional pipeline or UNet2DModel of diffusers that predicts
    noise and is saved as safetensors. Picture number i starts from the same noise in every run and every model.

    \b
    Examples:
      patchtrace sample model/ -n 64 -o generated/
      patchtrace sample model/ --sampler ddpm --steps 1000 -o generated/
      patchtrace attribute generated/ --train photos/ --size 16

    The directory then holds the pictures as PNG files.
    """
    output: Path = options["output"]
    check_output(output)
    denoiser = Denoiser.load(model, options["device"])
    with progress_bar("sampling", options["quiet"]) as progress:
        how = {name: options[name] for name in ("sampler", "steps", "seed")}
        pixels = denoiser.sample(options["count"], progress=progress, **how)
    made = ImageSet(pixels, tuple(f"sample-{number:04d}" for number in range(len(pixels))))
    write_pictures(made, output, "sample")
    note(f"{len(made)} pictures written to {output}", quiet=options["quiet"])
