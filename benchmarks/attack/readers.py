"""Attacks on what reads files other than pictures: scores, truths, subsets, groups, nulls, weights, latents. 5 minutes.

.venv/bin/python -m benchmarks.attack.readers               # everything
.venv/bin/python -m benchmarks.attack.readers mutated       # some of it; the rows of the others stay
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.attack.commands import run
from benchmarks.attack.files import encoded, mutant
from benchmarks.attack.kills import tiny
from benchmarks.attack.rows import campaign, row
from benchmarks.attack.runs import attributing, flipped, photos
from hostile import FORGED, hostile_files, tampered
from PIL import Image

from patchtrace import Autoencoder, Decoding, ImageSet, PatchtraceError, Store
from patchtrace.cache import digest
from patchtrace.diffusion import Denoiser
from patchtrace.evaluate import GroundTruth, make_subsets
from patchtrace.evaluate.score_files import read_scores
from patchtrace.evaluate.truth import read_subsets
from patchtrace.latents import load_autoencoder
from patchtrace.null import Null
from patchtrace.null.groups import labels_of

SEED = 7
#: Damaged files of each kind.
MUTATED = 300
#: Bytes that reading one of them may take, and seconds.
MEMORY, SECONDS = 1 << 30, 20.0
IMAGES, QUERIES, MODELS = 12, 3, 8

Reader = Callable[[Path], object]


def truth_of() -> GroundTruth:
    rng = np.random.default_rng(SEED)
    ids = tuple(f"{number}.png" for number in range(IMAGES)), tuple(f"q{number}" for number in range(QUERIES))
    return GroundTruth(make_subsets(IMAGES, MODELS), rng.random((MODELS, QUERIES)), *ids)


def good_files(place: Path) -> dict[str, tuple[list[Path], Reader]]:
    """Good files of every kind, and what reads them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from safetensors.torch import save_file

    from patchtrace.latents import taef2

    rng, truth = np.random.default_rng(SEED), truth_of()
    scores = rng.random((QUERIES, IMAGES))
    place.mkdir(parents=True, exist_ok=True)
    at = place.joinpath
    np.save(at("a.npy"), scores)
    np.savez(at("a.npz"), scores=scores, train_ids=truth.train_ids, query_ids=truth.query_ids, facts="{}")
    np.savez_compressed(at("b.npz"), scores=scores)
    rows = [["query", *truth.train_ids], *([f"q{n}", *map(str, row)] for n, row in enumerate(scores))]
    long = [f"q{q},{i}.png,{scores[q, i]}" for q in range(QUERIES) for i in range(IMAGES)]
    at("a.csv").write_text("\n".join(map(",".join, rows)))
    at("b.csv").write_text("\n".join(["query,id,score", *long]))
    pq.write_table(pa.table({name: scores[:, n] for n, name in enumerate(truth.train_ids)}), at("a.parquet"))
    cells = [line.split(",") for line in long]
    named = {"query": [c[0] for c in cells], "id": [c[1] for c in cells], "score": [float(c[2]) for c in cells]}
    pq.write_table(pa.table(named), at("b.parquet"))
    truth.save(at("truth.npz"))
    np.savez(at("plain.npz"), subsets=truth.subsets, losses=truth.losses)
    np.save(at("s.npy"), np.packbits(truth.subsets, axis=1))
    np.savez(at("s.npz"), subsets=truth.subsets)
    at("groups.csv").write_text("\n".join(["id,group", *(f"{name},{n % 2}" for n, name in enumerate(truth.train_ids))]))
    encoder, _ = taef2.networks(8, 4)
    weights = {f"encoder.{name}": torch.zeros(value.shape) for name, value in encoder.state_dict().items()}
    save_file(weights, at("taef2.safetensors"))

    def scored(path: Path) -> object:
        return read_scores(path, truth)

    return {
        "scores": ([at(n) for n in ("a.npy", "a.npz", "b.npz", "a.csv", "b.csv", "a.parquet", "b.parquet")], scored),
        "truths": ([at("truth.npz"), at("plain.npz")], GroundTruth.load),
        "subsets": ([at("s.npy"), at("s.npz")], lambda path: read_subsets(path, IMAGES)),
        "groups": ([at("groups.csv")], lambda path: labels_of(truth.train_ids, f"csv:{path}")),
        "weights": ([at("taef2.safetensors")], lambda path: load_autoencoder(f"taef2:{path}")),
    }


@contextmanager
def limited(memory: int) -> Iterator[None]:
    """With so many more bytes than now, so that a flood is an error here and not of the machine."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + memory, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def tried(read: Reader, path: Path) -> str:
    """ "read", "refused", or what went wrong."""
    begin = time.monotonic()
    try:
        with limited(MEMORY), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
        outcome = "read"
    except PatchtraceError as error:
        outcome = "refused" if str(error) else "refused without a word"
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"[:200]
    return outcome if time.monotonic() - begin < SECONDS else f"{time.monotonic() - begin:.0f} s"


def mutated(place: Path) -> None:
    """Damaged files of every kind: an answer or a sentence."""
    rng = random.Random(SEED)
    for kind, (files, read) in good_files(place / "good").items():
        outcomes = {"read": 0, "refused": 0}
        broken = [f"{path.name} itself: {said}" for path in files if (said := tried(read, path)) != "read"]
        for path in files:
            good = [each.read_bytes() for each in files if each.suffix == path.suffix]
            for _ in range(MUTATED):
                damaged = place / path.name
                damaged.write_bytes(mutant(good, rng))
                said = tried(read, damaged)
                if said in outcomes:
                    outcomes[said] += 1
                else:
                    broken.append(f"{path.name}: {said}")
        row(
            f"{kind} ({', '.join(path.name for path in files)}) with flipped, missing, doubled or mixed bytes",
            MUTATED * len(files),
            said_of(broken, f"{outcomes['refused']:,} refused in a sentence, {outcomes['read']:,} read"),
            not broken,
        )


def said_of(broken: list[str], outcome: str) -> str:
    return f"{len(broken)} broke: " + "; ".join(list(dict.fromkeys(broken))[:8]) if broken else outcome


def hostile(place: Path) -> None:
    """Files made to take memory or time, or to break a reader."""
    kinds = good_files(place / "good")
    outcomes, broken, begin = {"read": 0, "refused": 0}, [], time.monotonic()
    for name, content in hostile_files(IMAGES, QUERIES):
        path = place / name.replace(" ", "-")
        path.write_bytes(content)
        for kind, (files, read) in kinds.items():
            if path.suffix in {each.suffix for each in files}:
                said = tried(read, path)
                if said in outcomes:
                    outcomes[said] += 1
                else:
                    broken.append(f"{name} as {kind}: {said}")
        path.unlink()
    row(
        "files in their place that unpack to gigabytes, claim terabytes, nest too deeply or hold something else",
        sum(outcomes.values()) + len(broken),
        said_of(
            broken,
            f"{outcomes['refused']} refused in a sentence, {outcomes['read']} read without what is odd in them, "
            f"in {time.monotonic() - begin:.0f} s and 1 GiB",
        ),
        not broken,
    )


def nulls(place: Path) -> None:
    """A flipped bit, and a forged field, in a null."""
    folder, whole = photos(place / "photos", 25), place / "null"
    run("calibrate", "--train", folder, "--count", 19, "-o", whole, "-q")
    images = ImageSet.open(folder, size=32)
    some = images.subset([0, 1])
    known = Null.load(whole).judge(some, images)
    tries, noticed, broken = 0, 0, []
    files = [path for path in whole.iterdir() if path.is_file()]
    for path in flipped(files):
        tries += 1
        try:
            if not np.array_equal(Null.load(whole).judge(some, images).z, known.z):
                broken.append(path.name)
        except PatchtraceError:
            noticed += 1
        except Exception as error:
            broken.append(f"{path.name}: {error!r}")
    outcome = f"{noticed} noticed, {tries - noticed - len(broken)} without effect"
    row(f"a flipped bit in each of {len(files)} files of a null", tries, said_of(broken, outcome), not broken)

    text = (whole / "null.json").read_text()
    tries, refused, broken = 0, 0, []
    for value in FORGED:
        for path_in, manifest in tampered(text, value):
            manifest.pop("manifest_sha256", None)
            (whole / "null.json").write_text(json.dumps({**manifest, "manifest_sha256": digest(manifest)}))
            tries += 1
            try:
                null = Null.load(whole)
                judged = null.judge(some, images)
                said = judged.sentence(0) + judged.remark + "".join(hub.id for hub in null.hubs())
                null.unusual_members()
                if "\x1b" in said:
                    broken.append(f"{path_in}: control characters")
            except PatchtraceError:
                refused += 1
            except Exception as error:
                broken.append(f"{path_in} {value!r}: {error!r}"[:200])
    (whole / "null.json").write_text(text)
    row(
        "nulls with a forged field and right checksums",
        tries,
        said_of(broken, f"{refused} refused in a sentence"),
        not broken,
    )

    tries, refused, broken = 0, 0, []
    arrays = np.load(whole / "rows.npy"), np.load(whole / "digests.npy")
    manifest = json.loads(text)
    for name, array in (("rows", arrays[0]), ("digests", arrays[1])):
        for forged in forgeries(array):
            stream = io.BytesIO()
            np.save(stream, forged)
            content = stream.getvalue()
            (whole / f"{name}.npy").write_bytes(content)
            other = {**manifest, "sha256": {**manifest["sha256"], f"{name}.npy": hashlib.sha256(content).hexdigest()}}
            other.pop("manifest_sha256")
            (whole / "null.json").write_text(json.dumps({**other, "manifest_sha256": digest(other)}))
            tries += 1
            try:
                judged = Null.load(whole).judge(some, images)
                judged.check((2, len(images)))
            except PatchtraceError:
                refused += 1
            except Exception as error:
                broken.append(f"{name} {forged.dtype} {forged.shape}: {error!r}"[:200])
        np.save(whole / f"{name}.npy", array)
    row(
        "nulls with forged arrays and right checksums",
        tries,
        said_of(broken, f"{refused} refused in a sentence"),
        not broken,
    )


def forgeries(array: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """An array of another kind, another shape, or with numbers that cannot be."""
    yield from (array.astype(np.complex64), array.astype("U8"), array.astype(np.int8), array.astype(np.float64))
    yield from (array[:0], array[:1], array[..., :-1], array.ravel(), array[None], np.float32(3))
    for value in (np.nan, np.inf, -1, 1e38, 0):
        changed = array.astype(np.float32)
        changed[0] = value
        yield changed
        yield np.full_like(changed, value)


def latents(place: Path) -> None:
    """A flipped bit in every file of a store of latents."""
    folder = photos(place / "photos", 20)
    made = Autoencoder.of(lambda p: p[:, :, ::4, ::4], name="every fourth", weights="none", factor=4, channels=3)
    Store(place / "store").update([folder], decoding=Decoding(size=(32, 32)), latents=made)
    state = ImageSet.open(place / "store").fingerprint()
    files = [p for p in (place / "store").rglob("*") if p.is_file() and p.stat().st_size and p.suffix != ".lock"]
    tries, noticed, silent = 0, 0, []
    for path in flipped(files):
        tries += 1
        try:
            if Store(place / "store").verify():
                noticed += 1
                continue
            held = ImageSet.open(place / "store")
            if ImageSet(held.pixels[:], held.ids, autoencoder=made).fingerprint() != state:
                silent.append(path.name)
        except PatchtraceError:
            noticed += 1
        except Exception as error:
            silent.append(f"{path.name}: {error!r}")
    outcome = f"{noticed} noticed, {tries - noticed - len(silent)} without effect"
    row(
        f"a flipped bit in each of {len(files)} files of a store of latents",
        tries,
        said_of(silent, outcome),
        not silent,
    )


def models(place: Path) -> None:
    """A flipped bit in every file of a trained model."""
    network, pictures = tiny(place)
    whole = place / "model"
    run("train", "--train", pictures, "--model", network, "--epochs", 1, "--batch", 4, "-q", "-o", whole)
    asked = ImageSet.open(pictures)
    loss = Denoiser.load(whole).loss(asked, timesteps=2)
    tries, noticed, broken = 0, 0, []
    files = [path for path in whole.rglob("*") if path.is_file()]
    for path in flipped(files, 15):
        tries += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                if not np.array_equal(Denoiser.load(whole).loss(asked, timesteps=2), loss):
                    broken.append(path.name)
        except PatchtraceError:
            noticed += 1
        except Exception as error:
            broken.append(f"{path.name}: {error!r}"[:200])
    outcome = f"{noticed} noticed, {tries - noticed - len(broken)} without effect"
    row(f"a flipped bit in each of {len(files)} files of a trained model", tries, said_of(broken, outcome), not broken)


def beside(place: Path) -> None:
    """Damaged pictures as decoys and as controls."""
    folder, kinds, rng = photos(place / "photos", 20), encoded(), random.Random(SEED)
    for name in ("decoys", "controls"):
        other = place / name
        other.mkdir()
        for number in range(200):
            kind = rng.choice(list(kinds))
            (other / f"{number:05d}.{kind.lower().replace('jpeg', 'jpg')}").write_bytes(mutant(kinds[kind], rng))
        for number in range(3):
            pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(other / f"good{number}.png")
        output = place / f"run-{name}"
        done = run(*attributing(folder, output, draws=2), f"--{name}", other)
        listed = len((output / "skipped.csv").read_text().splitlines()) - 1 if done.code == 3 else 0
        row(
            f"damaged pictures as --{name}",
            200,
            f"{listed} listed with a reason, exit code {done.code}" if done.fine else done.err[-200:],
            done.fine and not done.raw and done.code == 3 and listed > 0,
        )


if __name__ == "__main__":
    campaign("readers", mutated, hostile, nulls, latents, models, beside)
