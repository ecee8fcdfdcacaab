"""patchtrace demo: the main job on a collection that needs no files."""

from __future__ import annotations

from pathlib import Path

import click

from patchtrace.cli.common import print_table, progress_bar, write_run
from patchtrace.demo import blends, postcards
from patchtrace.methods import NDA
from patchtrace.recipe import Recipe

#: The cards of which each query is put together, left and right.
PAIRS = [(14, 47), (101, 63), (28, 120)]


@click.command()
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), default="demo", show_default=True)
@click.option("-q", "--quiet", is_flag=True, help="Only results and errors.")
def demo(output: Path, quiet: bool) -> None:
    """Draw 150 postcards, put queries together from pairs of them, and find the pairs again.

    \b
    Example:
      patchtrace demo -o demo/
    """
    cards = postcards()
    queries = blends(cards, PAIRS)
    with progress_bar("comparing", quiet) as progress:
        result = NDA(Recipe.preset("cifar")).fit(cards).attribute(queries, progress=progress)
    write_run(result, queries, cards, output)
    print_table(result, 4)
    click.echo("\nEach query is the left side of one card and the right side of another, as its name says.")
    click.echo(f"The result is in {output}/ ; look at {output / 'sheet.png'}")
