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

from patchtrace.attribution import Attribution, TableFormat
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, ended, note, progress_bar, table, write_run
from patchtrace.cli.kinds import COUNT, NEW_FILE, SEED, SOURCE
from patchtrace.cli.values import (
    check_method,
    check_output,
    check_outside,
    method_from,
    opened_from,
    read_pictures,
    recipe_for,
    seconds_from,
)
from patchtrace.nda.checkpoint import cache
from patchtrace.nda.pace import Clock
from patchtrace.viewer.data import ATTRIBUTION, look_closer
from patchtrace.viewer.report import make_report

#: Where a run keeps unfinished work, inside its output directory.
UNFINISHED = "unfinished"


@click.command()
@click.argument("query", nargs=-1, required=True, type=SOURCE)
@opts.collection
@opts.latents
@opts.method
@opts.recipe
@click.option("--top", type=COUNT, default=10, help="Number of images to show.")
@opts.output("Directory for all results.")
@click.option(
    "--format",
    type=click.Choice(get_args(TableFormat)),
    help="Format of the ranking in the output directory.  [default: csv]",
)
@click.option(
    "--report", type=NEW_FILE, help="File for a self-contained HTML report; with several queries, one file for each."
)
@opts.draws
@opts.flips
@click.option("--seed", type=SEED, help="Noise seed, or seed of random scores.")
@click.option("--parts", is_flag=True, help="Also save the contribution of each level and scale to the scores.")
@opts.compute
@click.option(
    "--cluster", metavar="ADDRESS|local:N", help="Compare on the workers of a dask scheduler, or in N local processes."
)
@click.option(
    "--shortlist",
    type=COUNT,
    metavar="N",
    help="Number of images to score exactly, after a coarse pass over all of them; approximate, for huge collections.",
)
@opts.query_key
@opts.json
@click.option("--json-lines", is_flag=True, help="Print a line of JSON whenever more is known of a query.")
@opts.quiet
@click.option("-v", "--verbose", is_flag=True, help="Also print the number and size of the images, and the recipe.")
@click.pass_context
def attribute(context: click.Context, /, **options: Any) -> int:
    """Rank the images of a collection by how much a QUERY picture resembles them.

    QUERY is an image, a folder, or anything else that --train accepts; several may be given.

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

    With -o, the same command resumes a run that was stopped or killed. A report of nda explains the ranking patch by
    patch; a report of another method shows the ranking.

    The share of an image is the part of the query's patches that it accounts for. It says how much the query
    resembles that image compared with the rest of the collection, not that it was copied.
    """
    # errors in the options are found before the first image is read
    if options["shortlist"] and options["method"] == "nda":
        options["method"] = "nda-shortlist"
    _check_usage(options)
    recipe, compute = check_method(context, options)
    output, quiet = options["output"], options["quiet"]
    if output:
        check_output(output, *options["train"], *options["query"])
    train, queries = read_pictures(options)
    recipe, reports = recipe_for(recipe, options, train), _reports(options["report"], len(queries))
    part = ATTRIBUTION if reports else 1.0
    method = method_from(options, train, recipe, part=part, checkpoint=output and output / UNFINISHED)
    limit = seconds_from(options, recipe)
    clock = Clock(limit and limit * len(queries))
    if options["verbose"]:
        channels, height, width = train.shape
        size = f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels"
        note(size, method.describe() or options["method"], quiet=quiet)
    with progress_bar("comparing", quiet) as progress:
        # a table appears as soon as something is known of its query, JSON is one piece
        if not options["json"]:
            progress.table = partial(_line if options["json_lines"] else table, top=options["top"])
            progress.stream = options["json_lines"]
        try:
            result = method.attribute(queries, progress=progress)
        except KeyboardInterrupt:
            if progress.interrupted() and output:
                note("interrupted: the same command resumes", quiet=quiet)
            raise
        if not progress.shown:  # the method has one result for all queries
            progress.finished(result)
    result = replace(result, facts={**result.facts, "opened": opened_from(options)})
    listed = None
    if output:
        listed = write_run(result, queries, train, output, options["format"] or "csv")
        cache(output / UNFINISHED).clear()
    for query, path in enumerate(reports):
        with progress_bar("looking closer", quiet) as progress:
            command = shlex.join(["patchtrace", *sys.argv[1:]])
            seconds = limit and max(0.0, clock.left) / (len(reports) - query)
            answer = look_closer(
                result, queries, train, query, compute=compute, command=command, seconds=seconds, progress=progress
            )
            make_report(path, answer)
        note(f"written to {path}", quiet=quiet)
    if options["json"]:
        echo_json(result.to_json(options["top"]))
    return ended(output, result.skipped, listed, quiet=quiet)


def _check_usage(options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["format"] and not options["output"]:
        raise click.UsageError(
            "--format is the format of the ranking in the output directory: add -o DIR, or use --json"
        )
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    if options["json"] and options["json_lines"]:
        raise click.UsageError("--json and --json-lines are two formats of one output: use one of them")
    if options["method"] == "nda-shortlist" and options["parts"]:
        raise click.UsageError(
            "--parts requires an exact comparison with all images, --shortlist is approximate: use one of them"
        )
    report: Path | None = options["report"]
    if report:
        check_outside("--report", report, options["train"])
        if not report.resolve().parent.is_dir():
            raise click.UsageError(f"--report {report}: there is no such directory, create it first")


def _line(result: Attribution, top: int) -> list[str]:
    """A result as one line of JSON."""
    whole = result.to_json(top)
    ended = whole["nda"] and whole["nda"]["ended"][0]
    return [json.dumps({"method": whole["method"], "ended": ended, **query}) for query in whole["queries"]]


def _reports(path: Path | None, queries: int) -> list[Path]:
    """Where the page of each query goes."""
    if path is None or queries == 1:
        return [path] if path else []
    return [path.with_stem(f"{path.stem}-{number}") for number in range(1, queries + 1)]
