"""The truth at 32 x 32: losses of models trained on halves of 1000 images of CIFAR-2, one file for each model.

    make truth32                                   # two processes at low priority; goes on where it was stopped
    .venv/bin/python benchmarks/truth32.py 1/2     # part 1 of 2, on one core
    .venv/bin/python benchmarks/truth32.py pack    # once all are done: truths that `patchtrace compare` takes

Models and their training are the defaults of ddpm-small (226,531 parameters, 120 epochs): 64 halves, two seeds each.
A loss is the mean over 50 timesteps and 2 noises, the same ones for all models. Losses are kept in
benchmarks/results/truth32/, with the pictures that the model of all images generated; models are not.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from patchtrace.diffusion import Training
from patchtrace.evaluate import GroundTruth, LDSBenchmark, make_subsets
from patchtrace.evaluate.retraining import Retraining, Unit, part_of
from patchtrace.files import replacing
from patchtrace.images import ImageSet

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent.parent / "shared" / "data" / "cifar2.npz"
WORK, KEPT = HERE / "runs" / "truth32", HERE / "results" / "truth32"
TRAIN, VALIDATION, GENERATED, SUBSETS, SEEDS = 1000, 200, 100, 64, 2
TIMESTEPS, DRAWS = 50, 2
TRAINING = Training.of("ddpm-small")


def main() -> None:
    asked = sys.argv[1] if len(sys.argv) > 1 else "1/1"
    benchmarks = prepared()
    if asked == "pack":
        pack(benchmarks)
        return
    import torch

    torch.set_num_threads(1)
    part, parts = map(int, asked.split("/"))
    units = benchmarks["validation"].units
    for unit in part_of(units, (part, parts)):
        if place(unit).is_file():
            continue
        begin = time.perf_counter()
        losses = {name: benchmark.measure(unit) for name, benchmark in benchmarks.items()}
        with replacing(place(unit)) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **losses)
        done = sum(place(one).is_file() for one in units)
        print(f"{unit}: {time.perf_counter() - begin:.0f} s, {done} of {len(units)} done", flush=True)


def place(unit: Unit) -> Path:
    """Where the losses of a model are kept."""
    return KEPT / "losses" / f"{unit.subset:02d}-{unit.seed}.npz"


def prepared() -> dict[str, LDSBenchmark]:
    """The benchmark of each set of queries."""
    if not PICTURES.is_file():
        sys.exit(f"CIFAR-2 is not at hand: {PICTURES.name} has to lie in shared/data/ beside the checkout")
    with np.load(PICTURES) as archive:
        pixels, labels = archive["train"][:TRAIN], archive["train_label"][:TRAIN]
        train, validation = ImageSet.open(pixels), ImageSet.open(archive["val"][:VALIDATION])
    (KEPT / "losses").mkdir(parents=True, exist_ok=True)
    if not (KEPT / "generated.npz").is_file():
        made = Retraining(train, WORK, TRAINING).generated(GENERATED)
        np.savez_compressed(KEPT / "generated.npz", pixels=np.asarray(made.pixels[:]), ids=np.array(made.ids))
    with np.load(KEPT / "generated.npz") as kept:
        generated = ImageSet(kept["pixels"], tuple(kept["ids"].tolist()))
    subsets = make_subsets(TRAIN, SUBSETS, classes=labels)
    return {
        name: LDSBenchmark(
            train=train,
            queries=queries,
            subsets=subsets,
            directory=WORK,
            training=TRAINING,
            seeds=SEEDS,
            timesteps=TIMESTEPS,
            draws=DRAWS,
        )
        for name, queries in (("validation", validation), ("generated", generated))
    }


def pack(benchmarks: dict[str, LDSBenchmark]) -> None:
    """Write the truth of each set of queries, by seed."""
    for name, benchmark in benchmarks.items():
        for seed in range(SEEDS):
            units = [unit for unit in benchmark.units if unit.seed == seed and place(unit).is_file()]
            if len(units) < SUBSETS:
                print(f"{name}, seed {seed}: {len(units)} of {SUBSETS} models are done")
                continue
            truth = GroundTruth(
                subsets=benchmark.subsets,
                losses=np.stack([np.load(place(unit))[name] for unit in units]),
                train_ids=benchmark.train.ids,
                query_ids=benchmark.queries.ids,
                facts={"training": asdict(TRAINING), "seed": seed, "timesteps": TIMESTEPS, "draws": DRAWS},
            )
            print(truth.save(KEPT / f"{name}-{seed}.npz"))


if __name__ == "__main__":
    main()
