"""patchtrace sample: pictures from a diffusion model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli.common import progress_bar
from patchtrace.cli.options import check_output, directory_option, quiet_option
from patchtrace.diffusion import Denoiser
from patchtrace.images import ImageSet
from patchtrace.images.write import write_pictures


@click.command("sample")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-n", "--count", type=click.IntRange(1), default=16, show_default=True, help="Number of pictures.")
@click.option(
    "--sampler",
    type=click.Choice(["ddim", "ddpm"]),
    default="ddim",
    show_default=True,
    help="Sampler; ddim adds no noise between steps, ddpm does and needs more steps.",
)
@click.option("--steps", type=click.IntRange(1), default=50, show_default=True, help="Number of sampling steps.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Noise seed.")
@click.option("--device", default="cpu", show_default=True, help="PyTorch device, such as cuda:1.")
@directory_option("-o", "--output", required=True, help="Directory for the pictures.")
@quiet_option
def sample(model: Path, **options: Any) -> None:
    """Make pictures with the diffusion model in the directory MODEL.

    MODEL is what `patchtrace train` wrote, or any unconditional pipeline or UNet2DModel of diffusers that predicts
    noise and is saved as safetensors. Picture number i starts from the same noise in every run and every model.

    \b
    Examples:
      patchtrace sample model/ -n 64 -o generated/
      patchtrace sample model/ --sampler ddpm --steps 1000 -o generated/
      patchtrace attribute generated/ --train photos/ --size 16

    The directory then holds each picture as PNG.
    """
    output: Path = options["output"]
    check_output(output, [])
    denoiser = Denoiser.load(model, options["device"])
    with progress_bar("sampling", options["quiet"]) as progress:
        pixels = denoiser.sample(
            options["count"],
            progress=progress,
            **{name: options[name] for name in ("sampler", "steps", "seed")},
        )
    made = ImageSet(pixels, tuple(f"sample-{number:04d}" for number in range(len(pixels))))
    write_pictures(made, output, "sample")
    if not options["quiet"]:
        click.echo(f"{len(made)} pictures written to {output}", err=True)
