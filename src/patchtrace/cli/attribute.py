"""patchtrace attribute: the main job."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from patchtrace.cli.common import UNREADABLE, print_table, progress_bar, say_skipped, write_run
from patchtrace.cli.options import (
    SOURCE,
    check_memory,
    check_output,
    check_sampling,
    collection_options,
    engine_options,
    opened_from,
    read_collection,
    read_queries,
    sampling_options,
)
from patchtrace.images import ImageSet
from patchtrace.methods import DEFAULT_SIZE, NDA, Cascade, MachineInfluence, Method, PixelSimilarity, RandomScores
from patchtrace.methods.unfinished import clear
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe
from patchtrace.viewer.make import look_closer, make_report

#: Where a run keeps what it has done, inside its output directory, until it is over.
UNFINISHED = "unfinished"
#: For each method the options that have a meaning for it and not for all.
ENGINE = ("engine", "threads", "device", "memory")
METHODS = {
    "nda": (
        "preset",
        "recipe",
        "draws",
        "confidence",
        "most_draws",
        "seconds",
        "flips",
        "seed",
        "parts",
        "cluster",
        *("cluster", "shortlist", *ENGINE),
    ),
    "machine-influence": ("draws", "seed", *ENGINE),
    "pixel": (),
    "random": ("seed",),
}


@click.command()
@click.argument("query", nargs=-1, required=True, type=SOURCE)
@collection_options
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A shipped recipe.  [default: by size]")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="A recipe in TOML.")
@click.option("--method", type=click.Choice(list(METHODS)), default="nda", show_default=True, help="What is scored.")
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="How many images to show.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write everything to this directory."
)
@click.option(
    "--format",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Of the ranking in the output directory.  [default: csv]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page to look at, with everything in it; of several queries, one page each.",
)
@sampling_options
@click.option("--flips/--no-flips", default=None, help="Also compare with mirrored training images.")
@click.option("--seed", type=click.IntRange(0), help="Of the noise, or of random scores.")
@click.option("--parts", is_flag=True, help="Also keep what each level and scale adds.")
@engine_options
@click.option(
    "--cluster", metavar="ADDRESS|local:N", help="Compare on a dask scheduler's workers, or on N processes here."
)
@click.option(
    "--shortlist",
    type=click.IntRange(1),
    metavar="N",
    help="Approximate, for huge collections: a coarse pass ranks all images, only its best N are scored exactly.",
)
@click.option("--query-key", help="Which array or column holds the queries; see --train-key.")
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also say what is done and how.")
@click.pass_context
def attribute(context: click.Context, /, **options: Any) -> int:
    """Rank the images of a collection by how much a QUERY picture resembles them.

    QUERY is an image, several, a folder, or any other source that --train takes too.

    \b
    Examples:
      patchtrace attribute query.png --train photos/
      patchtrace attribute query.png --train photos/ --report report.html
      patchtrace attribute query.png --train photos/ --preset celeba --draws 8 -o run/
      patchtrace attribute query.png --train photos/ --seconds 60 -o run/  &&  patchtrace refine run/
      patchtrace attribute generated.npz --train cifar-10-batches-py/ --json
      patchtrace attribute generated/ --train photos.store -o run/ --cluster tcp://host:8786
      patchtrace attribute q.png --train millions.store --shortlist 5000
      patchtrace attribute q.png --train shard.parquet --train-key image --format parquet -o run/

    With -o a run that was stopped or killed goes on where it was when the same command is given again.

    The share of an image is the part of the query's patches that it accounts for. It says how much the query
    resembles that image compared with the rest of the collection, not that it was copied.
    """
    # everything that can be wrong about the options is found before the first image is read
    _check_usage(context, options)
    recipe = Recipe.load(options["recipe"]) if options["recipe"] else None
    if options["method"] == "nda":
        chosen = Recipe.preset(options["preset"]) if options["preset"] else recipe
        check_sampling(context, options["draws"] or (chosen.draws if chosen else "auto"))
    output: Path | None = options["output"]
    if output:
        check_output(output, [*options["train"], *options["query"]])
    quiet = options["quiet"]
    train, queries = _read(options, quiet)
    method = _method(options, recipe, train).fit(train)
    if options["verbose"] and not quiet:
        _explain(method, train, queries)
    # a table appears as soon as its query is done, JSON is one piece
    show = None if options["json"] else partial(print_table, top=options["top"])
    unfinished = output / UNFINISHED if output else None
    with progress_bar("comparing", quiet) as progress:
        if isinstance(method, NDA | Cascade):
            result = method.attribute(
                queries,
                progress=progress,
                remark=progress.remark,
                unfinished=unfinished,
                finished=show and progress.aside(show),
                **({"parts": options["parts"]} if isinstance(method, NDA) else {}),
            )
        else:
            result = method.attribute(queries, progress=progress)
            if show:
                show(result)
    result = replace(result, facts={**result.facts, "opened": opened_from(options)})
    listed = None
    if output:
        listed = write_run(result, queries, train, output, options["format"] or "csv")
        if options["method"] == "nda":
            clear(output / UNFINISHED)
    for query, path in enumerate(_reports(options["report"], len(queries))):
        with progress_bar("looking closer", quiet) as progress:
            engine = {name: options[name] for name in ENGINE}
            make_report(
                path, *look_closer(result, queries, train, query, command=_command(), progress=progress, **engine)
            )
        if not quiet:
            click.echo(f"written to {path}", err=True)
    if options["json"]:
        click.echo(json.dumps(result.to_json(options["top"]), indent=1))
    if output and not quiet:
        click.echo(f"written to {output}", err=True)
    if result.skipped:
        say_skipped(result.skipped, listed)
        return UNREADABLE
    return 0


def _check_usage(context: click.Context, options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["method"] == "machine-influence" and options["draws"] == "auto":
        raise click.UsageError("--draws auto has no meaning for --method machine-influence: give a number")
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    if options["format"] and not options["output"]:
        raise click.UsageError("--format says how the ranking is written to a directory: add -o DIR, or use --json")
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    for name in {option for used in METHODS.values() for option in used} - set(METHODS[options["method"]]):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} has no meaning for --method {options['method']}")
    check_memory(options["memory"])
    for name in ("parts", "report"):
        if options["shortlist"] and options[name]:
            raise click.UsageError(
                f"--{name} needs all images compared exactly, and --shortlist does not: use one of them"
            )
    if options["report"]:
        if options["method"] != "nda":
            raise click.UsageError(f"--report shows patches, which --method {options['method']} does not compare")
        for source in map(Path, options["train"]):
            if source.is_dir() and options["report"].resolve().is_relative_to(source.resolve()):
                raise click.UsageError(f"--report {options['report']} lies in {source}, whose images are read")
        if not options["report"].resolve().parent.is_dir():
            raise click.UsageError(f"--report {options['report']}: there is no such directory")


def _reports(path: Path | None, queries: int) -> list[Path]:
    """Where the page of each query goes."""
    if path is None or queries == 1:
        return [path] if path else []
    return [path.with_stem(f"{path.stem}-{number}") for number in range(1, queries + 1)]


def _command() -> str:
    """What was typed, with nothing of this machine but what was typed."""
    return shlex.join(["patchtrace", *sys.argv[1:]])


def _read(options: dict[str, Any], quiet: bool) -> tuple[ImageSet, ImageSet]:
    """The collection, and the queries at its size."""
    size = PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE
    train = read_collection(options, size, quiet)
    return train, read_queries(options, train, quiet)


def _method(options: dict[str, Any], recipe: Recipe | None, train: ImageSet) -> Method:
    if options["method"] == "pixel":
        return PixelSimilarity()
    if options["method"] == "random":
        return RandomScores(seed=options["seed"] or 0)
    if options["method"] == "machine-influence":
        names = ("draws", "seed", *ENGINE)
        return MachineInfluence(**{name: options[name] for name in names if options[name] is not None})
    if recipe is None and options["preset"]:
        recipe = Recipe.preset(options["preset"])
    elif recipe is None:
        recipe = replace(Recipe.for_size(*train.shape[1:]), draws="auto")
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options[name] is not None}
    recipe = replace(recipe, **changes)
    more = {name: options[name] for name in ("top", "confidence", "most_draws", "seconds", "cluster", *ENGINE)}
    return Cascade(options["shortlist"], recipe, **more) if options["shortlist"] else NDA(recipe, **more)


def _explain(method: Method, train: ImageSet, queries: ImageSet) -> None:
    channels, height, width = train.shape
    click.echo(f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels", err=True)
    if isinstance(method, NDA | Cascade):
        click.echo(f"{method.recipe_.note or 'recipe'}: {method.recipe_.summary()}", err=True)
