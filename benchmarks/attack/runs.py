"""Attacks on stores and runs: kills (more in kills.py), damage, forgery, several processes. 6 minutes.

.venv/bin/python -m benchmarks.attack.runs              # everything
.venv/bin/python -m benchmarks.attack.runs kill flip    # some of it; the rows of the others stay
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attack.commands import Ended, begun, ended, run
from benchmarks.attack.rows import campaign, row
from hostile import FORGED, tampered
from PIL import Image

from patchtrace import Attribution, ImageSet, PatchtraceError, Store
from patchtrace.cache import digest
from patchtrace.cli.common import table

RANDOM = random.Random(7)
#: Kills of each command, and bytes flipped in each kind of file.
KILLS, FLIPS = 10, 30
ARRAYS = ("scores.npy", "shares.npy", "errors.npy", "chances.npy", "moments.npy")
LONG_AGO = 1_000_000_000


def photos(place: Path, count: int = 60, seed: int = 0) -> Path:
    """A folder of pictures."""
    rng = np.random.default_rng(seed)
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = place / f"{number:03d}.png"
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)
        os.utime(path, (LONG_AGO, LONG_AGO + number))
    return place


def attributing(folder: Path, output: Path, draws: int = 100) -> list[Any]:
    """A command that takes some seconds."""
    recipe = folder.parent / "recipe.toml"
    recipe.write_text("[[levels]]\nt = 100\nscales = [{patch = 5}]\n[[levels]]\nt = 300\nscales = [{patch = 7}]\n")
    query = ("attribute", folder / "000.png", "--train", folder, "--recipe", recipe)
    return [*query, "--draws", draws, "--threads", 1, "-q", "-o", output]


def evidently(folder: Path, output: Path) -> list[Any]:
    """A command with a null of the collection's members, decoys, groups and verdicts."""
    others = photos(folder.parent / "others", 5, seed=50)
    more = ("--decoys", others, "--group-by", "(.)[.]png", "--seconds", 60, "--size", 16, "--rows", "all")
    return ["attribute", folder / "000.png", "--train", folder, "--draws", 20, *more, "-q", "-o", output]


def content(directory: Path) -> dict[str, bytes]:
    """The arrays of a run."""
    return {name: (directory / name).read_bytes() for name in ARRAYS if (directory / name).exists()}


def killed(command: list[Any], seconds: float) -> bool:
    """Begin a command and kill it after so many seconds; whether it was still at work."""
    process = begun(*command)
    time.sleep(seconds)
    working = process.poll() is None
    process.kill()
    process.communicate()
    return working


def timed(command: list[Any]) -> tuple[Ended, float]:
    begin = time.monotonic()
    return run(*command), time.monotonic() - begin


def kill(place: Path) -> None:
    """kill -9 at random moments; the same command then ends as if nothing had happened."""
    folder = photos(place / "photos")
    whole = place / "whole"
    _, seconds = timed(attributing(folder, whole))
    wanted, hits, broken = content(whole), 0, []
    for number in range(KILLS):
        output = place / f"run{number}"
        for _ in range(2):
            hits += killed(attributing(folder, output), RANDOM.uniform(0.2, 1) * seconds)
        done = run(*attributing(folder, output))
        if not done.fine or content(output) != wanted:
            broken.append(f"{done.code} {done.err[-200:]}")
    row("kill -9 of attribute at random moments, twice in each run", hits, said(broken, "the same bytes"), not broken)

    broken, hits = [], 0
    refine = ["--draws", 200, "--threads", 1, "-q"]
    once = place / "once"
    shutil.copytree(whole, once)
    _, seconds = timed(["refine", once, *refine])
    for number in range(KILLS):
        output = place / f"refined{number}"
        shutil.copytree(whole, output)
        hits += killed(["refine", output, *refine], RANDOM.uniform(0.2, 1) * seconds)
        try:
            left = content(output)
            Attribution.load(output)
            mixed = left not in (wanted, content(once))
        except PatchtraceError:
            mixed = True
        # a kill while files are replaced is noticed by their checksums; the old run is then made again
        if mixed and not run(*attributing(folder, output)).fine:
            broken.append("cannot be made again")
        done = run("refine", output, *refine)
        if not done.fine or content(output) != content(once):
            broken.append(f"{done.code} {done.err[-200:]}")
    row("kill -9 of refine at random moments", hits, said(broken, "the same bytes"), not broken)


def evidence(place: Path) -> None:
    """Ctrl-C in a run with all evidence, and kill -9 of calibrate: a sentence; then as if nothing had happened."""
    folder, whole = photos(place / "photos"), place / "whole"
    done, seconds = timed(evidently(folder, whole))
    broken, hits = [] if done.code == 0 else [done.err[-200:]], 0
    files = {path.name for path in whole.iterdir()}
    for number in range(KILLS):
        output = place / f"run{number}"
        process = begun(*evidently(folder, output))
        time.sleep(RANDOM.uniform(0.3, 1) * seconds)  # Python itself takes a moment before it can be interrupted
        process.send_signal(signal.SIGINT)
        stopped = ended(process)
        hits += stopped.code == 130
        if stopped.code not in (0, 130) or not stopped.fine:
            broken.append(f"{stopped.code} {stopped.err[-200:]}")
        again = run(*evidently(folder, output))
        if again.code != 0 or {path.name for path in output.iterdir()} != files:
            broken.append(f"again: {again.code} {again.err[-200:]}")
    what = "Ctrl-C at random moments of attribute with a null, decoys, groups and verdicts"
    row(what, hits, said(broken, "a sentence and exit code 130; then whole"), not broken)

    calibrating = ["calibrate", "--train", folder, "--size", 16, "--count", 60, "--threads", 1, "-q"]
    _, seconds = timed([*calibrating, "-o", place / "null"])
    wanted, broken, hits = (place / "null" / "rows.npy").read_bytes(), [], 0
    for number in range(KILLS):
        output = place / f"null{number}"
        for _ in range(2):
            hits += killed([*calibrating, "-o", output], RANDOM.uniform(0.3, 1) * seconds)
        done = run(*calibrating, "-o", output)
        if done.code != 0 or (output / "rows.npy").read_bytes() != wanted:
            broken.append(f"{done.code} {done.err[-200:]}")
    row("kill -9 of calibrate at random moments", hits, said(broken, "the same bytes"), not broken)


def said(broken: list[str], else_: str) -> str:
    return "; ".join(broken[:3]) or else_


def together(place: Path) -> None:
    """Two writers, and readers during updates and gc."""
    source, store = photos(place / "photos"), place / "store"
    index = ["index", source, "-o", store, "--size", 16, "--jobs", 1, "-q"]
    broken, refused = [], 0
    for number in range(6):
        photos(source, 10, seed=number)
        both = [ended(process) for process in [begun(*index), begun(*index)]]
        refused += sum("another process is writing" in one.err for one in both)
        if not all(one.fine for one in both) or not any(one.code == 0 for one in both) or Store(store).verify():
            broken.append(str(both))
    row(
        "two writers of one store at once",
        6,
        said(broken, f"{refused} refused in a sentence, store whole"),
        not broken,
    )
    opens, broken = 0, []
    for number in range(4):
        photos(source, 10, seed=100 + number)
        process = begun(*(index if number % 2 == 0 else ["store", "gc", store]))
        while process.poll() is None:
            try:
                held = ImageSet.open(store)
                if ImageSet(held.pixels[:], held.ids).fingerprint() != held.fingerprint():
                    broken.append("pixels of two states")
            except PatchtraceError as error:
                broken.append(str(error))
            opens += 1
        process.communicate()
    row(
        "a store opened and read in full during updates and gc",
        opens,
        said(broken, "one whole state each"),
        not broken,
    )


def flip(place: Path) -> None:
    """A flipped bit in every kind of file: noticed, or without any effect."""
    folder = photos(place / "photos", 20)
    store, whole = place / "store", place / "run"
    run("index", folder, "-o", store, "--size", 16, "--jobs", 1, "-q")
    run(*attributing(folder, whole, draws=4))
    state = ImageSet.open(store).fingerprint()
    result = Attribution.load(whole)
    for kind, files in {
        "store": [
            path for path in store.rglob("*") if path.is_file() and path.stat().st_size and path.suffix != ".lock"
        ],
        "run": [whole / "attribution.json", *(whole / name for name in content(whole))],
    }.items():
        tries, noticed, silent = 0, 0, []
        for path in flipped(files):
            tries += 1
            try:
                if kind == "store":
                    if Store(store).verify():
                        noticed += 1
                        continue
                    held = ImageSet.open(store)
                    same = ImageSet(held.pixels[:], held.ids).fingerprint() == state
                else:
                    found = Attribution.load(whole)
                    same = found._about() == result._about() and np.array_equal(found.scores, result.scores)
                if not same:
                    silent.append(path.name)
            except PatchtraceError:
                noticed += 1
        outcome = f"{noticed} noticed, {tries - noticed - len(silent)} without effect"
        row(f"a flipped bit in each of {len(files)} files of a {kind}", tries, said(silent, outcome), not silent)


def flipped(files: list[Path], times: int = FLIPS) -> Iterator[Path]:
    """Each file so many times, with one bit of it flipped; then it is as it was."""
    for path in files:
        raw = path.read_bytes()
        for _ in range(times):
            changed = bytearray(raw)
            changed[RANDOM.randrange(len(raw))] ^= 1 << RANDOM.randrange(8)
            path.write_bytes(changed)
            yield path
        path.write_bytes(raw)


def forged(place: Path) -> None:
    """Saved results in which every field is replaced or deleted, with checksums that are right."""
    folder, whole = photos(place / "photos", 6), place / "run"
    run(*attributing(folder, whole, draws=4))
    text = (whole / "attribution.json").read_text()

    tries, refused, broken = 0, 0, []
    for value in FORGED:
        for path, manifest in tampered(text, value):
            manifest.pop("manifest_sha256", None)
            (whole / "attribution.json").write_text(json.dumps({**manifest, "manifest_sha256": digest(manifest)}))
            tries += 1
            try:
                if "\x1b" in "".join(table(Attribution.load(whole), 3)):
                    broken.append(f"{path}: control characters")
            except PatchtraceError:
                refused += 1
            except Exception as error:
                broken.append(f"{path} {value!r}: {error!r}")
    row(
        "results with a forged field and right checksums",
        tries,
        said(broken, f"{refused} refused in a sentence"),
        not broken,
    )


def times(place: Path) -> None:
    """Times that go backwards or do not change with the content."""
    source, store = photos(place / "photos", 20), place / "store"
    index = ["index", source, "-o", store, "--size", 16, "--jobs", 1, "-q"]
    run(*index)
    broken = []
    for number, moment in enumerate((1, LONG_AGO - 10**8, time.time() + 10**8, LONG_AGO + 5)):
        path = source / "005.png"
        noise = np.random.default_rng(900 + number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        os.utime(path, (moment, moment))
        run(*index)
        if sorted(ImageSet.open(store).ids) != sorted(ImageSet.open(source, size=16).ids):
            broken.append("other ids")
        held, files = ImageSet.open(store), ImageSet.open(source, size=16)
        if not np.array_equal(held.pixels[held.ids.index("005.png")], files.pixels[files.ids.index("005.png")]):
            broken.append(f"a change at time {moment:.0f} was not seen")
    row(
        "files that change with times of 1970, earlier, in the future, and as before",
        4,
        said(broken, "seen"),
        not broken,
    )


if __name__ == "__main__":
    campaign("runs", kill, evidence, together, flip, forged, times)
