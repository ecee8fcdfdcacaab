"""Options of the commands that train models, and what is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import click

from patchtrace.cli.options import several
from patchtrace.diffusion import CONFIGURATIONS, Training
from patchtrace.diffusion.training import Precision

#: How models are trained; what is not said comes from the model.
training_options = several(
    [
        click.option(
            "--model",
            default="ddpm-small",
            show_default=True,
            help=f"One of {', '.join(CONFIGURATIONS)}, a config.json of diffusers, or the directory of a model.",
        ),
        click.option("--epochs", type=click.IntRange(1), help="How often each image is seen.  [default: the model's]"),
        click.option("--batch", type=click.IntRange(1), help="Images at once.  [default: the model's]"),
        click.option("--rate", type=click.FloatRange(0, min_open=True), help="Of learning.  [default: the model's]"),
        click.option("--train-seed", type=click.IntRange(0), default=0, show_default=True, help="Of training."),
        click.option(
            "--precision",
            type=click.Choice(get_args(Precision)),
            default="fp32",
            show_default=True,
            help="bf16 is faster on hardware that has it.",
        ),
        click.option("--device", default="cpu", show_default=True, help="Such as cuda:1."),
    ]
)

#: Many models, and how the work on them is shared out.
units_options = several(
    [
        click.option(
            "--jobs", type=click.IntRange(1), default=1, show_default=True, help="Models trained at the same time."
        ),
        click.option(
            "--shard",
            default="1/1",
            metavar="I/N",
            callback=lambda context, parameter, value: parse_shard(parameter, value),
            help="Do only part I of N, for job arrays.",
        ),
    ]
)


def training_from(options: Mapping[str, Any], **more: Any) -> Training:
    """How models are trained, as the options say."""
    changes = {name: options[name] for name in ("epochs", "batch", "rate") if options[name] is not None}
    return Training.of(options["model"], seed=options["train_seed"], precision=options["precision"], **changes, **more)


def parse_shard(parameter: click.Parameter, value: str) -> tuple[int, int]:
    """Part 2 of 8, as 2/8."""
    part, slash, parts = value.partition("/")
    try:
        shard = int(part), int(parts if slash else 0)
    except ValueError:
        shard = 0, 0
    if not 1 <= shard[0] <= shard[1]:
        raise click.BadParameter(f"{value!r} is no part: use 1/8 to 8/8, for example", param=parameter)
    return shard
