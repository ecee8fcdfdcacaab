"""patchtrace ablate: what each setting of a recipe is worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from patchtrace.cli.common import UNREADABLE, progress_bar, say_skipped
from patchtrace.cli.options import (
    SOURCE,
    check_memory,
    check_output,
    collection_options,
    engine_options,
    read_collection,
    read_queries,
    several,
)
from patchtrace.evaluate.ablation import TITLES, Ablation, Plan, Row, draw, write_rows
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.lds import GroundTruth
from patchtrace.evaluate.settings import AXES, VALUES, as_text
from patchtrace.evaluate.study import Study
from patchtrace.evaluate.tables import text_table
from patchtrace.images import ImageSet
from patchtrace.methods import DEFAULT_SIZE
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe

S = TypeVar("S", bound=Study)


def names_of(known: tuple[str, ...]) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """For an option that takes some of these names, with commas between them."""

    def parse(_: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
        if value is None:
            return None
        names = [name.strip() for name in value.split(",")]
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param=parameter)
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
                f"{item!r} says no values: use NAME=NUMBER,NUMBER with a name of {', '.join(VALUES)}", param=parameter
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
            help="The pictures whose losses are in the truth, in the same order.",
        ),
        click.option("--query-key", help="Which array or column holds the queries; see --train-key."),
        click.option("--preset", type=click.Choice(list(PRESETS)), help="The base recipe.  [default: by size]"),
        click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="The base recipe, in TOML."),
        click.option("--draws", type=click.IntRange(1), help="Draws of the noise in the base recipe."),
        click.option("--flips/--no-flips", default=None, help="Whether the base recipe compares with mirrors too."),
        click.option("--seed", type=click.IntRange(0), help="Of the noise."),
        click.option(
            "--values",
            multiple=True,
            metavar="NAME=N,N,...",
            callback=parse_values,
            help=f"What to try, such as k=10,100; NAME is one of {', '.join(VALUES)}. May be given several times.",
        ),
        click.option(
            "--resamples",
            type=click.IntRange(10),
            default=1000,
            show_default=True,
            help="Of the subsets, for the intervals.",
        ),
        engine_options,
        click.option("-q", "--quiet", is_flag=True, help="Only results and errors."),
    ]
)


def check_study(options: dict[str, Any]) -> Recipe | None:
    """What can be wrong about the options is found before the first image is read."""
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say where to start: use one of them")
    check_memory(options["memory"])
    require_matplotlib()
    base = Recipe.preset(options["preset"]) if options["preset"] else None
    if options["recipe"]:
        base = Recipe.load(options["recipe"])
    if base is not None and base.draws == "auto" and options["draws"] is None:
        raise click.UsageError("the base recipe has draws 'auto': add --draws N, so that all settings have as many")
    return base


def study_of(kind: type[S], options: dict[str, Any], base: Recipe | None, cache: Path) -> tuple[S, ImageSet, ImageSet]:
    """The study that the options describe, and its pictures."""
    size = PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE
    train = read_collection(options, size, options["quiet"])
    queries = read_queries(options, train, options["quiet"])
    truth = GroundTruth.load(options["truth"], images=len(train))
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options[name] is not None}
    names = ("values", "resamples", "engine", "device", "threads", "memory")
    study = kind(
        train,
        queries,
        truth,
        base=replace(base or Recipe.for_size(*train.shape[1:]), **changes),
        cache=cache,
        **{name: options[name] for name in names},
    )
    return study, train, queries


@click.command()
@study_options
@click.option(
    "--axes",
    callback=names_of(tuple(AXES)),
    metavar="NAME,NAME,...",
    help=f"What to vary: {', '.join(AXES)}.  [default: all that the base recipe has]",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write table and figures to this directory.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep parts of scores here, for this run and others.  [default: parts/ in the output directory]",
)
def ablate(**options: Any) -> int:
    """Say what each setting of a recipe is worth, by the LDS in TRUTH.

    TRUTH is a file of subsets and losses, as patchtrace lds writes it. One thing at a time is varied around a base
    recipe. All settings are put together from parts that are computed once and kept: a run that was interrupted goes
    on, and another one needs only what is new.

    \b
    Examples:
      patchtrace ablate truth.npz --train train.npz --queries val.npz -o ablation/
      patchtrace ablate truth.npz --train photos/ --queries val/ --axes k,gamma --draws 4 -o ablation/
      patchtrace ablate truth.npz --train photos/ --queries val/ --values timestep=100,200 --values patch=3,5,7 -o a/

    An axis is looked at on the same queries that its best value would be chosen on, which flatters that value:
    patchtrace tune chooses on some and reports on others.
    """
    base = check_study(options)
    output: Path = options["output"]
    check_output(output, [*options["train"], *options["query"]])
    ablation, train, queries = study_of(Ablation, options, base, options["cache"] or output / "parts")
    plan = ablation.plan(options["axes"])
    if not options["quiet"]:
        _say(plan, ablation)
    with progress_bar("comparing", options["quiet"]) as progress:
        rows = ablation.run(options["axes"], progress=progress)
    write_rows(rows, output / "ablation.csv")
    drawn = draw(rows, output)
    for stale in {output / f"{axis}.png" for axis in AXES} - set(drawn):
        stale.unlink(missing_ok=True)  # of an older run, whose rows this one has replaced
    for axis in dict.fromkeys(row.axis for row in rows):
        click.echo(table([row for row in rows if row.axis == axis]))
    return ended(train, queries, f"{output}", options["quiet"])


def ended(train: ImageSet, queries: ImageSet, where: str, quiet: bool) -> int:
    """Say where everything is, and what could not be read."""
    if not quiet:
        click.echo(f"written to {where}", err=True)
    skipped = train.skipped + tuple(replace(item, of="queries") for item in queries.skipped)
    if skipped:
        say_skipped(skipped, None)
        return UNREADABLE
    return 0


def table(rows: list[Row]) -> str:
    """One axis for the terminal: with intervals and seconds, or, where it has several series, LDS alone."""
    series = list(dict.fromkeys(row.series for row in rows))
    values = list(dict.fromkeys(row.value for row in rows))
    base = {row.value for row in rows if row.is_base}
    names = [f"{as_text(value)}{'*' * (value in base)}" for value in values]
    title = f"\n{TITLES[rows[0].axis]}: LDS in %{', * is the base recipe' * bool(base)}"
    if len(series) > 1:
        found = {(row.series, row.value): f"{100 * row.lds:.1f}" for row in rows}
        lines = [[name, *(found.get((name, value)) for value in values)] for name in series]
        return f"{title}\n{text_table(['', *names], lines)}"
    cells = [
        [
            name,
            f"{100 * row.lds:.1f}",
            f"{100 * row.low:.1f} to {100 * row.high:.1f}",
            "" if row.is_base else f"{100 * row.gain:+.1f} ({100 * row.gain_low:+.1f} to {100 * row.gain_high:+.1f})",
            f"{row.seconds:.1f}",
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    header = [rows[0].axis, "LDS", "95 % interval", "against the base recipe", "engine seconds"]
    return f"{title}\n{text_table(header, cells)}"


def _say(plan: Plan, ablation: Ablation) -> None:
    store = ablation.store
    click.echo(
        f"{len(plan.settings)} settings of {len(plan.parts)} parts, {plan.missing} to be made; together "
        f"{plan.bytes / 1e6:,.0f} MB in {store.directory}",
        err=True,
    )
