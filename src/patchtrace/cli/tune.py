"""patchtrace tune: a recipe for a collection, chosen by retraining."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli import options as opts
from patchtrace.cli.common import echo_lines, ended, progress_bar
from patchtrace.cli.kinds import COUNT, FRACTION, NEW_FILE, SEED, names_of
from patchtrace.cli.recipe_study import study_of, study_options
from patchtrace.evaluate.tables import text_table
from patchtrace.evaluate.tuning import ALL_COORDINATES, COORDINATES, Tuned, Tuning


@opts.command()
@study_options
@click.option(
    "--search",
    "coordinates",
    type=names_of(ALL_COORDINATES),
    default=",".join(COORDINATES),
    help="Settings that may change, in this order; draws can be added.",
)
@click.option(
    "--fraction",
    type=FRACTION,
    default=0.5,
    help="Fraction of the queries used to choose; the recipe is reported on the others.",
)
@click.option("--split-seed", type=SEED, default=0, help="Seed of the split of the queries.")
@click.option("--rounds", type=COUNT, default=2, help="Maximum number of search passes.")
@click.option(
    "-o", "--output", required=True, type=NEW_FILE, help="File for the recipe (TOML); tables and a figure go beside it."
)
def tune(**options: Any) -> int:
    """Find a recipe with a larger LDS, chosen on some queries of TRUTH and reported on the others.

    TRUTH is a file of subsets and losses, as `patchtrace lds` writes it. The search starts from a base recipe and
    changes one setting after another (flips, patch sizes, levels, ...) where that improves the LDS on the queries used
    to choose. The LDS on those flatters the recipe; trust the one on the others, which is also noted in the recipe.

    With a single noise draw the search also fits that noise: --draws 4 is more reliable.

    \b
    Examples:
      patchtrace tune truth.npz --train train.npz --queries val.npz -o recipe.toml
      patchtrace tune truth.npz --train photos/ --queries val/ --draws 4 --cache ablation/parts -o recipe.toml
      patchtrace attribute query.png --train photos/ --recipe recipe.toml
    """
    output: Path = options["output"]
    if output.suffix != ".toml":
        raise click.UsageError(f"-o {output} is a recipe: use a name that ends in .toml")
    tuning = study_of(Tuning, options, output.parent)
    with progress_bar("searching", options["quiet"]) as progress:
        found = tuning.run(
            options["coordinates"],
            fraction=options["fraction"],
            rounds=options["rounds"],
            seed=options["split_seed"],
            progress=progress,
        )
    found.save(output)
    echo_lines(tables(found))
    return ended(output, tuning.train.skipped + tuning.queries.skipped, quiet=options["quiet"])


def tables(found: Tuned) -> str:
    """The steps, and what recipe and base are worth on both parts of the queries, for the terminal."""
    steps = [[str(i), s.change, str(s.tried), f"{100 * s.lds:.1f}"] for i, s in enumerate(found.steps, start=1)]
    first = [["", "base recipe", "", f"{100 * found.tuning.base.mean:.1f}"]]
    judged = [
        [row["recipe"], row["queries"], *(f"{100 * row[name]:.1f}" for name in ("lds", "low", "high"))]
        for row in found.rows()
    ]
    return "\n".join(
        [
            text_table(["step", "change", "of", "LDS % on the tuning queries, which flatter"], first + steps),
            "",
            text_table(["", "queries", "LDS %", "low", "high"], judged),
            "",
            *found.summary()[1:],  # the changes are in the first table
        ]
    )
