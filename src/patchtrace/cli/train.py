"""patchtrace train: a diffusion model of a collection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import ended, note, progress_bar
from patchtrace.cli.values import check_output, read_collection, training_from
from patchtrace.diffusion import parameters_of, train


@opts.command("train")
@opts.collection
@opts.training
@click.option("--flips/--no-flips", default=True, help="Mirror images at random.")
@click.option(
    "--checkpoints", type=click.IntRange(0), default=4, help="Number of checkpoints to keep, for TracInCP and GAS."
)
@opts.output("Directory for the model.", required=True)
@opts.quiet
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
    check_output(output, *options["train"])
    images, quiet = read_collection(options), options["quiet"]
    with progress_bar("training", quiet) as progress:
        model = train(images, output, settings, device=options["device"] or "cpu", progress=progress)
    note(f"{parameters_of(model.model):,} parameters, written to {output}", quiet=quiet)
    return ended(None, images.skipped)
