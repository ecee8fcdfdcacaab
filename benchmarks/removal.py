"""Does removing what a picture resembles change what a model makes of it? With more power than by samples.

    make removal                                       # everything; an hour on two cores, resumes where it was stopped
    .venv/bin/python benchmarks/removal.py 1/2         # part 1 of 2, on one core
    .venv/bin/python benchmarks/removal.py tables      # table and figure of docs/results.md, of the models so far

1000 images of CIFAR-2 at 16 x 16. A model of all of them generates pictures; for each picture and method, a model is
trained without the images that the method ranks first, with the same seed. Instead of one sample of it we compare what
it makes of the noised picture: the *denoised means* at several timesteps and noises, the same for all models, and the
loss. Every model is measured on every picture, so that for each picture there are two controls: removals at random, and
what the same method removes for the other pictures. Measurements are kept in benchmarks/results/removal/, 2 KB a model,
with the denoised means of the model of all images; models are not.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from results import halved
from scipy import stats
from truth import HERE, cifar2

from patchtrace.compute import Compute
from patchtrace.diffusion import Denoiser, Training
from patchtrace.diffusion.denoiser import query_noise
from patchtrace.evaluate.figures import boxes
from patchtrace.evaluate.retraining import Retraining, part_of
from patchtrace.evaluate.scoring import score_queries
from patchtrace.files import replacing
from patchtrace.images import ImageSet
from patchtrace.methods.base import Resources

KEPT, WORK = HERE / "results" / "removal", HERE / "runs" / "removal"
QUERIES, CHANCE = 20, 8
METHODS = ("nda", "dtrak", "embedding")
#: Of dtrak, as `make results` chose it by retraining on this collection.
LAMBDA = "0.316"
TIMES, NOISES = (50, 100, 200, 300, 500), 4
#: Of the first model of all images, and of a second one.
WHOLE, OTHER_SEED = "whole", "other seed"

Floats = NDArray[np.float64]


class Experiment:
    """Pictures, scores, and the models to train."""

    def __init__(self) -> None:
        pixels, _, _ = cifar2()
        self.train = ImageSet.open(halved(pixels))
        self.retraining = Retraining(self.train, WORK, Training.of("ddpm-small"))

    def prepare(self) -> None:
        """The model of all images, its pictures and their scores by each method: once, before any part."""
        if (KEPT / "scores.npz").is_file():
            return
        KEPT.mkdir(parents=True, exist_ok=True)
        model = self.retraining.with_checkpoints()
        queries = self.retraining.generated(QUERIES)
        resources = Resources(train=self.train, compute=Compute(threads=2), model=model, cache=WORK / "gradients")
        scores = {}
        for name in METHODS:
            found = score_queries(name, resources, queries, directory=WORK)
            scores[name] = found.variants[LAMBDA if name == "dtrak" else ""]
        with replacing(KEPT / "scores.npz") as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, pixels=queries.pixels[:], **scores)

    def begin(self) -> None:
        """What the model of all images makes of the pictures: once, before any part."""
        (KEPT / "changes").mkdir(exist_ok=True)
        if not (KEPT / "whole.npz").is_file():
            means = self.means(self.model(WHOLE)).astype(np.float16)
            with replacing(KEPT / "whole.npz") as temporary, temporary.open("wb") as stream:
                np.savez_compressed(stream, means=means)

    @cached_property
    def kept(self) -> dict[str, NDArray[np.generic]]:
        """Pictures and scores."""
        with np.load(KEPT / "scores.npz") as archive:
            return dict(archive)

    @cached_property
    def queries(self) -> ImageSet:
        return ImageSet(self.kept["pixels"], tuple(f"generated-{number:02d}" for number in range(QUERIES)))

    @cached_property
    def remove(self) -> int:
        """How many images hold half of a picture's share by NDA: the median over pictures, for all methods."""
        shares = -np.sort(-np.asarray(self.kept["nda"], np.float64), axis=1)
        shares = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
        return int(np.median((shares < 0.5).sum(axis=1) + 1))

    @cached_property
    def units(self) -> dict[str, tuple[NDArray[np.intp], int]]:
        """For each model the images that it is trained without, and its seed; picture after picture."""
        nothing = np.empty(0, np.intp)
        found = {WHOLE: (nothing, 0), OTHER_SEED: (nothing, 1)}
        for number in range(CHANCE):
            drawn = np.random.default_rng([0, number]).choice(len(self.train), self.remove, replace=False)
            found[f"chance-{number}"] = drawn, 0
        for query in range(QUERIES):
            for name in METHODS:
                first = np.argsort(-self.kept[name][query], kind="stable")[: self.remove]
                found[f"{name}-{query:02d}"] = first, 0
        return found

    def measure(self, part: int, parts: int) -> None:
        """Train the models of a part that are not done yet, and keep what they change."""
        for name in part_of(list(self.units)[1:], (part, parts)):
            place = self.place(name)
            if place.is_file():
                continue
            begin = time.perf_counter()
            changes = self.changes(self.means(self.model(name)))
            with replacing(place) as temporary, temporary.open("wb") as stream:
                np.savez(stream, **changes)
            print(f"{name}: {time.perf_counter() - begin:.0f} s", flush=True)

    def place(self, name: str) -> Path:
        """Where the measurements of a model are kept."""
        return KEPT / "changes" / f"{name.replace(' ', '-')}.npz"

    def model(self, name: str) -> Denoiser:
        """One of the models."""
        images, seed = self.units[name]
        mask = np.ones(len(self.train), np.bool_)
        mask[images] = False
        return self.retraining.model(mask, seed)

    def means(self, model: Denoiser) -> NDArray[np.float32]:
        """What a model makes of the noised pictures: (queries, times, noises, channels, height, width)."""
        import torch

        t = torch.tensor(np.repeat(TIMES, NOISES))
        alphas = torch.tensor(model.schedule.alphas_cumprod)[t][:, None, None, None].float()
        found = []
        for query in range(QUERIES):
            clean = torch.from_numpy(self.queries.block(query, query + 1))
            noisy = model.noised(clean, query_noise(0, query, len(t), model.shape), t)
            with torch.no_grad():
                guess = (noisy - (1 - alphas).sqrt() * model.model(noisy, t).sample) / alphas.sqrt()
            found.append(guess.clamp(-1, 1).numpy().reshape(len(TIMES), NOISES, *model.shape))
        return np.stack(found)

    def changes(self, means: NDArray[np.floating[Any]]) -> dict[str, Floats]:
        """Distance to the denoised means of the first model, and how much the error increases; (queries, times)."""
        clean = self.queries.block(0, QUERIES)[:, None, None]
        usual, error = (((one - clean) ** 2).mean(axis=(2, 3, 4, 5), dtype=np.float64) for one in (self.whole, means))
        distance = np.sqrt(((means - self.whole) ** 2).mean(axis=(2, 3, 4, 5), dtype=np.float64))
        return {"distance": distance, "loss": error / usual - 1}

    @cached_property
    def whole(self) -> NDArray[np.float32]:
        """The denoised means of the model of all images."""
        with np.load(KEPT / "whole.npz") as archive:
            return np.asarray(archive["means"], np.float32)

    def tables(self) -> None:
        """How much more the removed images matter than others: in percent of what others do."""
        changes = {}
        for name in self.units:
            if self.place(name).is_file():
                with np.load(self.place(name)) as archive:
                    changes[name] = dict(archive)
        names = list(changes)
        whole = [q for q in range(QUERIES) if all(f"{method}-{q:02d}" in names for method in METHODS)]
        chances = [name for name in names if name.startswith("chance")]
        print(f"{len(whole)} pictures, {len(chances)} random removals of {self.remove} of {len(self.train)} images\n")
        shares = np.asarray(self.kept["nda"], np.float64)
        rows: dict[str, dict[str, list[float]]] = {}
        drawn: dict[str, Floats] = {}
        for measure in ("distance", "loss"):
            values = {name: changes[name][measure].mean(axis=1) for name in names}
            chance = np.mean([values[name] for name in chances], axis=0)[whole]
            print(f"\n| removed by | {measure} | minus chance | minus removals for other pictures |\n|---|---|---|---|")
            for method in METHODS:
                own = np.array([values[f"{method}-{q:02d}"][q] for q in whole])
                others = np.array([np.mean([values[f"{method}-{p:02d}"][q] for p in whole if p != q]) for q in whole])
                cells = [own, own - chance, own - others]
                drawn[method] = 100 * own  # of the loss, which comes last
                rows.setdefault(measure, {})[method] = [float(np.mean(one)) for one in cells]
                print(f"| {method} | " + " | ".join(map(interval, cells, (False, True, True))) + " |")
            drawn["chance"] = 100 * chance
            print(f"| chance | {interval(chance)} | | |")
            print(f"| {OTHER_SEED} | {interval(values[OTHER_SEED][whole])} | | |")
        boxes(
            HERE.parent / "docs" / "results-removal.png",
            {name: drawn[name] for name in (*METHODS, "chance")},
            title=f"{self.remove} of {len(self.train)} images removed, by method",
            ylabel="increase of the picture's loss in %",
        )
        for name in METHODS:
            first = np.argsort(-self.kept[name], axis=1)[:, : self.remove]
            held = np.take_along_axis(shares, first, axis=1).sum(axis=1) / shares.sum(axis=1)
            print(f"what {name} removes holds {100 * held.mean():.0f} % of the share by NDA")
        (KEPT / "summary.json").write_text(
            json.dumps({"remove": self.remove, "pictures": len(whole), "means": rows}) + "\n"
        )


def interval(values: Floats, signed: bool = False) -> str:
    """A mean over pictures, in percent of the range or of the loss, and its 95 % interval (Student's t)."""
    values = 100 * np.asarray(values)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    sign = "+" if signed else ""
    return f"{values.mean():{sign}.2f} ({values.mean() - half:{sign}.2f} to {values.mean() + half:{sign}.2f})"


def main() -> None:
    import torch

    torch.set_num_threads(1)
    experiment, asked = Experiment(), sys.argv[1] if len(sys.argv) > 1 else "1/1"
    experiment.prepare()
    experiment.begin()
    if asked == "tables":
        experiment.tables()
    elif asked != "prepare":
        experiment.measure(*map(int, asked.split("/")))


if __name__ == "__main__":
    main()
