"""patchtrace attribute: the main job."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from patchtrace.attribution import Attribution
from patchtrace.cli.common import UNREADABLE, print_table, progress_bar, say_skipped, write_skipped
from patchtrace.engines import ENGINES
from patchtrace.files import replacing
from patchtrace.images import Decoding, ImageSet, has_own_size
from patchtrace.methods import DEFAULT_SIZE, NDA, Method, PixelSimilarity, RandomScores
from patchtrace.methods.nda import DEFAULT_MEMORY
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe
from patchtrace.sheet import contact_sheet


class Size(click.ParamType[Any]):
    """A side, or height x width."""

    name = "N|HxW"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        height, cross, width = str(value).lower().partition("x")
        try:
            return int(height), int(width if cross else height)
        except ValueError:
            self.fail(f"{value!r} is not a size: use a side such as 32, or height x width such as 48x64", param, ctx)


@click.command()
@click.argument("query", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--train", required=True, type=click.Path(exists=True), help="The collection: folder, .npz, .parquet, .tar, ..."
)
@click.option("--preset", type=click.Choice(list(PRESETS)), help="A shipped recipe.  [default: by size]")
@click.option("--recipe", "recipe_file", type=click.Path(exists=True, dir_okay=False), help="A recipe in TOML.")
@click.option("--method", type=click.Choice(["nda", "pixel", "random"]), default="nda", show_default=True)
@click.option(
    "--size", type=Size(), help="Bring pictures to this size.  [default: 32, or the preset's; arrays keep theirs]"
)
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="How many images to show.")
@click.option(
    "-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Write everything to this directory."
)
@click.option(
    "--format",
    "table",
    type=click.Choice(["csv", "json", "parquet"]),
    help="Of the ranking in the output directory.  [default: csv]",
)
@click.option("--draws", type=click.IntRange(1), help="Noise samples to average; more give a steadier list.")
@click.option("--flips/--no-flips", default=None, help="Also compare with mirrored training images.")
@click.option("--seed", type=click.IntRange(0), help="Of the noise, or of random scores.")
@click.option("--parts", is_flag=True, help="Also keep what each level and scale adds.")
@click.option("--engine", type=click.Choice(["auto", *ENGINES]), default="auto", show_default=True)
@click.option("--memory", default=DEFAULT_MEMORY, show_default=True, help="Working memory to stay within.")
@click.option("--limit", type=click.IntRange(1), help="Use only the first N images of the collection.")
@click.option("--train-key", help="Which array of a .npz, or which column of a table, holds the collection.")
@click.option("--query-key", help="The same for the queries.")
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
@click.option("-v", "--verbose", is_flag=True, help="Also say what is done and how.")
def attribute(**options: Any) -> int:
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
    _check(options)
    quiet, output = options["quiet"], options["output"]
    decoding = Decoding(grey=options["grey"], fit=options["fit"], crop=options["crop"], exif=options["exif"])
    if output:
        output.mkdir(parents=True, exist_ok=True)  # or a run of hours would end in an error
    with progress_bar("reading the collection", quiet) as progress:
        train = ImageSet.open(
            options["train"],
            size=options["size"] or _default_size(options),
            key=options["train_key"],
            decoding=decoding,
            follow_symlinks=options["follow_symlinks"],
            limit=options["limit"],
            progress=progress,
        )
    method = _method(options, train).fit(train)
    with progress_bar("reading the queries", quiet) as progress:
        paths, key = list(options["query"]), options["query_key"]
        queries = train.open_like(paths, key=key, decoding=decoding, progress=progress)
    if not quiet:
        for remark in (*train.remarks, *queries.remarks):
            click.echo(remark, err=True)
    if options["verbose"]:
        _explain(method, train, queries)
    with progress_bar("comparing", quiet) as progress:
        result = (
            method.attribute(queries, progress=progress, parts=options["parts"])
            if isinstance(method, NDA)
            else method.attribute(queries, progress=progress)
        )
    listed = _write(result, queries, train, output, options["table"] or "csv") if output else None
    if options["as_json"]:
        click.echo(json.dumps(result.to_json(options["top"]), indent=1))
    else:
        print_table(result, options["top"])
    if output and not quiet:
        click.echo(f"written to {output}", err=True)
    if result.skipped:
        say_skipped(result.skipped, listed)
        return UNREADABLE
    return 0


def _default_size(options: dict[str, Any]) -> int | None:
    if has_own_size(options["train"]):
        return None
    return PRESET_SIZES[options["preset"]] if options["preset"] else DEFAULT_SIZE


def _check(options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["preset"] and options["recipe_file"]:
        raise click.UsageError("--preset and --recipe both say what to compare: use one of them")
    if options["table"] and not options["output"]:
        raise click.UsageError("--format says how the ranking is written to a directory: add -o DIR, or use --json")
    if options["table"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    method = options["method"]
    users = {
        "preset": "nda",
        "recipe_file": "nda",
        "draws": "nda",
        "flips": "nda",
        "parts": "nda",
        "seed": "nda random",
    }
    for name, methods in users.items():
        if options[name] not in (None, False) and method not in methods.split():
            flag = "recipe" if name == "recipe_file" else name
            raise click.UsageError(f"--{flag} has no meaning for --method {method}")


def _method(options: dict[str, Any], train: ImageSet) -> Method:
    if options["method"] == "pixel":
        return PixelSimilarity()
    if options["method"] == "random":
        return RandomScores(seed=options["seed"] or 0)
    if options["preset"]:
        recipe = Recipe.preset(options["preset"])
    elif options["recipe_file"]:
        recipe = Recipe.load(options["recipe_file"])
    else:
        recipe = Recipe.for_size(*train.shape[1:])
    changes = {name: options[name] for name in ("draws", "flips", "seed") if options[name] is not None}
    return NDA(replace(recipe, **changes), engine=options["engine"], memory=options["memory"])


def _explain(method: Method, train: ImageSet, queries: ImageSet) -> None:
    channels, height, width = train.shape
    click.echo(f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels", err=True)
    if isinstance(method, NDA):
        click.echo(f"{method.recipe_.note or 'recipe'}: {method.recipe_.summary()}", err=True)


def _write(result: Attribution, queries: ImageSet, train: ImageSet, output: Path, table: str) -> Path | None:
    """Everything about the run; returns the list of unreadable images, if there is one."""
    result.save(output)
    result.export(output / f"ranking.{table}")
    if "recipe" in result.settings:
        with replacing(output / "recipe.toml") as temporary:
            temporary.write_text(Recipe.from_dict(result.settings["recipe"]).to_toml(), encoding="utf-8")
    with replacing(output / "sheet.png") as temporary:
        contact_sheet(result, queries, train).save(temporary, format="PNG")
    if not result.skipped:
        return None
    write_skipped(result.skipped, output / "skipped.csv")
    return output / "skipped.csv"
