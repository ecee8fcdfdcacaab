"""patchtrace refine: more draws for a saved result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from patchtrace.attribution import Attribution, TableFormat
from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_json, ended, note_rows, print_table, progress_bar, write_run
from patchtrace.cli.kinds import COUNT
from patchtrace.cli.values import check_stopping, compute_from, read_again, stopping_from
from patchtrace.cli.verdicts import verdict_lines, with_verdicts
from patchtrace.errors import PatchtraceError
from patchtrace.nda import NDA


@opts.command()
@opts.run
@opts.latents
@opts.draws
@click.option("--top", type=COUNT, help="Number of images to show and to settle.  [default: as in the run]")
@opts.output("Directory for all results.  [default: the run itself]")
@opts.rows
@opts.verdicts
@opts.compute
@opts.json
@opts.quiet
@click.pass_context
def refine(context: click.Context, /, run: Path, **options: Any) -> int:
    """Add noise draws to a saved RUN until its list is settled.

    The images are read again from their original paths, and must not have changed. Earlier draws count: the result is
    the same as if all had been made at once.

    \b
    Examples:
      patchtrace refine run/
      patchtrace refine run/ --most-draws 2000 --seconds 600
      patchtrace refine run/ --draws 64 -o steadier/
    """
    check_stopping(context, options["draws"] or "auto")
    compute = compute_from(options)
    before = Attribution.load(run)
    if before.nda is None or not before.nda.can_continue or before.facts.get("opened") is None:
        raise PatchtraceError(
            f"the run in {str(run)!r} cannot be continued: only runs of `patchtrace attribute` with method nda and at "
            "least two draws can; run it again with --draws auto"
        )
    quiet = options["quiet"]
    train, queries = read_again(before, run, quiet, options["latents"])
    top = options["top"] or before.nda.top
    recipe = replace(before.nda.recipe, draws=options["draws"] or "auto")
    method = NDA(recipe, stopping=stopping_from(options, recipe, top), compute=compute).fit(train)
    with progress_bar("comparing", quiet) as progress:
        result = method.attribute(queries, start=before, progress=progress)
    # null and verdicts are about the pictures, not about draws
    facts = {**result.facts, "opened": before.facts["opened"]}
    result = replace(result, facts=facts, null=before.null, verdicts=before.verdicts)
    output = options["output"] or run
    if options["verdicts"]:
        result = with_verdicts(result, queries, train, top, compute, quiet=quiet, silent=True)
    kinds: tuple[TableFormat, ...] = get_args(TableFormat)
    kind: TableFormat = next((kind for kind in kinds if (run / f"ranking.{kind}").exists()), "csv")
    listed = write_run(result, queries, train, output, kind, rows=options["rows"])
    note_rows(result, output, options["rows"], quiet=quiet)
    if options["json"]:
        echo_json(result.to_json(top))
    else:
        print_table(result, top)
        click.echo("\n".join(verdict_lines(result, top)))
    return ended(output, result.skipped, listed, quiet=quiet)
