"""patchtrace demo: attribution on a collection that needs no files."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.cli import options as opts
from patchtrace.cli.common import print_table, progress_bar, write_run
from patchtrace.demo import painted_from, postcards
from patchtrace.drawing.parts import percent
from patchtrace.nda import NDA
from patchtrace.provenance import Provenance
from patchtrace.recipe import Recipe, Stopping

#: The cards that each query is painted from, and the noise it begins with.
HANDFULS = [(400, 13, 484, 481), (397, 398, 405, 294), (432, 225, 485, 368), (201, 0, 301, 22)]
SEEDS = [23, 13, 22, 11]
SHOWN = 6
#: A card counts as a source of a query if it has at least this part of it.
SOURCE = 0.05


@opts.command()
@opts.output("Directory for all results.", default="demo")
@opts.quiet
def demo(output: Path, quiet: bool) -> None:
    """Draw 600 postcards, paint queries from a few of them with the score machine, and find those few again.

    \b
    Example:
      patchtrace demo -o demo/
    """
    cards = postcards()
    with progress_bar("painting", quiet) as progress:
        queries, provenance = painted_from(cards, HANDFULS, seeds=SEEDS, progress=progress)
    with progress_bar("comparing", quiet) as progress:
        method = NDA(Recipe.preset("cifar-stable"), stopping=Stopping(top=SHOWN, most_draws=16)).fit(cards)
        result = method.attribute(queries, progress=progress)
    write_run(result, queries, cards, output, provenance=provenance)
    print_table(result, SHOWN)
    _compare(result, provenance)
    click.echo(f"\nThe result is in {output}/ ; look at {output / 'sheet.png'}")


def _compare(result: Attribution, provenance: Provenance) -> None:
    """Print the true sources of the queries, and the rank that each of them has in the result."""
    click.echo("\nEach query was painted from four cards. Their true shares, and their ranks above:")
    for query, name in enumerate(result.query_ids):
        ranks = np.argsort(result.ranking(query))
        shares = provenance.shares[query]
        sources = [index for index in np.argsort(-shares, kind="stable") if shares[index] >= SOURCE]
        found = (f"{result.train_ids[i]} {percent(float(shares[i]))} (rank {ranks[i] + 1})" for i in sources)
        click.echo(f"  {name}: {', '.join(found)}")
