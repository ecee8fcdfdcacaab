"""Truths to judge attribution by: losses of models trained on halves of a collection, one file for each model.

    make truth                                           # all of them, two processes at low priority; resumes
    .venv/bin/python benchmarks/truth.py truth32 1/2     # part 1 of 2 of one, on one core
    .venv/bin/python benchmarks/truth.py truth32 pack    # truths that `patchtrace compare` takes, of the models so far

Models and their training are the defaults of ddpm-small (226,531 parameters, 120 epochs). A loss is the mean over 50
timesteps and 2 noises, the same ones for all models. Losses are kept in benchmarks/results/, 3 KB a model, with the
pictures that the model of all images generated; models are not. The pictures of truth32 come from cifar2.py, and the
facts of its truths hold their checksums.
"""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from cifar2 import find, sha256
from numpy.typing import NDArray

from patchtrace.diffusion import Training
from patchtrace.evaluate import GroundTruth, LDSBenchmark, make_subsets
from patchtrace.evaluate.retraining import Retraining, Unit, part_of
from patchtrace.files import replacing
from patchtrace.images import ImageSet

HERE = Path(__file__).resolve().parent
FASHION = Path("/usr/share/datasets/fashion-mnist")
SETS = ("validation", "generated")
TIMESTEPS, DRAWS = 50, 2
TRAINING = Training.of("ddpm-small")

Pixels = NDArray[np.uint8]
#: Training images, their classes, and validation images.
Pictures = tuple[Pixels, NDArray[np.generic], Pixels]


def cifar2() -> Pictures:
    """1000 automobiles and horses at 32 x 32, and 200 others."""
    with np.load(find()) as archive:
        return archive["train"][:1000], archive["train_label"][:1000], archive["val"][:200]


def fashion() -> Pictures:
    """500 grey pictures of clothes at 28 x 28, of ten classes, and 100 others."""
    if not FASHION.is_dir():
        sys.exit("Fashion-MNIST is not at hand: apt-get install dataset-fashion-mnist")
    train, labels, test = (
        np.frombuffer(gzip.decompress((FASHION / f"{name}-ubyte.gz").read_bytes()), np.uint8)[header:]
        for name, header in (("train-images-idx3", 16), ("train-labels-idx1", 8), ("t10k-images-idx3", 16))
    )
    return train.reshape(-1, 28, 28, 1)[:500], labels[:500], test.reshape(-1, 28, 28, 1)[:100]


@dataclass(frozen=True)
class Truth:
    """One collection, and the models to train on halves of it."""

    name: str
    pictures: Callable[[], Pictures]
    generated: int
    subsets: int
    seeds: int

    @property
    def kept(self) -> Path:
        """What is committed."""
        return HERE / "results" / self.name

    def place(self, unit: Unit) -> Path:
        """Where the losses of a model are kept."""
        return self.kept / "losses" / f"{unit.subset:02d}-{unit.seed}.npz"

    @cached_property
    def benchmarks(self) -> dict[str, LDSBenchmark]:
        """The benchmark of each set of queries."""
        pixels, classes, others = self.pictures()
        train, work = ImageSet.open(pixels), HERE / "runs" / self.name
        (self.kept / "losses").mkdir(parents=True, exist_ok=True)
        file = self.kept / "generated.npz"
        if not file.is_file():
            made = Retraining(train, work, TRAINING).generated(self.generated)
            with replacing(file) as temporary, temporary.open("wb") as stream:
                np.savez_compressed(stream, pixels=np.asarray(made.pixels[:]), ids=np.array(made.ids))
        with np.load(file) as kept:
            generated = ImageSet(kept["pixels"], tuple(kept["ids"].tolist()))
        subsets = make_subsets(len(train), self.subsets, classes=classes)
        settings = {"directory": work, "training": TRAINING, "timesteps": TIMESTEPS, "draws": DRAWS}
        return {
            name: LDSBenchmark(train=train, queries=queries, subsets=subsets, seeds=self.seeds, **settings)
            for name, queries in zip(SETS, (ImageSet.open(others), generated), strict=True)
        }

    @property
    def units(self) -> list[Unit]:
        """All models."""
        return self.benchmarks[SETS[0]].units

    def measure(self, part: int, parts: int) -> None:
        """Train the models of a part that are not done yet, and keep their losses."""
        for unit in part_of(self.units, (part, parts)):
            if self.place(unit).is_file():
                continue
            begin = time.perf_counter()
            losses = {name: benchmark.measure(unit) for name, benchmark in self.benchmarks.items()}
            with replacing(self.place(unit)) as temporary, temporary.open("wb") as stream:
                np.savez(stream, **losses)
            done = sum(self.place(one).is_file() for one in self.units)
            took = time.perf_counter() - begin
            print(f"{self.name} {unit}: {took:.0f} s, {done} of {len(self.units)} done", flush=True)

    def truths(self, name: str) -> list[GroundTruth]:
        """The truth of a set of queries by each seed, over the subsets whose model is done."""
        benchmark, found = self.benchmarks[name], []
        for seed in range(self.seeds):
            units = [unit for unit in self.units if unit.seed == seed and self.place(unit).is_file()]
            if not units:
                continue
            numbers = [unit.subset for unit in units]
            losses = []
            for unit in units:
                with np.load(self.place(unit)) as kept:
                    losses.append(kept[name])
            facts = {"training": asdict(TRAINING), "seed": seed, "timesteps": TIMESTEPS, "draws": DRAWS}
            facts["subsets"] = numbers
            for role in ("train", "queries"):
                images = getattr(benchmark, role)
                # what `compare` checks, and what everybody can compute: SHA-256 of u8 (images, height, width, channels)
                facts |= {role: images.fingerprint(), f"{role} sha256": sha256(np.moveaxis(images.pixels[:], 1, -1))}
            ids = benchmark.train.ids, benchmark.queries.ids
            found.append(GroundTruth(benchmark.subsets[numbers], np.stack(losses), *ids, facts))
        return found

    def pack(self) -> None:
        """Write the truth of each set of queries, by seed."""
        for name in SETS:
            for truth in self.truths(name):
                print(truth.save(self.kept / f"{name}-{truth.facts['seed']}.npz"), f"{len(truth.losses)} models")


TRUTHS = {
    truth.name: truth
    for truth in (
        Truth("truth32", cifar2, generated=100, subsets=64, seeds=2),
        Truth("fashion28", fashion, generated=50, subsets=32, seeds=1),
    )
}


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in TRUTHS:
        sys.exit(f"which truth? One of {', '.join(TRUTHS)}")
    truth, asked = TRUTHS[sys.argv[1]], sys.argv[2] if len(sys.argv) > 2 else "1/1"
    if asked == "pack":
        truth.pack()
        return
    import torch

    torch.set_num_threads(1)
    truth.measure(*map(int, asked.split("/")))


if __name__ == "__main__":
    main()
