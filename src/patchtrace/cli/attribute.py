"""patchtrace attribute: the main job."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click

from patchtrace.attribution import TableFormat
from patchtrace.cli.common import print_table, progress_bar, report_skipped, write_run
from patchtrace.cli.options import (
    SOURCE,
    check_method_options,
    check_output,
    chosen_recipe,
    collection_options,
    compute_from,
    compute_options,
    directory_option,
    draws_options,
    method_options,
    opened_from,
    quiet_option,
    read_collection,
    read_queries,
    recipe_options,
    resources_from,
)
from patchtrace.methods import make_method
from patchtrace.nda.checkpoint import cache
from patchtrace.recipe import DEFAULT_SIZE, PRESET_SIZES
from patchtrace.viewer.data import look_closer
from patchtrace.viewer.report import make_report

#: Where a run keeps unfinished work, inside its output directory.
UNFINISHED = "unfinished"


@click.command()
@click.argument("query", nargs=-1, required=True, type=SOURCE)
@collection_options
@method_options
@recipe_options
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Number of images to show.")
@directory_option("-o", "--output", help="Directory for all results.")
@click.option(
    "--format",
    type=click.Choice(get_args(TableFormat)),
    help="Format of the ranking in the output directory.  [default: csv]",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for a report (HTML, self-contained); with several queries, one file each.",
)
@draws_options
@click.option("--flips/--no-flips", default=None, help="Also compare with mirrored training images.")
@click.option("--seed", type=click.IntRange(0), help="Noise seed, or seed of random scores.")
@click.option("--parts", is_flag=True, help="Also save what each level and scale adds to the scores.")
@compute_options
@click.option(
    "--cluster", metavar="ADDRESS|local:N", help="Compare on the workers of a dask scheduler, or in N local processes."
)
@click.option(
    "--shortlist",
    type=click.IntRange(1),
    metavar="N",
    help="Number of images to score exactly, after a coarse pass over all of them; approximate, for huge collections.",
)
@click.option("--query-key", help="Array of a .npz, or column of a table, that holds the queries.")
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@quiet_option
@click.option("-v", "--verbose", is_flag=True, help="Also print the number and size of the images, and the recipe.")
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
      patchtrace attribute query.png --train photos/ --method embedding
      patchtrace attribute generated/ --train photos/ --method dtrak --model model/ -o run/
      patchtrace attribute generated.npz --train cifar-10-batches-py/ --json
      patchtrace attribute generated/ --train photos.store -o run/ --cluster tcp://host:8786
      patchtrace attribute q.png --train millions.store --shortlist 5000
      patchtrace attribute q.png --train shard.parquet --train-key image --format parquet -o run/

    With -o, the same command resumes a run that was stopped or killed.

    The share of an image is the part of the query's patches that it accounts for. It says how much the query
    resembles that image compared with the rest of the collection, not that it was copied.
    """
    # errors in the options are found before the first image is read
    if options["shortlist"] and options["method"] == "nda":
        options["method"] = "nda-shortlist"
    _check_usage(context, options)
    recipe, compute = chosen_recipe(context, options), compute_from(options)
    output, quiet = options["output"], options["quiet"]
    if output:
        check_output(output, [*options["train"], *options["query"]])
    train = read_collection(options, PRESET_SIZES.get(options["preset"], DEFAULT_SIZE), quiet)
    queries = read_queries(options, train, quiet)
    resources = resources_from(
        options,
        train,
        recipe,
        compute,
        shortlist=options["shortlist"],
        parts=options["parts"],
        checkpoint=output and output / UNFINISHED,
    )
    method = make_method(options["method"], resources).fit(train)
    if options["verbose"] and not quiet:
        channels, height, width = train.shape
        click.echo(f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels", err=True)
        click.echo(method.describe() or options["method"], err=True)
    with progress_bar("comparing", quiet) as progress:
        # a table appears as soon as its query is done, JSON is one piece
        progress.show = None if options["json"] else partial(print_table, top=options["top"])
        result = method.attribute(queries, progress=progress)
        if not progress.shown:  # the method has one result for all queries
            progress.finished(result)
    result = replace(result, facts={**result.facts, "opened": opened_from(options)})
    listed = None
    if output:
        listed = write_run(result, queries, train, output, options["format"] or "csv")
        cache(output / UNFINISHED).clear()
    for query, path in enumerate(_reports(options["report"], len(queries))):
        with progress_bar("looking closer", quiet) as progress:
            command = shlex.join(["patchtrace", *sys.argv[1:]])
            answer = look_closer(result, queries, train, query, compute=compute, command=command, progress=progress)
            make_report(path, answer)
        if not quiet:
            click.echo(f"written to {path}", err=True)
    if options["json"]:
        click.echo(json.dumps(result.to_json(options["top"]), indent=1))
    if output and not quiet:
        click.echo(f"written to {output}", err=True)
    return report_skipped(result.skipped, listed)


def _check_usage(context: click.Context, options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["format"] and not options["output"]:
        raise click.UsageError(
            "--format is the format of the ranking in the output directory: add -o DIR, or use --json"
        )
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    for name in ("parts", "report"):
        if options["shortlist"] and options[name]:
            raise click.UsageError(
                f"--{name} requires an exact comparison with all images, --shortlist is approximate: use one of them"
            )
    check_method_options(context, options["method"])
    report: Path | None = options["report"]
    if report:
        if options["method"] != "nda":
            raise click.UsageError(
                f"--report shows patches, which --method {options['method']} does not compare: use --method nda"
            )
        for source in map(Path, options["train"]):
            if source.is_dir() and report.resolve().is_relative_to(source.resolve()):
                raise click.UsageError(
                    f"--report {report} lies in {source}, whose images are read: choose a place outside of it"
                )
        if not report.resolve().parent.is_dir():
            raise click.UsageError(f"--report {report}: there is no such directory, create it first")


def _reports(path: Path | None, queries: int) -> list[Path]:
    """Where the page of each query goes."""
    if path is None or queries == 1:
        return [path] if path else []
    return [path.with_stem(f"{path.stem}-{number}") for number in range(1, queries + 1)]
