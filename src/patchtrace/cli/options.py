"""Options that several commands have. Commands import this module as ``opts``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from patchtrace.cli import kinds
from patchtrace.cli.helptext import GENERAL, Command, Group
from patchtrace.cli.helptext import under as under
from patchtrace.cli.kinds import DEFAULT_ROWS
from patchtrace.compute import DEFAULT_MEMORY
from patchtrace.diffusion import CONFIGURATIONS
from patchtrace.diffusion.training import Precision
from patchtrace.engines import engine_names
from patchtrace.images.arrays import LAYOUTS
from patchtrace.images.contained import TIMEOUT
from patchtrace.methods import METHODS
from patchtrace.recipe import DEFAULT_SECONDS, PRESETS

F = TypeVar("F", bound=Callable[..., Any])

#: Headings that options of several commands are listed under.
COLLECTION, PICTURES, METHOD, NOISE = "Collection", "How pictures are read", "Method", "Noise draws"
EVIDENCE, COMPUTATION, TRAINING, RESULTS = "Evidence", "Computation", "Training of models", "Results"


def command(name: str | None = None) -> Callable[[Callable[..., Any]], Command]:
    """Make a command out of a function; help and examples are its docstring."""
    return click.command(name, cls=Command)


def group(name: str | None = None) -> Callable[[Callable[..., Any]], Group]:
    """Make a group of commands out of a function."""
    return click.group(name, cls=Group)


def several(*options: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator out of many options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def output(help: str, **more: Any) -> Callable[[F], F]:
    """The directory of the results, which need not exist."""
    return under(RESULTS, click.option("-o", "--output", type=kinds.NEW_DIRECTORY, help=help, **more))


def queries(help: str, **more: Any) -> Callable[[F], F]:
    """The pictures to attribute."""
    return click.option("--queries", "query", multiple=True, type=kinds.SOURCE, help=help, **more)


quiet = under(GENERAL, click.option("-q", "--quiet", is_flag=True, help="Print only results and errors."))
verbose = under(
    GENERAL,
    click.option("-v", "--verbose", is_flag=True, help="Also print the number and size of the images, and the recipe."),
)
json = under(RESULTS, click.option("--json", is_flag=True, help="Print JSON instead of a table."))
threads = under(COMPUTATION, click.option("--threads", type=kinds.COUNT, help="Number of threads.  [default: all]"))
device = under(COMPUTATION, click.option("--device", help="PyTorch device, such as cuda:1."))
views = under(
    METHOD,
    click.option(
        "--views",
        type=kinds.VIEWS,
        help="Also compare the images mirrored (flips), enlarged (zoom:1.5), both (flips,zoom:1.5), or none.  "
        "[default: flips; presets of the paper and recipe files have their own]",
    ),
)
verdicts = under(
    EVIDENCE,
    click.option(
        "--verdicts/--no-verdicts",
        default=True,
        help="Check whether the first 10 images are the same picture, changed copies, or have a part in common.",
        show_default=True,
    ),
)
shrink = under(
    PICTURES,
    click.option(
        "--shrink",
        type=kinds.TIMES,
        help="Also compare each query so many times smaller, as a query of its own, to find enlarged crops and parts. "
        "Several with commas (1.5,3).",
    ),
)
query_key = under(
    PICTURES, click.option("--query-key", help="Array of a .npz, or column of a table, that holds the queries.")
)
leave_one_out = under(
    EVIDENCE,
    click.option(
        "--leave-one-out/--no-leave-one-out",
        default=True,
        help="Without --null and --controls: first compare 99, 39 or 19 members of the collection with the others, if "
        "that takes no more than a tenth of --seconds, and say whether the query stands out among them.",
        show_default=True,
    ),
)
decoys = several(
    under(
        EVIDENCE,
        click.option(
            "--decoys",
            multiple=True,
            type=kinds.SOURCE,
            help="Pictures that cannot be sources, compared with the collection: for the share of none of its images, "
            "and an estimate of the false discovery rate of the list; may be repeated.",
        ),
    ),
    under(EVIDENCE, click.option("--decoy-key", help="Array of a .npz, or column of a table, that holds the decoys.")),
)
null = under(
    EVIDENCE,
    click.option(
        "--null",
        type=kinds.DIRECTORY,
        help="Null of the collection, which patchtrace calibrate wrote: says whether a query, or an image, stands out.",
    ),
)
controls = under(
    EVIDENCE,
    click.option(
        "--controls",
        multiple=True,
        type=kinds.SOURCE,
        help="Pictures known not to stem from the collection, of the same kind as the queries; may be repeated.",
    ),
)
control_key = under(
    EVIDENCE, click.option("--control-key", help="Array of a .npz, or column of a table, that holds the controls.")
)
rate = under(
    EVIDENCE,
    click.option(
        "--rate",
        type=kinds.FRACTION,
        default=0.01,
        show_default=True,
        help="p-value from which something stands out, and false discovery rate over several queries.",
    ),
)
group_by = under(
    EVIDENCE,
    click.option(
        "--group-by",
        metavar="folder|csv:FILE|PATTERN",
        help="Also add shares up by folder, by a table with columns id and group, or by a regular expression for ids.",
    ),
)
rows = under(
    RESULTS,
    click.option(
        "--rows",
        type=kinds.ROWS,
        default=str(DEFAULT_ROWS),
        help="Number of images of each query in the ranking on disk, or all; scores.npy always has all.",
    ),
)
run = click.argument("run", type=kinds.DIRECTORY)
truth = click.argument("truth", type=kinds.FILE)
model = under(
    METHOD,
    click.option(
        "--model", type=kinds.DIRECTORY, help="Diffusion model trained on the collection, for methods that require one."
    ),
)
encoder = under(
    METHOD,
    click.option(
        "--encoder", default="efficientnet-lite0", help="Encoder of embeddings: efficientnet-lite0, clip or clip:DIR."
    ),
)

#: How images become pixels.
decoding = under(
    PICTURES,
    click.option(
        "--size",
        type=kinds.SIZE,
        help="Resize pictures to this size.  [default: 32, 512 with --latents; presets, arrays, stores have their own]",
    ),
    click.option("--layout", type=kinds.Choice(list(LAYOUTS)), help="Layout of arrays, where it is ambiguous."),
    click.option("--grey", is_flag=True, help="Convert to greyscale."),
    click.option(
        "--fit",
        type=kinds.Choice(["cover", "pad", "keep"]),
        default="cover",
        help="Fill the frame and crop the rest; pad the whole picture with white; or keep it whole in its own shape, "
        "up to 1:2, at the area of --size (nda only).",
    ),
    click.option("--crop", type=kinds.COUNT, help="First crop collection images to a central square of this side."),
    click.option(
        "--exif", type=kinds.Choice(["apply", "ignore"]), default="apply", help="Apply or ignore EXIF orientation."
    ),
    click.option("--follow-symlinks", is_flag=True, help="Follow symbolic links inside folders."),
    click.option(
        "--timeout",
        type=kinds.POSITIVE,
        default=TIMEOUT,
        help="Seconds of decoding after which an image file counts as unreadable.",
    ),
)

#: In whose latents pictures are compared.
latents = under(
    PICTURES,
    click.option(
        "--latents",
        metavar="KIND:PATH",
        help="Compare latents of this autoencoder: taef2:WEIGHTS.safetensors, diffusers:DIRECTORY or "
        "diffusers:OWNER/NAME. A store of latents names its own, and this says where it is now.",
    ),
)

#: Which images of the collection are read, and how they become pixels.
reading = under(
    COLLECTION,
    click.option("--limit", type=kinds.COUNT, help="Use only the first N images of the collection."),
    click.option("--train-key", help="Array of a .npz, or column of a table, that holds the collection."),
    decoding,
)

collection = under(
    COLLECTION,
    click.option(
        "--train",
        required=True,
        multiple=True,
        type=kinds.SOURCE,
        help="Collection: folder, store, .npz, .parquet, .tar, URL, ...; may be repeated.",
    ),
    reading,
)

#: Engine, threads, device and memory.
compute = under(
    COMPUTATION,
    click.option(
        "--engine",
        type=kinds.Registered(lambda: ["auto", *engine_names()]),
        default="auto",
        help="Engine; all give the same numbers (see patchtrace doctor).",
    ),
    threads,
    device,
    click.option(
        "--memory", default=DEFAULT_MEMORY, help="Working memory limit, besides arrays and 0.5 GB of pixels of folders."
    ),
)

#: What NDA compares.
recipe = under(
    METHOD,
    click.option("--preset", type=kinds.Choice(list(PRESETS)), help="Built-in recipe.  [default: chosen by size]"),
    click.option("--recipe", type=kinds.FILE, help="Recipe file (TOML)."),
)

#: One method, and what methods other than NDA need.
method = under(
    METHOD,
    click.option("--method", type=kinds.Registered(lambda: METHODS), default="nda", help="Attribution method."),
    model,
    encoder,
    click.option("--lam", type=kinds.POSITIVE, help="Ridge parameter (lambda) of trak and dtrak.  [default: 1]"),
)

#: Several methods to judge, and what they are made from.
methods = under(
    METHOD,
    click.option(
        "--method",
        "methods",
        type=kinds.Registered(lambda: METHODS),
        multiple=True,
        help="Method to score; may be repeated.",
    ),
    recipe,
    click.option("--draws", type=kinds.COUNT, help="Number of noise draws, for nda.  [default: the recipe's, or 4]"),
    click.option("--shortlist", type=kinds.COUNT, help="Number of images to score exactly, for nda-shortlist."),
    encoder,
    threads,
)

runs = under(
    METHOD,
    click.option(
        "--run", "runs", metavar="[NAME=]DIR", multiple=True, help="Saved run on the queries; may be repeated."
    ),
)
tuning = under(
    METHOD,
    click.option(
        "--tuning",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.5,
        help="Fraction of the queries used to choose lambda of trak and dtrak; all methods are reported on the others.",
    ),
)

#: How many draws of the noise.
draws = under(
    NOISE,
    click.option(
        "--draws",
        type=kinds.DRAWS,
        help="Number of noise draws, or auto: until the list is settled.  [default: auto; presets have their own]",
    ),
    click.option(
        "--confidence",
        type=click.FloatRange(0.5, 0.999),
        default=0.95,
        help="Probability with which listed images must belong to the list or tie with its last, with --draws auto.",
    ),
    click.option(
        "--tolerance",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.1,
        help="Relative difference below which shares tie, with --draws auto.",
    ),
    click.option(
        "--precision",
        type=kinds.POSITIVE,
        default=0.1,
        help="Largest relative standard error of listed shares, with --draws auto.",
    ),
    click.option(
        "--most-draws", type=click.IntRange(2), default=256, help="Draw limit for each noise level, with --draws auto."
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(0),
        help="Time limit for each query; 0: none. If it is too short for all images, a coarse pass chooses a "
        f"shortlist, and the result is approximate.  [default: {DEFAULT_SECONDS:g} with --draws auto]",
    ),
    click.option("--exact", is_flag=True, help="Compare all images, without a time limit, with --draws auto."),
)

#: How models are trained; defaults come with the model.
training = under(
    TRAINING,
    click.option(
        "--model",
        default="ddpm-small",
        help=f"Model: {', '.join(CONFIGURATIONS)}, a config.json of diffusers, or the directory of a model.",
    ),
    click.option("--epochs", type=kinds.COUNT, help="Number of epochs.  [default: the model's]"),
    click.option("--batch", type=kinds.COUNT, help="Batch size.  [default: the model's]"),
    click.option("--rate", type=kinds.POSITIVE, help="Learning rate.  [default: the model's]"),
    click.option("--train-seed", type=kinds.SEED, default=0, help="Training seed."),
    click.option(
        "--precision",
        type=kinds.Choice(get_args(Precision)),
        default="fp32",
        help="Floating-point precision; bf16 is faster on hardware that has it.",
    ),
    click.option("--device", help="PyTorch device, such as cuda:1.  [default: cpu]"),
)

#: How the training of many models is divided.
units = under(
    TRAINING,
    click.option("--jobs", type=kinds.COUNT, default=1, help="Number of models to train at the same time."),
    click.option("--shard", type=kinds.SHARD, default="1/1", help="Train only part I of N, for job arrays."),
)
