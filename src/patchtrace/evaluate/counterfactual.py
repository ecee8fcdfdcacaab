"""What becomes of a picture when the images that it resembles are removed and the model is trained again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from patchtrace.attribution import Attribution
from patchtrace.cache import Cache, digest
from patchtrace.checks import whole
from patchtrace.compute import Compute
from patchtrace.diffusion import Training
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate.counterfactual_result import CHANCE, OTHER_SEED, CounterfactualResult, measured
from patchtrace.evaluate.retraining import Retraining, do_missing, part_of
from patchtrace.evaluate.truth import as_scores
from patchtrace.images import ImageSet
from patchtrace.images.write import write_pictures
from patchtrace.methods.encoders import Encoder, VectorFunction, check_encoder, load_encoder
from patchtrace.progress import Progress

Scores = Mapping[str, Attribution | ArrayLike]


class Removal(NamedTuple):
    """One model: the images it is trained without, in their order, and the seed it is trained with."""

    images: tuple[int, ...]
    seed: int = 0


#: One model, and the pictures that are wanted of it, by their numbers.
Task = tuple[Removal, Sequence[int]]


@dataclass(frozen=True)
class Counterfactual:
    """Removes the images that a method ranks first, trains again, and measures how much the same picture changes.

    The originals are pictures 0, 1, 2, ... of a model of the whole collection. For each of them, and each method, a
    model is trained without the ``remove`` images of the highest scores, with the same seed, and makes the picture
    again from the same noise. Two baselines stand beside the methods: ``chance``, the floor, removes as many images at
    random, and ``other seed`` removes none, but trains one model with another seed, for all queries.

    Each model is a unit of work that is done once, resumes after a kill and is found again by a fingerprint of all that
    decides it.

    Parameters
    ----------
    train : ImageSet
        The collection.
    directory : path
        Where models and pictures are kept.
    training : Training
        How models are trained.
    remove : int
        Number of images that are removed for a picture.
    queries : int, default 60
        Number of pictures.
    sample_seed, steps : int, default 0 and 50
        Seed of the noise that pictures start from, and the steps of DDIM from there.
    chance_models : int, optional
        Random removals; with fewer than queries, several queries share one, which saves models. By default each query
        has its own.
    chance_seed : int, default 0
        Seed of the random removals.
    compute : Compute, default Compute()
        Its device trains models, by default the CPU.

    Examples
    --------
    >>> photos = ImageSet.open(np.random.default_rng(0).integers(0, 256, (10, 8, 8, 3), dtype=np.uint8))
    >>> experiment = Counterfactual(photos, Path("run"), Training(), remove=3, queries=2)
    >>> originals = experiment.originals()  # doctest: +SKIP
    >>> scores = {"mine": [range(10), range(10, 0, -1)]}
    >>> [removal.images for removal in experiment.removals(scores)["mine"]]
    [(7, 8, 9), (0, 1, 2)]
    >>> experiment.run(scores).write("run")  # doctest: +SKIP
    """

    train: ImageSet
    directory: Path
    training: Training
    _: KW_ONLY
    remove: int
    queries: int = 60
    sample_seed: int = 0
    steps: int = 50
    chance_models: int | None = None
    chance_seed: int = 0
    compute: Compute = field(default_factory=Compute)

    def __post_init__(self) -> None:
        if not 1 <= self.remove < len(self.train):
            raise PatchtraceError(
                f"remove is {self.remove}: of {len(self.train)} images, 1 to {len(self.train) - 1} can be removed"
            )
        for name, least in (("queries", 1), ("sample_seed", 0), ("steps", 1), ("chance_seed", 0)):
            whole(name, getattr(self, name), least)
        if self.chance_models is not None and not 1 <= self.chance_models <= self.queries:
            raise PatchtraceError(f"chance_models is {self.chance_models}: use 1 to {self.queries}, one for each query")

    @property
    def model(self) -> Path:
        """The directory of the model of all images, once there are originals."""
        return self.retraining.place(self._kept(Removal(())))

    def originals(self, progress: Progress | None = None) -> ImageSet:
        """The pictures to be attributed, of the model of all images, which is trained if it is not there yet."""
        task = Removal(()), range(self.queries)
        self._make(task, progress)
        return self._pictures([task[0]] * self.queries)

    def write_originals(self, progress: Progress | None = None) -> ImageSet:
        """Write the originals as PNG to ``originals/``, for any other method to attribute, and return them."""
        found = self.originals(progress)
        # ids are names of files here, so that a saved run about the files is about the originals
        named = replace(found, ids=tuple(Path(name).stem for name in found.ids))
        write_pictures(named, Path(self.directory) / "originals", "query")
        return found

    def run(
        self,
        scores: Scores,
        *,
        chance: bool = True,
        other_seed: bool = True,
        encoder: str | VectorFunction | Encoder | None = "efficientnet-lite0",
        shard: tuple[int, int] = (1, 1),
        jobs: int = 1,
        progress: Progress | None = None,
    ) -> CounterfactualResult | None:
        """Train what is not trained yet, and measure; None if that was one shard and models of others are missing.

        Parameters
        ----------
        scores : mapping of str to Attribution or (queries, train)
            By the name of the method, its scores of the originals.
        chance, other_seed : bool
            Whether to measure the two baselines.
        encoder : str, callable or None
            Encoder of the cosine: anything that :func:`patchtrace.methods.encoders.load_encoder` takes. With None, or
            without the packages that it needs, there is no cosine.
        shard : (int, int)
            Do part ``i`` of ``n`` only, counted from 1. Other machines may do the others, into the same directory.
        jobs : int
            Models that are trained at the same time.
        progress : callable, optional
            Called with (done, total), in models of this shard.
        """
        part_of((), shard)  # an error is raised before hours of work
        removals = self.removals(scores, chance=chance, other_seed=other_seed)
        encode, remarks = self._encoder(encoder)
        originals = self.originals()
        known = {name: result for name, result in scores.items() if isinstance(result, Attribution)}
        for name, result in known.items():
            fingerprint = result.facts.get("queries", {}).get("fingerprint")
            if fingerprint not in (None, replace(originals, ids=result.query_ids).fingerprint()):
                raise PatchtraceError(f"{name} was computed on other pictures than the originals: attribute those")
        wanted: dict[Removal, list[int]] = {}  # query after query, so that an interrupted run has whole queries
        for query in range(self.queries):
            for of_method in removals.values():
                wanted.setdefault(of_method[query], []).append(query)
        keys = {removal: self._keys(removal, queries) for removal, queries in wanted.items()}

        def is_missing(task: Task) -> bool:
            return any(key not in self._cache for key in keys[task[0]].values())

        do_missing(self._make, list(wanted.items()), is_missing, shard, jobs, progress)
        if any(map(is_missing, wanted.items())):
            return None
        pictures = {name: self._pictures(of_method) for name, of_method in removals.items()}
        shared = self.chance_models or self.queries
        if chance and shared < self.queries:
            remarks += (f"chance has {shared} random removals, which {self.queries} queries share",)
        facts = {
            **{name: getattr(self, name) for name in ("remove", "queries", "sample_seed", "steps", "chance_seed")},
            "encoder": None if encode is None else encode.settings(),
            "images": len(self.train),
            "train": self.train.fingerprint(),
            "training": asdict(self.training),
            "chance_models": shared,
            "methods": {name: {"method": one.method, "settings": one.settings} for name, one in known.items()},
        }
        return measured(originals, pictures, encode, facts=facts, remarks=remarks)

    def removals(self, scores: Scores, *, chance: bool = True, other_seed: bool = True) -> dict[str, list[Removal]]:
        """For each method, and each query, the model that it asks for."""
        found = {name: [_without(row) for row in self._first(name, given)] for name, given in scores.items()}
        for name in (CHANCE, OTHER_SEED):
            if name in found:
                raise PatchtraceError(f"{name!r} is the name of a baseline: give the method another name")
        if chance:
            drawn = [
                np.random.default_rng([self.chance_seed, number]).choice(len(self.train), self.remove, replace=False)
                for number in range(self.chance_models or self.queries)
            ]
            found[CHANCE] = [_without(drawn[query % len(drawn)]) for query in range(self.queries)]
        if other_seed:
            found[OTHER_SEED] = [Removal((), seed=1)] * self.queries
        if not found:
            raise PatchtraceError("there is nothing to remove: give the scores of a method, or leave chance on")
        return found

    def _first(self, name: str, given: Attribution | ArrayLike) -> NDArray[np.intp]:
        """The images that a method ranks first: (queries, remove)."""
        scores = as_scores(given, (self.queries, len(self.train)), name)
        if not isinstance(given, Attribution):
            return np.argsort(-scores, axis=1, kind="stable")[:, : self.remove]
        if given.train_ids != self.train.ids:
            raise PatchtraceError(f"{name} was computed on other images than this collection, or in another order")
        return np.stack([given.ranking(query)[: self.remove] for query in range(self.queries)])

    # --- models and their pictures ---

    @property
    def retraining(self) -> Retraining:
        """The models of this collection."""
        return Retraining(self.train, Path(self.directory), self.training, self.compute)

    @property
    def _cache(self) -> Cache:
        return Cache(Path(self.directory) / "pictures", "a picture of a model")

    def _keys(self, removal: Removal, queries: Sequence[int]) -> dict[int, str]:
        """Names of a model's pictures in the cache."""
        model = self.retraining.place(self._kept(removal), removal.seed).name
        return {query: digest(model, "ddim", self.steps, self.sample_seed, query) for query in queries}

    def _kept(self, removal: Removal) -> NDArray[np.bool_]:
        kept = np.ones(len(self.train), np.bool_)
        kept[list(removal.images)] = False
        return kept

    def _make(self, task: Task, progress: Progress | None = None) -> list[NDArray[np.uint8]]:
        """Train one model, and sample and return those of its pictures that are missing."""
        removal, queries = task
        missing = {query: key for query, key in self._keys(removal, queries).items() if key not in self._cache}
        if not missing:
            return []
        model, made = self.retraining.model(self._kept(removal), removal.seed, progress), []
        for query, key in missing.items():
            # one at a time: batches of another size can change the last bits of a picture
            made.append(model.sample(1, sampler="ddim", steps=self.steps, seed=self.sample_seed, first=query)[0])
            self._cache.save(key, picture=made[-1])
        return made

    def _pictures(self, removals: Sequence[Removal]) -> ImageSet:
        """Picture number i of the i-th model; a damaged one is sampled again."""
        keys = {one: self._keys(one, range(len(removals))) for one in dict.fromkeys(removals)}
        pixels = []
        for query, removal in enumerate(removals):
            found = self._cache.load(keys[removal][query], like={"picture": self.train.shape})
            pixels.append(self._make((removal, [query]))[0] if found is None else found["picture"])
        return ImageSet(np.stack(pixels), tuple(f"query-{query:03d}.png" for query in range(len(removals))))

    def _encoder(self, encoder: str | VectorFunction | Encoder | None) -> tuple[Encoder | None, tuple[str, ...]]:
        """The encoder, or a remark why there is none."""
        if encoder is None:
            return None, ()
        check_encoder(encoder, self.train.shape)
        try:
            return load_encoder(encoder, self.compute.device if isinstance(encoder, str) else None), ()
        except PatchtraceError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            return None, (f"no cosine: {error}",)


def _without(images: Iterable[int]) -> Removal:
    return Removal(tuple(sorted(map(int, images))))


__all__ = ["CHANCE", "OTHER_SEED", "Counterfactual", "CounterfactualResult", "Removal", "measured"]
