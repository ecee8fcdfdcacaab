"""patchtrace attribute: the main job."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from patchtrace.cli.common import UNREADABLE, parse_size, print_table, progress_bar, say_skipped, write_run
from patchtrace.engines import ENGINES
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, has_own_size
from patchtrace.images.arrays import LAYOUTS
from patchtrace.memory import DEFAULT_MEMORY, parse_memory
from patchtrace.methods import DEFAULT_SIZE, NDA, Method, PixelSimilarity, RandomScores
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe


@click.command()
@click.argument("query", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--train",
    required=True,
    multiple=True,
    type=click.Path(exists=True),
    help="The collection: folder, .npz, .parquet, .tar, ...; may be given several times.",
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A shipped recipe.  [default: by size]")
@click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="A recipe in TOML.")
@click.option("--method", type=click.Choice(["nda", "pixel", "random"]), default="nda", show_default=True)
@click.option(
    "--size",
    metavar="N|HxW",
    callback=parse_size,
    help="Bring pictures to this size.  [default: 32, or the preset's; arrays keep theirs]",
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="How many images to show.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write everything to this directory."
)
@click.option(
    "--format",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Of the ranking in the output directory.  [default: csv]",
)
@click.option("--draws", type=click.IntRange(1), help="Noise samples to average; more give a steadier list.")
@click.option("--flips/--no-flips", default=None, help="Also compare with mirrored training images.")
@click.option("--seed", type=click.IntRange(0), help="Of the noise, or of random scores.")
@click.option("--parts", is_flag=True, help="Also keep what each level and scale adds.")
@click.option(
    "--engine",
    type=click.Choice(["auto", *ENGINES]),
    default="auto",
    show_default=True,
    help="How it is computed; all give the same numbers. See patchtrace doctor.",
)
@click.option("--threads", type=click.IntRange(1), help="How many to use.  [default: all]")
@click.option("--device", help="For the torch engine, such as cuda:1.")
@click.option("--memory", default=DEFAULT_MEMORY, show_default=True, help="Working memory to stay within.")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N images of the collection.")
@click.option("--train-key", help="Which array of a .npz, or which column of a table, holds the collection.")
@click.option("--query-key", help="The same for the queries.")
@click.option("--layout", type=click.Choice(list(LAYOUTS)), help="Of arrays that can be read in more than one way.")
@click.option("--grey", is_flag=True, help="Compare without colour.")
@click.option(
    "--fit",
    type=click.Choice(["cover", "pad"]),
    default="cover",
    show_default=True,
    help="Fill the frame and cut the rest, or show all of the picture on white.",
)
@click.option(
    "--crop",
    type=click.IntRange(1),
    help="First cut a square of this side out of the middle of each image of the collection.",
)
@click.option(
    "--exif",
    type=click.Choice(["apply", "ignore"]),
    default="apply",
    show_default=True,
    help="Whether a camera's rotation mark turns the picture.",
)
@click.option("--follow-symlinks", is_flag=True, help="Follow links inside folders.")
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
      patchtrace attribute query.png --train photos/ --preset celeba --draws 8 -o run/
      patchtrace attribute generated.npz --train cifar-10-batches-py/ --json
      patchtrace attribute q.png --train shard.parquet --train-key image --format parquet -o run/

    The share of an image is the part of the query's patches that it accounts for. It says how much the query
    resembles that image compared with the rest of the collection, not that it was copied.
    """
    # everything that can be wrong about the options is found before the first image is read
    _check_usage(context, options)
    recipe = Recipe.load(options["recipe"]) if options["recipe"] else None
    output: Path | None = options["output"]
    if output:
        _check_output(output, [*options["train"], *options["query"]])
    quiet = options["quiet"]
    train, queries = _read(options, quiet)
    method = _method(options, recipe, train).fit(train)
    if options["verbose"] and not quiet:
        _explain(method, train, queries)
    with progress_bar("comparing", quiet) as progress:
        result = (
            method.attribute(queries, progress=progress, parts=options["parts"])
            if isinstance(method, NDA)
            else method.attribute(queries, progress=progress)
        )
    listed = write_run(result, queries, train, output, options["format"] or "csv") if output else None
    if options["json"]:
        click.echo(json.dumps(result.to_json(options["top"]), indent=1))
    else:
        print_table(result, options["top"])
    if output and not quiet:
        click.echo(f"written to {output}", err=True)
    if result.skipped:
        say_skipped(result.skipped, listed)
        return UNREADABLE
    return 0


def _check_usage(context: click.Context, options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    if options["format"] and not options["output"]:
        raise click.UsageError("--format says how the ranking is written to a directory: add -o DIR, or use --json")
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    only_nda = ("preset", "recipe", "draws", "flips", "parts", "engine", "threads", "device", "memory")
    unused = {"nda": (), "random": only_nda, "pixel": (*only_nda, "seed")}[options["method"]]
    for name in unused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} has no meaning for --method {options['method']}")
    try:
        parse_memory(options["memory"])
    except PatchtraceError as error:
        raise click.UsageError(str(error)) from error


def _check_output(output: Path, inputs: list[str]) -> None:
    """Refuse an output that cannot be written, or that the next run would read as part of the collection."""
    for source in map(Path, inputs):
        if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
            raise click.UsageError(f"-o {output} lies in {source}, whose images are read: choose a place outside of it")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
        pass


def _read(options: dict[str, Any], quiet: bool) -> tuple[ImageSet, ImageSet]:
    """The collection, and the queries at its size."""
    decoding = Decoding(grey=options["grey"], fit=options["fit"], crop=options["crop"], exif=options["exif"])
    common = {"decoding": decoding, "layout": options["layout"], "follow_symlinks": options["follow_symlinks"]}
    paths = list(options["train"])
    size = options["size"]
    if size is None and not has_own_size(paths):
        size = PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE
    with _about("the collection"), progress_bar("reading the collection", quiet) as progress:
        train = ImageSet.open(
            paths, size=size, key=options["train_key"], limit=options["limit"], progress=progress, **common
        )
    with _about("the queries"), progress_bar("reading the queries", quiet) as progress:
        queries = train.open_like(list(options["query"]), key=options["query_key"], progress=progress, **common)
    if not quiet:
        for remark in (*train.remarks, *queries.remarks):
            click.echo(remark, err=True)
    return train, queries


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Say in an error whose images it is about."""
    try:
        yield
    except PatchtraceError as error:
        raise PatchtraceError(f"{what}: {error}") from error


def _method(options: dict[str, Any], recipe: Recipe | None, train: ImageSet) -> Method:
    if options["method"] == "pixel":
        return PixelSimilarity()
    if options["method"] == "random":
        return RandomScores(seed=options["seed"] or 0)
    if recipe is None:
        recipe = Recipe.preset(options["preset"]) if options["preset"] else Recipe.for_size(*train.shape[1:])
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options[name] is not None}
    return NDA(
        replace(recipe, **changes),
        engine=options["engine"],
        **{name: options[name] for name in ("threads", "device", "memory")},
    )


def _explain(method: Method, train: ImageSet, queries: ImageSet) -> None:
    channels, height, width = train.shape
    click.echo(f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels", err=True)
    if isinstance(method, NDA):
        click.echo(f"{method.recipe_.note or 'recipe'}: {method.recipe_.summary()}", err=True)
