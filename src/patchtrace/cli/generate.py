"""patchtrace generate: new pictures from a collection, with their origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from patchtrace.attribution import Attribution, facts_of
from patchtrace.cli.common import print_table, progress_bar, report_skipped, write_run
from patchtrace.cli.options import (
    check_output,
    collection_options,
    compute_from,
    compute_options,
    directory_option,
    quiet_option,
    read_collection,
)
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.images.write import write_pictures
from patchtrace.recipe import DEFAULT_SIZE
from patchtrace.score_machine import ScoreMachine


@click.command()
@collection_options
@click.option("-n", "--count", type=click.IntRange(1), default=16, show_default=True, help="Number of pictures.")
@directory_option("-o", "--output", required=True, help="Directory for all results.")
@click.option("--steps", type=click.IntRange(1), default=20, show_default=True, help="Number of sampling steps.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Noise seed.")
@click.option(
    "--eta",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=True,
    help="Amount of fresh noise in each step: 0 none, 1 as much as DDPM.",
)
@click.option(
    "--patch", type=click.IntRange(1), help="Patch size of all steps, an odd number.  [default: large to small]"
)
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Number of sources to show.")
@compute_options
@quiet_option
def generate(**options: Any) -> int:
    """Paint new pictures from a collection, without training, and show where their pixels come from.

    The local score machine is the closed form of a diffusion model that sees patches only: each step replaces every
    pixel by a weighted mean over all patches of the collection. The weights are the origin of the pixel. Time grows
    with the size of the collection: --limit takes the first images only.

    \b
    Examples:
      patchtrace generate --train photos/ -n 16 -o painted/
      patchtrace generate --train photos/ --size 64 --limit 100 --eta 1 -o painted/

    The directory then holds a sheet of all pictures with their maps (sheet.png), each picture as PNG, the ranking of
    their sources, and the maps as arrays (provenance.npz).
    """
    compute = compute_from(options)
    output: Path = options["output"]
    check_output(output, list(options["train"]))
    quiet = options["quiet"]
    train = read_collection(options, DEFAULT_SIZE, quiet)
    machine = ScoreMachine(train, patches=options["patch"], compute=compute)
    with progress_bar("painting", quiet) as progress:
        samples = machine.sample(
            options["count"], steps=options["steps"], seed=options["seed"], eta=options["eta"], progress=progress
        )
    painted = ImageSet(samples.images, tuple(f"painted-{number:03d}" for number in range(options["count"])))
    result = Attribution(
        samples.shares,
        samples.shares,
        painted.ids,
        train.ids,
        "score-machine",
        settings={**machine.settings(), **{name: options[name] for name in ("steps", "seed", "eta")}},
        facts=facts_of(train, painted),
        skipped=train.skipped,
    )
    write_pictures(painted, output, "painted")
    origin = samples.provenance
    with replacing(output / "provenance.npz") as temporary, temporary.open("wb") as stream:
        np.savez_compressed(stream, images=samples.images, sources=origin.sources, weights=origin.weights)
    listed = write_run(
        result, painted, train, output, provenance=origin, top=options["top"], headings=("painted", "from")
    )
    print_table(result, options["top"])
    if not quiet:
        click.echo(f"written to {output}", err=True)
    return report_skipped(result.skipped, listed)
