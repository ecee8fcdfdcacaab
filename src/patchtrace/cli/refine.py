"""patchtrace refine: more draws for a result that is there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import click

from patchtrace.attribution import Attribution, TableFormat
from patchtrace.cli.common import UNREADABLE, print_table, progress_bar, say_skipped, write_run
from patchtrace.cli.options import check_sampling, engine_options, read_again, sampling_options
from patchtrace.errors import PatchtraceError
from patchtrace.methods import NDA
from patchtrace.recipe import Recipe


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@sampling_options
@click.option("--top", type=click.IntRange(1), help="How many images to show and to settle.  [default: as in the run]")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="[default: the run itself]")
@engine_options
@click.option("--json", is_flag=True, help="Print JSON instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
@click.pass_context
def refine(context: click.Context, /, run: Path, **options: Any) -> int:
    """Add draws of the noise to a saved RUN, until its list is settled.

    The images are read again from where they were, and must not have changed. The draws that the run has count; the
    result is the same as if all had been made at once.

    \b
    Examples:
      patchtrace refine run/
      patchtrace refine run/ --most-draws 2000 --seconds 600
      patchtrace refine run/ --draws 64 -o steadier/
    """
    check_sampling(context, options["draws"] or "auto")
    before = Attribution.load(run)
    if before.moments is None or before.facts.get("opened") is None:
        raise PatchtraceError(
            f"the run in {str(run)!r} cannot be continued: only runs of `patchtrace attribute` with method nda and at "
            "least two draws can; run it again with --draws auto"
        )
    quiet = options["quiet"]
    train, queries = read_again(before, run, quiet)
    top = options["top"] or before.sampling["top"]
    recipe = replace(Recipe.from_dict(before.settings["recipe"]), draws=options["draws"] or "auto")
    names = ("confidence", "most_draws", "seconds", "engine", "device", "threads", "memory")
    method = NDA(recipe, top=top, **{name: options[name] for name in names}).fit(train)
    with progress_bar("comparing", quiet) as progress:
        result = method.attribute(queries, progress=progress, remark=progress.remark, start=before)
    result = replace(result, facts={**result.facts, "opened": before.facts["opened"]})
    output = options["output"] or run
    kinds: tuple[TableFormat, ...] = get_args(TableFormat)
    listed = write_run(
        result, queries, train, output, next((kind for kind in kinds if (run / f"ranking.{kind}").exists()), "csv")
    )
    if options["json"]:
        click.echo(json.dumps(result.to_json(top), indent=1))
    else:
        print_table(result, top)
    if not quiet:
        click.echo(f"written to {output}", err=True)
    if result.skipped:
        say_skipped(result.skipped, listed)
        return UNREADABLE
    return 0
