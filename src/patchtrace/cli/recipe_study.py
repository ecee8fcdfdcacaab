"""What ablate and tune share: options for the truth, the pictures, the base recipe and the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from patchtrace.cli.options import (
    SOURCE,
    collection_options,
    compute_from,
    compute_options,
    default_size,
    quiet_option,
    read_collection,
    read_queries,
    recipe_from,
    recipe_options,
    several,
)
from patchtrace.evaluate.axes import VALUES
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.recipe_study import RecipeStudy
from patchtrace.evaluate.truth import GroundTruth
from patchtrace.images import ImageSet
from patchtrace.recipe import Recipe

S = TypeVar("S", bound=RecipeStudy)


def names_of(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """Callback of an option that takes some of these names, separated by commas."""

    def parse(_: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
        if value is None:
            return None
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is not valid: use some of {', '.join(known)}", param=parameter)
        return names

    return parse


def parse_values(_: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, list[float]]:
    """NAME=NUMBER,NUMBER,..."""
    values = {}
    for item in given:
        name, _equals, numbers = item.partition("=")
        try:
            values[name] = [float(number) if "." in number else int(number) for number in numbers.split(",")]
        except ValueError:
            name = ""
        if name not in VALUES:
            raise click.BadParameter(
                f"{item!r} is not a list of values: use NAME=NUMBER,NUMBER with NAME one of {', '.join(VALUES)}",
                param=parameter,
            )
    return values


#: Truth, pictures, base recipe and engine: what ablate and tune have in common.
study_options = several(
    [
        click.argument("truth", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        collection_options,
        click.option(
            "--queries",
            "query",
            required=True,
            multiple=True,
            type=SOURCE,
            help="Queries of the truth, in the same order.",
        ),
        click.option("--query-key", help="Array of a .npz, or column of a table, that holds the queries."),
        recipe_options,
        click.option("--draws", type=click.IntRange(1), help="Number of noise draws of the base recipe."),
        click.option("--flips/--no-flips", default=None, help="Also compare with mirrored training images."),
        click.option("--seed", type=click.IntRange(0), help="Noise seed."),
        click.option(
            "--values",
            multiple=True,
            metavar="NAME=N,N,...",
            callback=parse_values,
            help=f"Values to try, such as k=10,100; NAME is one of {', '.join(VALUES)}. May be given several times.",
        ),
        click.option(
            "--resamples",
            type=click.IntRange(10),
            default=1000,
            show_default=True,
            help="Number of subset resamples for the intervals.",
        ),
        compute_options,
        quiet_option,
    ]
)


def check_study(options: dict[str, Any]) -> Recipe | None:
    """Errors in the options are found before the first image is read; returns the base recipe, if one is named."""
    base = recipe_from(options)
    compute_from(options)
    require_matplotlib()
    if base is not None and base.draws == "auto" and options["draws"] is None:
        raise click.UsageError(
            "the base recipe has draws 'auto': add --draws N, so that all settings have the same number"
        )
    return base


def study_of(kind: type[S], options: dict[str, Any], base: Recipe | None, cache: Path) -> tuple[S, ImageSet, ImageSet]:
    """The study that the options describe, and its pictures."""
    train = read_collection(options, default_size(options), options["quiet"])
    queries = read_queries(options, train, options["quiet"])
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options[name] is not None}
    study = kind(
        train,
        queries,
        GroundTruth.load(options["truth"], images=len(train)),
        base=replace(base or Recipe.for_size(*train.shape[1:]), **changes),
        cache=cache,
        values=options["values"],
        resamples=options["resamples"],
        compute=compute_from(options),
    )
    return study, train, queries
