"""patchtrace attribute: the main job."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import click
from click.core import ParameterSource

from patchtrace.attribution import Attribution, TableFormat
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, ended, note, note_rows, progress_bar, table, write_run
from patchtrace.cli.evidence import HINT, Judging, check_evidence, null_from, null_of_members
from patchtrace.cli.groups import group_lines, write_groups
from patchtrace.cli.kinds import COUNT, NEW_FILE, SEED, SOURCE, Choice
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
from patchtrace.cli.verdicts import with_verdicts
from patchtrace.methods import METHODS
from patchtrace.nda.checkpoint import cache
from patchtrace.nda.pace import Clock
from patchtrace.null.groups import groups_of, labels_of_set
from patchtrace.viewer.data import ATTRIBUTION, look_closer
from patchtrace.viewer.report import index_entry, make_report, report_paths, write_index

#: Where a run keeps unfinished work, inside its output directory.
UNFINISHED = "unfinished"


@opts.command()
@click.argument("query", nargs=-1, required=True, type=SOURCE)
@opts.collection
@opts.latents
@opts.method
@opts.recipe
@opts.under(
    opts.RESULTS,
    click.option("--top", type=COUNT, default=10, help="Number of images to show."),
    opts.output("Directory for all results."),
    click.option(
        "--format",
        type=Choice(get_args(TableFormat)),
        help="Format of the ranking in the output directory.  [default: csv]",
    ),
    opts.rows,
    click.option(
        "--report",
        type=NEW_FILE,
        help="File for a self-contained HTML report; with several queries, for a page that links to a report of each.",
    ),
    opts.json,
    click.option("--json-lines", is_flag=True, help="Print a line of JSON whenever more is known of a query."),
)
@opts.draws
@opts.views
@opts.under(
    opts.METHOD,
    click.option("--seed", type=SEED, help="Noise seed, or seed of random scores."),
    click.option(
        "--shortlist",
        type=COUNT,
        metavar="N",
        help="Number of images to score exactly, after a coarse pass over all; approximate, for huge collections.",
    ),
    click.option("--parts", is_flag=True, help="Also save the contribution of each level and scale to the scores."),
)
@opts.verdicts
@opts.compute
@opts.under(
    opts.COMPUTATION,
    click.option(
        "--cluster",
        metavar="ADDRESS|local:N",
        help="Compare on the workers of a dask scheduler, or in N local processes.",
    ),
)
@opts.query_key
@opts.shrink
@opts.null
@opts.leave_one_out
@opts.controls
@opts.control_key
@opts.decoys
@opts.rate
@opts.group_by
@opts.quiet
@opts.verbose
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
      patchtrace attribute query.png --train photos/ --controls others/
      patchtrace attribute query.png --train photos/ --decoys others/
      patchtrace attribute crop.png --train photos/ --shrink 1.5,3
      patchtrace attribute query.png --train photos/ --method embedding
      patchtrace attribute generated/ --train photos/ --method dtrak --model model/ -o run/
      patchtrace attribute generated.npz --train cifar-10-batches-py/ --json
      patchtrace attribute generated/ --train photos.store -o run/ --cluster tcp://host:8786
      patchtrace attribute q.png --train millions.store --shortlist 5000
      patchtrace attribute q.png --train shard.parquet --train-key image --format parquet -o run/

    With -o, the same command resumes a run that was stopped or killed. A report of nda explains the ranking patch by
    patch; a report of another method shows the ranking.

    The share of an image is the part of the query's patches that it accounts for. It says how much the query
    resembles that image compared with the rest of the collection, not that it was copied. Below the ranking stands
    which of the first images are the same picture, a changed copy, or have a part in common with the query.
    """
    # errors in the options are found before the first image is read
    if options["shortlist"] and options["method"] == "nda":
        options["method"] = "nda-shortlist"
    _check_usage(options)
    check_evidence(options)
    recipe, compute = check_method(context, options)
    output, quiet = options["output"], options["quiet"]
    if output:
        check_output(output, *options["train"], *options["query"])
    train, queries = read_pictures(options)
    (null, unreadable), labels = null_from(options, train), labels_of_set(train, options["group_by"])
    recipe, reports = recipe_for(recipe, options, train), _reports(options["report"], queries.ids)
    part = ATTRIBUTION if reports else 1.0
    method = method_from(options, train, recipe, part=part, checkpoint=output and output / UNFINISHED)
    limit = seconds_from(options, recipe)
    if null is None:
        null = null_of_members(options, train, limit and limit * len(queries))
    clock = Clock(limit and limit * len(queries))
    if options["verbose"]:
        channels, height, width = train.shape
        size = f"{len(queries)} queries, {len(train)} images, {height} x {width}, {channels} channels"
        note(size, method.describe() or options["method"], quiet=quiet)
    with progress_bar("comparing", quiet) as progress:
        # a table appears as soon as something is known of its query, JSON is one piece
        if not options["json"]:
            progress.table = partial(_line if options["json_lines"] else _table, top=options["top"], labels=labels)
            progress.stream = options["json_lines"]
        watch = progress if null is None else Judging(progress, null, queries, train, options["rate"], labels)
        try:
            result = method.attribute(queries, progress=watch)
        except KeyboardInterrupt:
            if progress.interrupted() and output:
                note("interrupted: the same command resumes", quiet=quiet)
            raise
        if not watch.shown:  # the method has one result for all queries
            watch.finished(result)
        if isinstance(watch, Judging):
            result = watch.judged(result)
    facts = {**result.facts, "opened": opened_from(options)}
    result = replace(result, facts=facts, skipped=(*result.skipped, *unreadable))
    if options["verdicts"]:
        silent = options["json"] or options["json_lines"]
        result = with_verdicts(result, queries, train, options["top"], compute, quiet=quiet, silent=silent)
    listed = None
    if output:
        listed = write_run(result, queries, train, output, options["format"] or "csv", rows=options["rows"])
        note_rows(result, output, options["rows"], quiet=quiet)
        if labels:
            write_groups(result, labels, output / "groups.csv")
        cache(output / UNFINISHED).clear()
    entries = []
    for query, path in enumerate(reports):
        with progress_bar("looking closer", quiet) as progress:
            command = shlex.join(["patchtrace", *sys.argv[1:]])
            seconds = limit and max(0.0, clock.left) / (len(reports) - query)
            answer = look_closer(
                result, queries, train, query, compute=compute, command=command, seconds=seconds, progress=progress
            )
            make_report(path, answer)
        entries.append(index_entry(path, answer))
        note(f"written to {path}", quiet=quiet)
    if len(reports) > 1:
        note(f"written to {write_index(options['report'], entries)}, with links to them", quiet=quiet)
    if options["json"]:
        echo_json(_with_groups(result, options["top"], labels))
    if result.null is not None:
        note(*result.null.sentences_of_all(), quiet=quiet)
    elif result.has_shares:
        note(HINT, quiet=quiet)
    return ended(output, result.skipped, listed, quiet=quiet)


def _check_usage(options: dict[str, Any]) -> None:
    """An option that would not be used is an error, not silence."""
    if options["format"] and not options["output"]:
        raise click.UsageError(
            "--format is the format of the ranking in the output directory: add -o DIR, or use --json"
        )
    given = click.get_current_context().get_parameter_source("rows") == ParameterSource.COMMANDLINE
    if given and not options["output"]:
        raise click.UsageError(
            "--rows is for the ranking in the output directory: add -o DIR, or use --top for the table"
        )
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise click.UsageError("Parquet needs pyarrow: install it with  pip install 'patchtrace[parquet]'")
    for option, does in (("group_by", "adds up"), ("decoys", "take a part of the")):
        if options[option] and not METHODS[options["method"]][0].name.startswith("nda"):
            name = f"--{option.replace('_', '-')}"
            raise click.UsageError(f"{name} {does} shares, and --method {options['method']} has none")
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


def _table(result: Attribution, top: int, labels: tuple[str, ...]) -> list[str]:
    """A result as a table, and its groups as another."""
    lines = table(result, top)
    for query in range(len(result.query_ids) if labels else 0):
        lines += group_lines(groups_of(result, labels, query), top)
    return lines


def _with_groups(result: Attribution, top: int, labels: tuple[str, ...]) -> dict[str, Any]:
    """A result as plain data, with its groups."""
    whole = result.to_json(top)
    for number, query in enumerate(whole["queries"] if labels else []):
        query["groups"] = [group._asdict() for group in groups_of(result, labels, number)]
    return whole


def _line(result: Attribution, top: int, labels: tuple[str, ...]) -> list[str]:
    """A result as one line of JSON."""
    whole = _with_groups(result, top, labels)
    ended = whole["nda"] and whole["nda"]["ended"][0]
    return [json.dumps({"method": whole["method"], "ended": ended, **query}) for query in whole["queries"]]


def _reports(path: Path | None, queries: Sequence[str]) -> list[Path]:
    """Where the page of each query goes."""
    if path is None:
        return []
    return [path] if len(queries) == 1 else report_paths(path, queries)
