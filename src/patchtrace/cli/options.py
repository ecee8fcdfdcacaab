"""Options that several commands have, and what is done with them before the work begins."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from patchtrace.attribution import Attribution
from patchtrace.cli.common import progress_bar
from patchtrace.engines import ENGINES
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, has_own_size
from patchtrace.images.arrays import LAYOUTS
from patchtrace.images.decode import MOST_SIDE
from patchtrace.images.sources.base import recognised
from patchtrace.memory import DEFAULT_MEMORY, parse_memory


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
            help="Bring pictures to this size.  [default: 32; presets, arrays and stores have their own]",
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
            help="Fill the frame and cut the rest, or show all of the picture on white.",
        ),
        click.option(
            "--crop",
            type=click.IntRange(1),
            help="First cut a square of this side out of the middle of each image of the collection.",
        ),
        click.option(
            "--exif",
            type=click.Choice(["apply", "ignore"]),
            default="apply",
            show_default=True,
            help="Whether the EXIF orientation of a photograph is applied.",
        ),
        click.option("--follow-symlinks", is_flag=True, help="Follow links inside folders."),
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
            help="The collection: folder, store, .npz, .parquet, .tar, URL, ...; may be given several times.",
        ),
        click.option("--limit", type=click.IntRange(1), help="Use only the first N images of the collection."),
        click.option("--train-key", help="Which array of a .npz, or which column of a table, holds the collection."),
        reading_options,
    ]
)

#: How it is computed.
engine_options = several(
    [
        click.option(
            "--engine",
            type=click.Choice(["auto", *ENGINES]),
            default="auto",
            show_default=True,
            help="How it is computed; all give the same numbers. See patchtrace doctor.",
        ),
        click.option("--threads", type=click.IntRange(1), help="How many to use.  [default: all]"),
        click.option("--device", help="For the torch engine, such as cuda:1."),
        click.option("--memory", default=DEFAULT_MEMORY, show_default=True, help="Working memory to stay within."),
    ]
)


class _Draws(click.ParamType[int | str]):
    name = "N|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto":
            return "auto"
        return int(click.IntRange(1).convert(value, param, ctx))


#: How many draws of the noise.
sampling_options = several(
    [
        click.option(
            "--draws",
            type=_Draws(),
            help="Draws of the noise; auto: until the list is settled.  [default: auto; presets have their own]",
        ),
        click.option(
            "--confidence",
            type=click.FloatRange(0.5, 0.999),
            default=0.95,
            show_default=True,
            help="For auto: how much of the list must stay with any other noise.",
        ),
        click.option(
            "--most-draws",
            type=click.IntRange(2),
            default=256,
            show_default=True,
            help="For auto: no noise level has more.",
        ),
        click.option("--seconds", type=click.FloatRange(0, min_open=True), help="For auto: time for a query."),
    ]
)


def check_sampling(context: click.Context, draws: int | str) -> None:
    """Rules for stopping that would not be used are an error, not silence."""
    for name in ("confidence", "most_draws", "seconds"):
        if draws != "auto" and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} says when to stop, but the draws are {draws}: add --draws auto")


def opened_from(options: dict[str, Any]) -> dict[str, Any]:
    """Where the images of a run are, and by which options they were read: what `refine` needs to read them again."""
    where = {
        name: [str(Path(path).resolve()) if os.path.exists(path) else path for path in options[name]]
        for name in ("train", "query")
    }
    return {**where, **{name: options[name] for name in (*READING, "query_key")}}


def read_again(result: Attribution, run: Path, quiet: bool) -> tuple[ImageSet, ImageSet]:
    """Collection and queries of a saved run, from where they were."""
    opened = result.facts.get("opened")
    if opened is None:
        raise PatchtraceError(
            f"the run in {str(run)!r} does not say where its images are: only runs of `patchtrace attribute` do"
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


def decoding_options(options: dict[str, Any]) -> dict[str, Any]:
    """What ImageSet.open needs to know of the collection's options, for the collection and for queries."""
    decoding = Decoding(grey=options["grey"], fit=options["fit"], crop=options["crop"], exif=options["exif"])
    return {"decoding": decoding, "layout": options["layout"], "follow_symlinks": options["follow_symlinks"]}


def read_collection(options: dict[str, Any], default_size: int | tuple[int, int], quiet: bool) -> ImageSet:
    """The images that the collection's options name. Files come to the default size unless another is said."""
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
    """Say in an error whose images it is about."""
    try:
        yield
    except PatchtraceError as error:
        raise PatchtraceError(f"{what}: {error}") from error


def check_memory(memory: str) -> None:
    """Refuse a size that is none, as wrong usage."""
    try:
        parse_memory(memory)
    except PatchtraceError as error:
        raise click.UsageError(str(error)) from error


def check_output(output: Path, inputs: list[str]) -> None:
    """Refuse an output that cannot be written, or that the next run would read as part of the collection."""
    for source in map(Path, inputs):
        if source.is_dir() and output.resolve().is_relative_to(source.resolve()):
            raise click.UsageError(f"-o {output} lies in {source}, whose images are read: choose a place outside of it")
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):
        pass
