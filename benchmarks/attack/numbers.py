"""Bad numbers: what is not finite, odd collections, absurd options, hostile recipes, sizes. Two minutes.

.venv/bin/python -m benchmarks.attack.numbers            # everything
.venv/bin/python -m benchmarks.attack.numbers recipes    # some of it; the rows of the others stay
"""

from __future__ import annotations

import io
import json
import random
import tomllib
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attack.commands import Ended
from benchmarks.attack.files import mutant
from benchmarks.attack.readers import said_of
from benchmarks.attack.rows import campaign, row
from hostile import tampered
from PIL import Image

from patchtrace import PatchtraceError, Recipe
from patchtrace.cli import main

SEED = 7
BAD = (float("nan"), float("inf"), float("-inf"))
#: Options that make a command quick.
QUICK = ("--size", 12, "--draws", 2, "--no-verdicts", "-q")
#: Options with values that cannot be.
ABSURD: dict[str, tuple[object, ...]] = {
    "--draws": ("9" * 20, 1_000_001, 0, -1, "nan", "1.5"),
    "--most-draws": ("9" * 20, 1, "inf"),
    "--threads": (100_000, 0, -1),
    "--memory": ("1KB", "nan", "-5GB", ""),
    "--size": (0, 5000, -1, "nan", "1x", "x", "5000x1", "9" * 5000),
    "--top": ("9" * 30, 0, -1),
    "--rows": ("9" * 5000, 0, -1, "some"),
    "--shortlist": ("9" * 30, 0),
    "--seed": ("9" * 30, -1),
    "--seconds": ("nan", "inf", -1),
    "--precision": ("inf", "nan", 0),
    "--confidence": ("nan", 1, 0),
    "--tolerance": ("nan", 1, -1),
    "--rate": ("nan", 0, 1, -1),
    "--timeout": ("nan", "inf", 0, -1),
    "--limit": (0, "9" * 30),
    "--crop": (0, 10_000, "9" * 30),
    "--cluster": ("local:100000", "local:0", ""),
    "--group-by": ("(", "csv:/nowhere", "(" * 100_000, "a{99999999999}"),
    "--engine": ("abacus",),
    "--device": ("abacus:9",),
}


def called(*arguments: object) -> Ended:
    """A command in this process: how it ended, with the traceback if there was one."""
    out, err, code = io.StringIO(), io.StringIO(), 99
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as done:
            code = int(done.code or 0)
        except BaseException:
            err.write(traceback.format_exc())
    return Ended(code, out.getvalue(), err.getvalue())


def told(done: Ended) -> str:
    return f"exit code {done.code}: {done.err.strip()[-150:]}"


def folder_of(place: Path, count: int = 6, *, pixels: Callable[[int], Any] | None = None) -> Path:
    """A folder of pictures of 12 x 12."""
    place.mkdir(parents=True)
    for number in range(count):
        noise = np.random.default_rng(number).integers(0, 256, (12, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels(number) if pixels else noise).save(place / f"{number}.png")
    return place


def infinite(place: Path) -> None:
    """NaN and infinity in arrays, in every role."""
    good = np.random.default_rng(0).standard_normal((6, 3, 12, 12)).astype(np.float32)
    np.save(place / "good.npy", good)
    tries, broken = 0, []
    for value in BAD:
        bad = good.copy()
        bad[2, 1, 3, 3] = value
        np.save(place / "bad.npy", bad)
        roles = dict.fromkeys(("query", "train", "decoys", "controls"), place / "good.npy")
        for role in roles:
            at = {**roles, role: place / "bad.npy"}
            more = [word for name in ("decoys", "controls") if name == role for word in (f"--{name}", at[name])]
            done = called("attribute", at["query"], "--train", at["train"], *more, "--draws", 2, "-q")
            tries += 1
            if done.code != 1 or "not finite" not in done.err or not done.fine:
                broken.append(f"{value} in {role}: {told(done)}")
    row(
        "NaN and infinities in queries, collection, decoys and controls",
        tries,
        said_of(broken, "a sentence"),
        not broken,
    )


def odd(place: Path) -> None:
    """Collections and latents of every odd kind: an answer without NaN."""
    folders = {
        "one image": folder_of(place / "one", 1),
        "two images": folder_of(place / "two", 2),
        "twelve identical images": folder_of(place / "same", 12, pixels=lambda _: np.full((12, 12, 3), 9, np.uint8)),
        "black images": folder_of(place / "black", 12, pixels=lambda _: np.zeros((12, 12, 3), np.uint8)),
        "black and white": folder_of(
            place / "both", 12, pixels=lambda n: np.full((12, 12, 3), 255 * (n % 2), np.uint8)
        ),
        "noise": folder_of(place / "noise", 30),
    }
    beyond = place / "beyond.toml"
    beyond.write_text(f"k = {2**63 - 1}\ndraws = 2\n[[levels]]\nt = 100\nscales = [{{patch = 3}}]\n")
    commands = [(f"{a} against {b}", (folders[a], "--train", folders[b], *QUICK)) for a in folders for b in folders]
    for what, folder in folders.items():
        query = (folder / "0.png", "--train", folder)
        commands += [
            (f"{method} of {what}", (*query, "--method", method, "--size", 12, "-q")) for method in ("pixel", "random")
        ]
        commands += [(f"k beyond all patches of {what}", (*query, "--recipe", beyond, "--size", 12, "-q"))]
        commands += [(f"{what} as --{kind}", (*query, f"--{kind}", folder, *QUICK)) for kind in ("decoys", "controls")]
        commands += [(f"{what} until settled", (*query, "--size", 12, "--seconds", 3, "-q"))]
    for magnitude in (0, 1e-45, 1e-30, 1e6, 1e18, 3e38):
        latents = np.random.default_rng(0).uniform(-1, 1, (5, 4, 8, 8)) * magnitude
        np.save(place / f"{magnitude}.npy", latents.astype(np.float32))
        both = (place / f"{magnitude}.npy", "--train", place / f"{magnitude}.npy")
        commands += [(f"latents of {magnitude}", (*both, "--draws", 2, "-q"))]
    broken, refused = [], 0
    for what, command in commands:
        done = called("attribute", *command)
        refused += done.code == 1
        if not done.fine or "nan" in done.out or (done.code != 0 and not done.err.startswith("error: ")):
            broken.append(f"{what}: {told(done)}")
    row(
        "one image, identical images, all black, queries equal to all, k beyond all patches, latents up to 3e38",
        len(commands),
        said_of(broken, f"{len(commands) - refused} answered, {refused} refused in a sentence"),
        not broken,
    )


def absurd(place: Path) -> None:
    """Options with values that cannot be."""
    folder = folder_of(place / "photos")
    broken, tries = [], 0
    for option, values in ABSURD.items():
        for value in values:
            done = called("attribute", folder / "0.png", "--train", folder, f"{option}={value}", "-q")
            tries += 1
            if done.code not in (1, 2) or not done.fine or done.out or done.raw or len(done.err) > 3000:
                broken.append(f"{option} {str(value)[:30]}: {told(done)}")
    row(f"values of {len(ABSURD)} options that cannot be", tries, said_of(broken, "refused in a sentence"), not broken)
    tries, broken = 0, []
    for size in (1, 2, "1x40", "40x1", 4096):
        done = called("attribute", folder / "0.png", "--train", folder, "--size", size, "--draws", 1, "--no-verdicts")
        tries += 1
        if not done.fine or "nan" in done.out or done.code != int(size == 4096):
            broken.append(f"--size {size}: {told(done)}")
    row(
        "--size 1, 2, 1x40, 40x1 and 4096",
        tries,
        said_of(broken, "answered; the last needs more memory, and is told"),
        not broken,
    )


def recipes(place: Path) -> None:
    """Recipes that are damaged, forged or nested too deeply."""
    rng, text = random.Random(SEED), Recipe.for_size(32, 32).to_toml()
    good = [text.encode(), b"preset = 'cifar'\n", b"[[levels]]\nt = 100\nscales = [{patch = 3, weight = 1.0}]\n"]
    contents = [mutant(good, rng) for _ in range(2000)]
    contents += [
        b"a = " + b"[" * 5000 + b"]" * 5000,
        b"k = " + b"9" * 5000,
        b"[" * 10_000,
        b"\xff\xfe" * 100,
        b"\0" * 100,
    ]
    outcomes, broken = {"read": 0, "refused": 0}, []

    def attempt(what: str, read: Callable[[], object]) -> None:
        try:
            read()
            outcomes["read"] += 1
        except PatchtraceError as error:
            outcomes["refused"] += 1
            if len(str(error)) > 2000:
                broken.append(f"{what}: a sentence of {len(str(error))} characters")
        except Exception as error:
            broken.append(f"{what}: {error!r}"[:200])

    path = place / "recipe.toml"
    for number, content in enumerate(contents):
        path.write_bytes(content)
        attempt(f"file {number}", lambda: Recipe.load(path))
    values = [None, "\x1b[31m", -1, 0, [], {}, 1e308, 1e-308, True, 10**30, 10**4999, [[[]]], float("nan"), "deleted"]
    for value in values:
        for where, table in tampered(json.dumps(tomllib.loads(text)), value):
            attempt(
                f"{where} {str(value)[:20] if value != 10**4999 else 'digits'}",
                lambda table=table: Recipe.from_dict(table),
            )
    tries = sum(outcomes.values()) + len(broken)
    said = said_of(broken, f"{outcomes['refused']:,} refused in a sentence, {outcomes['read']:,} are recipes")
    row("recipes with damaged bytes, forged fields, deep nesting", tries, said, not broken)


if __name__ == "__main__":
    campaign("numbers", infinite, odd, absurd, recipes)
