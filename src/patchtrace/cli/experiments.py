"""Options shared by the commands that train models, score methods and evaluate them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import printable
from patchtrace.cli.options import Registered, recipe_from, recipe_options, several
from patchtrace.compute import Compute
from patchtrace.diffusion import CONFIGURATIONS, Training
from patchtrace.diffusion.training import Precision
from patchtrace.evaluate.scoring import usual_recipe
from patchtrace.images import ImageSet
from patchtrace.methods.base import METHODS, Resources

#: How models are trained; defaults come with the model.
training_options = several(
    [
        click.option(
            "--model",
            default="ddpm-small",
            show_default=True,
            help=f"Model: {', '.join(CONFIGURATIONS)}, a config.json of diffusers, or the directory of a model.",
        ),
        click.option("--epochs", type=click.IntRange(1), help="Number of epochs.  [default: the model's]"),
        click.option("--batch", type=click.IntRange(1), help="Batch size.  [default: the model's]"),
        click.option("--rate", type=click.FloatRange(0, min_open=True), help="Learning rate.  [default: the model's]"),
        click.option("--train-seed", type=click.IntRange(0), default=0, show_default=True, help="Training seed."),
        click.option(
            "--precision",
            type=click.Choice(get_args(Precision)),
            default="fp32",
            show_default=True,
            help="Floating-point precision; bf16 is faster on hardware that has it.",
        ),
        click.option("--device", help="PyTorch device, such as cuda:1.  [default: cpu]"),
    ]
)

#: How the training of many models is divided.
units_options = several(
    [
        click.option(
            "--jobs",
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Number of models to train at the same time.",
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


#: Which methods are scored, and what they are made from.
method_options = several(
    [
        click.option(
            "--method",
            "methods",
            type=Registered(lambda: METHODS),
            multiple=True,
            help="Method to score; may be given several times.",
        ),
        recipe_options,
        click.option(
            "--draws", type=click.IntRange(1), help="Number of noise draws, for nda.  [default: the recipe's, or 4]"
        ),
        click.option(
            "--shortlist", type=click.IntRange(1), help="Number of images to score exactly, for nda-shortlist."
        ),
        click.option(
            "--encoder",
            default="efficientnet-lite0",
            show_default=True,
            help="Encoder of embeddings: efficientnet-lite0, clip or clip:DIR; counterfactual also takes none.",
        ),
        click.option("--threads", type=click.IntRange(1), help="Number of threads.  [default: all]"),
    ]
)

runs_option = click.option(
    "--run",
    "runs",
    metavar="[NAME=]DIR",
    multiple=True,
    help="Saved result on the queries; may be given several times.",
)


def training_from(options: Mapping[str, Any], **more: Any) -> Training:
    """How models are trained, according to the options."""
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
        raise click.BadParameter(f"{value!r} is not a part: use 1/8 to 8/8, for example", param=parameter)
    return shard


def resources_from(options: dict[str, Any], train: ImageSet, **more: Any) -> Resources:
    """What methods are made from, according to the options."""
    recipe = recipe_from(options)
    if options["draws"]:
        recipe = replace(recipe or usual_recipe(train), draws=options["draws"])
    return Resources(
        train=train,
        compute=Compute(device=options["device"], threads=options["threads"]),
        recipe=recipe,
        shortlist=options["shortlist"],
        encoder=options["encoder"],
        **more,
    )


def places_of(runs: Iterable[str], taken: Iterable[str] = ()) -> dict[str, Path]:
    """The directory of each run by its name: the one that was given, or that of the directory."""
    places: dict[str, Path] = {}
    for run in runs:
        name, equals, place = run.partition("=")
        if not equals or Path(run).is_dir():  # a directory may have an equals sign in its name
            name, place = Path(run).resolve().name, run
        if not Path(place).is_dir():
            raise click.UsageError(
                f"{printable(place)} is not a directory: use one that `patchtrace attribute -o` wrote"
            )
        if name in taken:
            raise click.UsageError(f"{printable(name)}: that name is taken, use another one with NAME={place}")
        if not name or name in places:
            raise click.UsageError(
                f"two runs have the name {printable(name)!r}: give one another name with NAME={place}"
            )
        places[name] = Path(place)
    return places


def load_runs(runs: Iterable[str], taken: Iterable[str] = ()) -> dict[str, Attribution]:
    """Saved results by the names of :func:`places_of`."""
    return {name: Attribution.load(place) for name, place in places_of(runs, taken).items()}
