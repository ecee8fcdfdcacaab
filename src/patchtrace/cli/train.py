"""patchtrace train: a diffusion model of a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli.common import ended, progress_bar
from patchtrace.cli.experiments import training_from, training_options
from patchtrace.cli.options import check_output, collection_options, directory_option, quiet_option, read_collection
from patchtrace.diffusion import parameters_of, train
from patchtrace.recipe import DEFAULT_SIZE


@click.command("train")
@collection_options
@training_options
@click.option("--flips/--no-flips", default=True, show_default=True, help="Mirror images at random.")
@click.option(
    "--checkpoints",
    type=click.IntRange(0),
    default=4,
    show_default=True,
    help="Number of checkpoints to keep, for TracInCP and GAS.",
)
@directory_option("-o", "--output", required=True, help="Directory for the model.")
@quiet_option
def train_command(**options: Any) -> int:
    """Train an unconditional diffusion model (DDPM) on a collection.

    The same command resumes a run that was stopped, and ends with the same weights; at most the last minute is lost.
    The directory can be opened by diffusers' DDPMPipeline, and by `patchtrace sample`.

    \b
    Examples:
      patchtrace train --train photos/ --size 16 -o model/
      patchtrace train --train photos/ --size 32 --model ddpm-cifar --device cuda --precision bf16 -o model/
      patchtrace train --train photos/ --size 64 --model config.json --epochs 100 -o model/
    """
    settings = training_from(options, flips=options["flips"], checkpoints=options["checkpoints"])
    output: Path = options["output"]
    check_output(output, list(options["train"]))
    quiet = options["quiet"]
    images = read_collection(options, DEFAULT_SIZE, quiet)
    with progress_bar("training", quiet) as progress:
        model = train(images, output, settings, device=options["device"] or "cpu", progress=progress)
    if not quiet:
        click.echo(f"{parameters_of(model.model):,} parameters, written to {output}", err=True)
    return ended(None, images)
