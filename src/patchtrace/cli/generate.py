"""patchtrace generate: new pictures from a collection, with their origin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np

from patchtrace.attribution import Attribution
from patchtrace.cli import options as opts
from patchtrace.cli.common import ended, print_table, progress_bar, write_run
from patchtrace.cli.kinds import COUNT, SEED
from patchtrace.cli.values import check_output, compute_from, read_collection
from patchtrace.facts import facts_of
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.images.write import write_pictures
from patchtrace.score_machine import ScoreMachine


@opts.command()
@opts.collection
@opts.latents
@click.option("-n", "--count", type=COUNT, default=16, help="Number of pictures.")
@opts.output("Directory for all results.", required=True)
@click.option("--steps", type=COUNT, default=20, help="Number of sampling steps.")
@click.option("--seed", type=SEED, default=0, help="Noise seed.")
@click.option(
    "--eta",
    type=click.FloatRange(0, 1),
    default=0.0,
    help="Amount of fresh noise in each step, from 0 (none) to 1 (as in DDPM).",
)
@click.option("--patch", type=COUNT, help="Odd patch size for all steps.  [default: from large to small]")
@click.option("--top", type=COUNT, default=5, help="Number of sources to show.")
@opts.compute
@opts.quiet
def generate(**options: Any) -> int:
    """Paint new pictures from a collection, without training, and show where their pixels come from.

    The local score machine is the closed form of a diffusion model that sees patches only: each step replaces every
    pixel with a weighted mean over all patches of the collection. The weights are the origin of the pixel. Time grows
    with the size of the collection: --limit takes the first images only.

    \b
    Examples:
      patchtrace generate --train photos/ -n 16 -o painted/
      patchtrace generate --train photos/ --size 64 --limit 100 --eta 1 -o painted/
      patchtrace generate --train photos/ --latents taef2:taef2_encoder.safetensors --size 256 --limit 50 -o painted/

    With --latents, or from a store of latents, it paints latents, which the decoder makes into pictures.

    The directory then holds a sheet of all pictures with their maps (sheet.png), each picture as PNG, the ranking of
    their sources, and the maps as arrays (provenance.npz).
    """
    compute = compute_from(options)
    output: Path = options["output"]
    check_output(output, *options["train"])
    train = read_collection(options)
    machine = ScoreMachine(train, patches=options["patch"], compute=compute)
    settings = {name: options[name] for name in ("steps", "seed", "eta")}
    with progress_bar("painting", options["quiet"]) as progress:
        samples = machine.sample(options["count"], progress=progress, **settings)
    names = tuple(f"painted-{number:03d}" for number in range(options["count"]))
    painted = ImageSet(samples.images, names, autoencoder=train.autoencoder)
    result = Attribution(
        samples.shares,
        samples.shares,
        painted.ids,
        train.ids,
        "score-machine",
        settings={**machine.settings(), **settings},
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
    return ended(output, result.skipped, listed, quiet=options["quiet"])
