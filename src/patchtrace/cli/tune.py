"""patchtrace tune: a recipe for a collection, chosen by retraining."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from patchtrace.cli.common import ended, progress_bar
from patchtrace.cli.options import check_output, directory_option
from patchtrace.cli.recipe_study import check_study, names_of, study_of, study_options
from patchtrace.evaluate.tables import text_table
from patchtrace.evaluate.tuning import ALL_COORDINATES, COORDINATES, Tuned, Tuning


@click.command()
@study_options
@click.option(
    "--search",
    "coordinates",
    callback=names_of(ALL_COORDINATES),
    metavar="NAME,NAME,...",
    default=",".join(COORDINATES),
    show_default=True,
    help="Settings that may change, in this order; draws can be added.",
)
@click.option(
    "--fraction",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="Fraction of the queries used to choose; the recipe is reported on the others.",
)
@click.option(
    "--split-seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the split of the queries."
)
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Maximum number of search passes.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for the recipe (TOML); tables and a figure go beside it.",
)
@directory_option("--cache", help="Directory that keeps parts of scores.  [default: parts/ beside the recipe]")
def tune(**options: Any) -> int:
    """Find a recipe with a larger LDS, chosen on some queries of TRUTH and reported on the others.

    TRUTH is a file of subsets and losses, as patchtrace lds writes it. The search starts from a base recipe and
    changes one setting after the other (flips, patch sizes, levels, ...) where that is better on the queries used
    to choose. The LDS on those flatters the recipe; trust the one on the others, which is written into the recipe too.

    With a single noise draw the search also fits that noise: --draws 4 is more reliable.

    \b
    Examples:
      patchtrace tune truth.npz --train train.npz --queries val.npz -o recipe.toml
      patchtrace tune truth.npz --train photos/ --queries val/ --draws 4 --cache ablation/parts -o recipe.toml
      patchtrace attribute query.png --train photos/ --recipe recipe.toml
    """
    base = check_study(options)
    output: Path = options["output"]
    if output.suffix != ".toml":
        raise click.UsageError(f"-o {output} is a recipe: use a name that ends in .toml")
    check_output(output.parent, [*options["train"], *options["query"]])
    tuning, train, queries = study_of(Tuning, options, base, options["cache"] or output.parent / "parts")
    with progress_bar("searching", options["quiet"]) as progress:
        found = tuning.run(
            options["coordinates"],
            fraction=options["fraction"],
            rounds=options["rounds"],
            seed=options["split_seed"],
            progress=progress,
        )
    found.save(output)
    click.echo(tables(found))
    return ended(output, train, queries, quiet=options["quiet"])


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
