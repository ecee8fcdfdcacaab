"""What ablate and tune share: options for the truth, the pictures, the base recipe and the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import click

from patchtrace.cli import options as opts
from patchtrace.cli.kinds import COUNT, NEW_DIRECTORY, SEED, Parsed
from patchtrace.cli.values import check_output, compute_from, read_pictures, recipe_for, recipe_from
from patchtrace.evaluate.axes import VALUES
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.recipe_study import RecipeStudy
from patchtrace.evaluate.truth import GroundTruth

S = TypeVar("S", bound=RecipeStudy)


def _values(text: str) -> tuple[str, list[float]]:
    name, _, numbers = text.partition("=")
    if name not in VALUES:
        raise ValueError(text)
    return name, [float(number) if "." in number else int(number) for number in numbers.split(",")]


NAMED_VALUES = Parsed(
    "NAME=N,N,...",
    _values,
    "{!r} is not a list of values: use NAME=NUMBER,NUMBER with NAME one of " + ", ".join(VALUES),
)

#: Truth, pictures, base recipe and engine: what ablate and tune have in common.
study_options = opts.several(
    opts.truth,
    opts.collection,
    opts.queries("Queries of the truth, in the same order.", required=True),
    opts.query_key,
    opts.recipe,
    click.option("--draws", type=COUNT, help="Number of noise draws of the base recipe."),
    opts.views,
    click.option("--seed", type=SEED, help="Noise seed."),
    click.option(
        "--values",
        multiple=True,
        type=NAMED_VALUES,
        help=f"Values to try, such as k=10,100; NAME is one of {', '.join(VALUES)}. May be repeated.",
    ),
    click.option(
        "--resamples", type=click.IntRange(10), default=1000, help="Number of subset resamples for the intervals."
    ),
    click.option(
        "--cache", type=NEW_DIRECTORY, help="Directory for parts of scores.  [default: parts/ beside the results]"
    ),
    opts.compute,
    opts.quiet,
)


def study_of(kind: type[S], options: dict[str, Any], results: Path) -> S:
    """The study that the options describe, with its pictures; errors are found before the first image is read."""
    base, compute = recipe_from(options), compute_from(options)
    require_matplotlib()
    if base is not None and base.draws == "auto" and options["draws"] is None:
        raise click.UsageError(
            "the base recipe has draws 'auto': add --draws N, so that all settings have the same number"
        )
    check_output(results, *options["train"], *options["query"])
    train, queries = read_pictures(options)
    return kind(
        train,
        queries,
        GroundTruth.load(options["truth"], images=len(train)),
        base=recipe_for(base, options, train, draws=1),
        cache=options["cache"] or results / "parts",
        values=dict(options["values"]),
        resamples=options["resamples"],
        compute=compute,
    )
