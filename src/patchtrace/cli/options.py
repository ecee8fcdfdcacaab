"""Options that several commands have, and what is done with them before the work begins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from patchtrace.attribution import Attribution
from patchtrace.cli.common import progress_bar
from patchtrace.compute import DEFAULT_MEMORY, Compute
from patchtrace.engines import engine_names
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, has_own_size
from patchtrace.images.arrays import LAYOUTS
from patchtrace.images.decode import MOST_SIDE
from patchtrace.images.sources.base import recognised
from patchtrace.methods import METHODS, Resources
from patchtrace.recipe import DEFAULT_SIZE, PRESET_SIZES, PRESETS, Recipe, Stopping


class SourceType(click.ParamType[str]):
    """A path that exists, or anything else that a source of images recognises, such as a URL."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if os.path.exists(value):
            return str(click.Path(exists=True).convert(value, param, ctx))
        if not value or not recognised(value):
            self.fail(f"there is nothing at {value!r}: give a folder, an image, a data file or a URL", param, ctx)
        return str(value)


SOURCE = SourceType()
F = TypeVar("F", bound=Callable[..., Any])

#: Fields that methods name, with their options where these have other names.
OPTIONS_OF = {"recipe": ("preset", "recipe"), "stopping": ("confidence", "most_draws", "seconds"), "checkpoint": ()}

#: The options that decide, with the paths, which pixels a collection has.
READING = ("size", "limit", "train_key", "layout", "grey", "fit", "crop", "exif", "follow_symlinks")


def parse_size(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """A side such as 32, or height x width such as 48x64."""
    if value is None:
        return None
    height, cross, width = str(value).lower().partition("x")
    try:
        size = int(height), int(width if cross else height)
    except ValueError:
        size = 0, 0
    if not all(1 <= side <= MOST_SIDE for side in size):
        raise click.BadParameter(
            f"{value!r} is not a size: use a side from 1 to {MOST_SIDE} such as 32, or height x width such as 48x64",
            param=parameter,
        )
    return size


def several(options: list[Callable[[F], F]]) -> Callable[[F], F]:
    """One decorator out of many options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


#: How images become pixels.
reading_options = several(
    [
        click.option(
            "--size",
            metavar="N|HxW",
            callback=parse_size,
            help="Resize pictures to this size.  [default: 32; presets, arrays and stores have their own]",
        ),
        click.option(
            "--layout", type=click.Choice(list(LAYOUTS)), help="Layout of arrays that can be read in more than one way."
        ),
        click.option("--grey", is_flag=True, help="Convert to greyscale."),
        click.option(
            "--fit",
            type=click.Choice(["cover", "pad"]),
            default="cover",
            show_default=True,
            help="Fill the frame and crop the rest, or keep the whole picture and pad with white.",
        ),
        click.option(
            "--crop",
            type=click.IntRange(1),
            help="Crop a square of this side out of the middle of each image of the collection first.",
        ),
        click.option(
            "--exif",
            type=click.Choice(["apply", "ignore"]),
            default="apply",
            show_default=True,
            help="Apply or ignore the EXIF orientation of photographs.",
        ),
        click.option("--follow-symlinks", is_flag=True, help="Follow symbolic links inside folders."),
    ]
)

#: Which images make up the collection, and how they become pixels.
collection_options = several(
    [
        click.option(
            "--train",
            required=True,
            multiple=True,
            type=SOURCE,
            help="Collection: folder, store, .npz, .parquet, .tar, URL, ...; may be given several times.",
        ),
        click.option("--limit", type=click.IntRange(1), help="Use only the first N images of the collection."),
        click.option("--train-key", help="Array of a .npz, or column of a table, that holds the collection."),
        reading_options,
    ]
)


class Registered(click.ParamType[str]):
    """A name out of a registry. It is looked up when the command runs, so that plugins are found."""

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return f"[{'|'.join(self.names())}]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in (known := list(self.names())):
            self.fail(f"{value!r} is not one of {', '.join(map(repr, known))}.", param, ctx)
        return str(value)


#: Engine, threads, device and memory.
compute_options = several(
    [
        click.option(
            "--engine",
            type=Registered(lambda: ["auto", *engine_names()]),
            default="auto",
            show_default=True,
            help="Engine; all give the same numbers (see patchtrace doctor).",
        ),
        click.option("--threads", type=click.IntRange(1), help="Number of threads.  [default: all]"),
        click.option("--device", help="PyTorch device, such as cuda:1."),
        click.option("--memory", default=DEFAULT_MEMORY, show_default=True, help="Limit of working memory."),
    ]
)

#: Which method, and what methods other than NDA need.
method_options = several(
    [
        click.option(
            "--method", type=Registered(lambda: METHODS), default="nda", show_default=True, help="Attribution method."
        ),
        click.option(
            "--model",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Diffusion model trained on the collection, for methods that require one.",
        ),
        click.option(
            "--encoder",
            help="Encoder of embeddings: efficientnet-lite0, clip or clip:DIR.  [default: efficientnet-lite0]",
        ),
        click.option(
            "--lam", type=click.FloatRange(0, min_open=True), help="Ridge (lambda) of trak and dtrak.  [default: 1]"
        ),
    ]
)

#: What NDA compares.
recipe_options = several(
    [
        click.option("--preset", type=click.Choice(list(PRESETS)), help="Shipped recipe.  [default: by size]"),
        click.option("--recipe", type=click.Path(exists=True, dir_okay=False), help="Recipe file (TOML)."),
    ]
)


quiet_option = click.option("-q", "--quiet", is_flag=True, help="Print only results and errors.")


def directory_option(*names: str, help: str, required: bool = False) -> Callable[[F], F]:
    """An option that takes a directory, which need not exist."""
    return click.option(*names, required=required, type=click.Path(file_okay=False, path_type=Path), help=help)


class _Draws(click.ParamType[int | str]):
    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto":
            return "auto"
        return int(click.IntRange(1).convert(value, param, ctx))


#: How many draws of the noise.
draws_options = several(
    [
        click.option(
            "--draws",
            type=_Draws(),
            help="Number of noise draws; auto: until the list is settled.  [default: auto; presets have their own]",
        ),
        click.option(
            "--confidence",
            type=click.FloatRange(0.5, 0.999),
            default=0.95,
            show_default=True,
            help="Fraction of the list that must stay the same with any other noise, for --draws auto.",
        ),
        click.option(
            "--most-draws",
            type=click.IntRange(2),
            default=256,
            show_default=True,
            help="Draw limit of each noise level, for --draws auto.",
        ),
        click.option(
            "--seconds", type=click.FloatRange(0, min_open=True), help="Time limit for a query, for --draws auto."
        ),
    ]
)


#: Options about when draws are enough.
STOPPING = ("confidence", "most_draws", "seconds")


def flag(name: str) -> str:
    """An option as it is typed: ``--most-draws``."""
    return f"--{name.replace('_', '-')}"


def given(context: click.Context, name: str) -> bool:
    """Whether an option is on the command line."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def chosen_recipe(context: click.Context, options: dict[str, Any]) -> Recipe | None:
    """The recipe that --preset or --recipe names, if any. Stopping rules that would not be used are an error."""
    recipe = recipe_from(options)
    check_stopping(context, options["draws"] or (recipe.draws if recipe else "auto"))
    return recipe


def check_stopping(context: click.Context, draws: int | str) -> None:
    """Refuse stopping rules that would not be used."""
    for name in STOPPING:
        if draws != "auto" and given(context, name):
            raise click.UsageError(
                f"{flag(name)} is a limit of --draws auto, but the number of draws is {draws}: add --draws auto"
            )


def recipe_for(recipe: Recipe | None, options: dict[str, Any], train: ImageSet) -> Recipe:
    """The recipe, or the one for the size of the images, with the changes that options make to it."""
    recipe = recipe or replace(Recipe.for_size(*train.shape[1:]), draws="auto")
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options.get(name) is not None}
    return replace(recipe, **changes)


def compute_from(options: dict[str, Any]) -> Compute:
    """The Compute that the options describe; invalid values are usage errors."""
    try:
        return Compute(**{field.name: options[field.name] for field in fields(Compute) if field.name in options})
    except PatchtraceError as error:
        raise click.UsageError(str(error)) from error


def stopping_from(options: dict[str, Any], top: int | None = None) -> Stopping:
    """The Stopping that the options describe."""
    return Stopping(top=top or options["top"], **{name: options[name] for name in STOPPING})


def resources_from(
    options: dict[str, Any], train: ImageSet, recipe: Recipe | None, compute: Compute, **more: Any
) -> Resources:
    """The Resources that the options describe."""
    names = ("model", "encoder", "lam", "seed", "draws")
    configured = {name: options[name] for name in names if options.get(name) is not None}
    return Resources(
        train=train,
        compute=compute,
        recipe=recipe_for(recipe, options, train),
        stopping=stopping_from(options),
        **(configured | more),
    )


def check_method_options(context: click.Context, method: str) -> None:
    """Refuse options that the method does not use."""
    used = METHODS[method][0].options
    for name in {option for kind, _ in METHODS.values() for option in kind.options} - used:
        for option in OPTIONS_OF.get(name, (name,)):
            if given(context, option):
                raise click.UsageError(f"{flag(option)} has no meaning for --method {method}")
    if "recipe" not in used and context.params.get("draws") == "auto":
        raise click.UsageError(f"--draws auto has no meaning for --method {method}: give a number")


def opened_from(options: dict[str, Any]) -> dict[str, Any]:
    """Where the images of a run are, and by which options they were read: what `refine` needs to read them again."""
    where = {
        name: [str(Path(path).resolve()) if os.path.exists(path) else path for path in options[name]]
        for name in ("train", "query")
    }
    return {**where, **{name: options[name] for name in (*READING, "query_key")}}


def read_again(result: Attribution, run: Path, quiet: bool) -> tuple[ImageSet, ImageSet]:
    """Collection and queries of a saved run, read again."""
    opened = result.facts.get("opened")
    if opened is None:
        raise PatchtraceError(
            f"the run in {str(run)!r} does not record where its images are: use a run of `patchtrace attribute`"
        )
    train = read_collection(opened, tuple(result.facts["train"]["shape"][1:]), quiet)
    return train, read_queries(opened, train, quiet)


def read_queries(options: dict[str, Any], train: ImageSet, quiet: bool) -> ImageSet:
    """The queries that the options name, at the size of the collection."""
    with about("the queries"), progress_bar("reading the queries", quiet) as progress:
        queries = train.open_like(
            list(options["query"]), key=options["query_key"], progress=progress, **decoding_options(options)
        )
    if not quiet:
        for remark in queries.remarks:
            click.echo(remark, err=True)
    return queries


def recipe_from(options: dict[str, Any]) -> Recipe | None:
    """The recipe that --preset or --recipe names, if any."""
    if options["preset"] and options["recipe"]:
        raise click.UsageError("--preset and --recipe both name a recipe: use one of them")
    if options["preset"]:
        return Recipe.preset(options["preset"])
    return Recipe.load(options["recipe"]) if options["recipe"] else None


def default_size(options: dict[str, Any]) -> int:
    """The size of pictures for which --preset is made, or the usual one."""
    return PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE


def decoding_options(options: dict[str, Any]) -> dict[str, Any]:
    """What ImageSet.open needs to know of the collection's options, for the collection and for queries."""
    decoding = Decoding(grey=options["grey"], fit=options["fit"], crop=options["crop"], exif=options["exif"])
    return {"decoding": decoding, "layout": options["layout"], "follow_symlinks": options["follow_symlinks"]}


def read_collection(options: dict[str, Any], default_size: int | tuple[int, int], quiet: bool) -> ImageSet:
    """The images that the collection's options name. Files are resized to the default size unless --size is given."""
    paths = list(options["train"])
    size = options["size"]
    if size is None and not has_own_size(paths):
        size = default_size
    with about("the collection"), progress_bar("reading the collection", quiet) as progress:
        train = ImageSet.open(
            paths,
            size=size,
            key=options["train_key"],
            limit=options["limit"],
            progress=progress,
            **decoding_options(options),
        )
    if not quiet:
        for remark in train.remarks:
            click.echo(remark, err=True)
    return train


@contextmanager
def about(what: str) -> Iterator[None]:
    """Add to an error which images it is about."""
    try:
        yield
    except PatchtraceError as error:
        raise PatchtraceError(f"{what}: {error}") from error


def check_output(output: Path, inputs: list[str]) -> None:
    """Refuse an output that cannot be written, or that the next run would read as part of the collection."""
    for source in map(Path, inputs):
        if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
            raise click.UsageError(f"-o {output} lies in {source}, whose images are read: choose a place outside of it")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
        pass
