"""patchtrace recipe: show and check recipes."""

from __future__ import annotations

from pathlib import Path

import click

from patchtrace.cli import options as opts
from patchtrace.cli.kinds import COUNT, FILE, SIZE, Choice
from patchtrace.engines import Comparison
from patchtrace.nda.pace import in_words
from patchtrace.nda.trial import seconds_of_an_image
from patchtrace.recipe import PRESET_SIZES, PRESETS, Recipe

#: Seconds for one query from which on there is a warning.
LONG = 3600.0


@opts.group()
def recipe() -> None:
    """Show a recipe, or check one that you wrote.

    \b
    Examples:
      patchtrace recipe show --preset cifar > mine.toml
      patchtrace recipe show --size 48x64
      patchtrace recipe check mine.toml --size 32 --images 50000
    """


@recipe.command()
@click.option("--preset", type=Choice(list(PRESETS)), help="Built-in recipe.")
@click.option("--size", type=SIZE, help="Size of the pictures: show the recipe chosen for it.")
def show(preset: str | None, size: tuple[int, int] | None) -> None:
    """Print a recipe as TOML: a preset, or the one that is chosen for pictures of a size.

    \b
    Examples:
      patchtrace recipe show --preset cifar > mine.toml
      patchtrace recipe show --size 48x64
    """
    if (preset is None) == (size is None):
        raise click.UsageError("give either --preset NAME or --size N")
    chosen = Recipe.preset(preset) if preset else Recipe.for_size(*(size or (0, 0)))
    click.echo(chosen.to_toml(), nl=False)


@recipe.command()
@click.argument("file", type=FILE)
@click.option("--size", type=SIZE, default=str(PRESET_SIZES["cifar"]), help="Size of the pictures.")
@click.option("--images", type=COUNT, default=1000, help="Number of images in the collection.")
def check(file: Path, size: tuple[int, int], images: int) -> None:
    """Check that a recipe is valid for pictures of a given size, and show how much work it takes.

    The time is estimated from a short trial on this machine, with all of its cores.

    \b
    Example:
      patchtrace recipe check mine.toml --size 32 --images 50000
    """
    chosen = Recipe.load(file)
    chosen.check(*size)
    click.echo(f"valid for {size[0]} x {size[1]}: {chosen.summary()}")
    click.echo("     t  patch  pool  weight  query patches  pairs per image")
    for level in chosen.levels:
        for scale, weight in level.weighted_scales():
            comparison = Comparison.of(scale, chosen)
            patches, pairs = comparison.patches(*size), comparison.pairs(*size)
            click.echo(f"{level.t:6d}{scale.patch:7d}{scale.pool:6d}{weight:8.3f}{patches:15,d}{pairs:17,d}")
    draw = images * seconds_of_an_image(chosen, size)
    click.echo(f"one draw of {images:,} images takes about {in_words(draw)} here")
    least = draw * (2 if chosen.draws == "auto" else chosen.draws)
    if least > LONG:
        click.echo(
            f"warning: a query that compares all of them takes {in_words(least)} or more; --seconds and --shortlist "
            "of `patchtrace attribute` give an approximate answer sooner",
            err=True,
        )
