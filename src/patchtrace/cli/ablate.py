"""patchtrace ablate: the effect of each setting of a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_lines, ended, note, progress_bar
from patchtrace.cli.kinds import names_of
from patchtrace.cli.recipe_study import study_of, study_options
from patchtrace.evaluate.ablation import Ablation, AblationRow, draw, write_rows
from patchtrace.evaluate.axes import AXES, as_text
from patchtrace.evaluate.tables import text_table


@opts.command()
@study_options
@click.option(
    "--axes", type=names_of(AXES), help=f"Settings to vary: {', '.join(AXES)}.  [default: all that the base recipe has]"
)
@opts.output("Directory for table and figures.", required=True)
def ablate(**options: Any) -> int:
    """Measure the effect of each setting of a recipe on the LDS.

    TRUTH is a file of subsets and losses, as `patchtrace lds` writes it. One setting at a time is varied around a base
    recipe. Scores are sums of parts that are computed once and kept: the same command resumes a run that was
    interrupted, and another run computes only what is new.

    \b
    Examples:
      patchtrace ablate truth.npz --train train.npz --queries val.npz -o ablation/
      patchtrace ablate truth.npz --train photos/ --queries val/ --axes k,gamma --draws 4 -o ablation/
      patchtrace ablate truth.npz --train photos/ --queries val/ --values timestep=100,200 --values patch=3,5,7 -o a/

    The best value is judged on the same queries that it is chosen on, which flatters it: `patchtrace tune` chooses on
    some queries and reports on others.
    """
    output: Path = options["output"]
    ablation = study_of(Ablation, options, output)
    plan = ablation.plan(options["axes"])
    note(
        f"{len(plan.settings)} settings of {len(plan.parts)} parts, {plan.missing} to be computed; in all "
        f"{plan.bytes / 1e6:,.0f} MB in {ablation.store.directory}",
        quiet=options["quiet"],
    )
    with progress_bar("comparing", options["quiet"]) as progress:
        rows = ablation.run(options["axes"], progress=progress)
    write_rows(rows, output / "ablation.csv")
    drawn = draw(rows, output)
    for stale in {output / f"{axis}.png" for axis in AXES} - set(drawn):
        stale.unlink(missing_ok=True)  # of an older run, whose rows are replaced
    for axis in dict.fromkeys(row.axis for row in rows):
        echo_lines(table([row for row in rows if row.axis == axis]))
    return ended(output, ablation.train.skipped + ablation.queries.skipped, quiet=options["quiet"])


def table(rows: list[AblationRow]) -> str:
    """One axis as text: with intervals and seconds, or, if it has several series, LDS alone."""
    series = list(dict.fromkeys(row.series for row in rows))
    values = list(dict.fromkeys(row.value for row in rows))
    base = {row.value for row in rows if row.is_base}
    names = [f"{as_text(value)}{'*' * (value in base)}" for value in values]
    title = f"\n{AXES[rows[0].axis]}: LDS in %{', * is the base recipe' * bool(base)}"
    if len(series) > 1:
        found = {(row.series, row.value): f"{100 * row.lds:.1f}" for row in rows}
        lines = [[name, *(found.get((name, value)) for value in values)] for name in series]
        return f"{title}\n{text_table(['', *names], lines)}"
    cells = [
        [
            name,
            f"{100 * row.lds:.1f}",
            f"{100 * row.low:.1f} to {100 * row.high:.1f}",
            "" if row.is_base else f"{100 * row.gain:+.1f} ({100 * row.gain_low:+.1f} to {100 * row.gain_high:+.1f})",
            f"{row.seconds:.1f}",
        ]
        for name, row in zip(names, rows, strict=True)
    ]
    header = [rows[0].axis, "LDS", "95 % interval", "against the base recipe", "engine seconds"]
    return f"{title}\n{text_table(header, cells)}"
