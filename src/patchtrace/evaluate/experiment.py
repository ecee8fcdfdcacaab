"""Whole experiments in one call: from a collection to judged methods, with tables and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise, starmap
from pathlib import Path

from patchtrace.attribution import Attribution
from patchtrace.errors import PatchtraceError
from patchtrace.evaluate import scoring
from patchtrace.evaluate.counterfactual import Counterfactual
from patchtrace.evaluate.counterfactual_result import CounterfactualResult
from patchtrace.evaluate.figures import require_matplotlib
from patchtrace.evaluate.retraining import LDSBenchmark
from patchtrace.methods.base import Requires, Resources
from patchtrace.methods.encoders import check_encoder
from patchtrace.progress import Progress, Watch

#: Methods that are judged unless others are named.
USUAL_METHODS = ("nda", "pixel")


def lds_experiment(
    benchmark: LDSBenchmark,
    output: str | Path,
    *,
    methods: Sequence[str] = USUAL_METHODS,
    runs: Mapping[str, Attribution] | None = None,
    resources: Resources | None = None,
    tuning: float = 0.5,
    shard: tuple[int, int] = (1, 1),
    jobs: int = 1,
    progress: Progress | None = None,
) -> scoring.LDSReport | None:
    """Train models on parts of a collection, and judge methods by how well they predict the losses of these models.

    Work that is on disk is not done again: the same call resumes an experiment that was stopped.

    Parameters
    ----------
    benchmark : LDSBenchmark
        Collection, queries, subsets, and how models are trained. Its directory keeps models, losses, scores and
        gradients. ``Retraining.generated`` makes queries by a model of the collection.
    output : path
        Directory for truth.npz (subsets and losses), lds.csv, lds.json and lds.png.
    methods : sequence of str, default ("nda", "pixel")
        Names in ``patchtrace.methods.base.METHODS``. Where one requires a model, it is trained on the whole collection.
    runs : mapping of str to Attribution, optional
        Results on the same queries to judge too.
    resources : Resources, optional
        What methods are made from; by default the collection and ``compute`` of the benchmark.
    tuning : float, default 0.5
        Fraction of the queries that lambda of TRAK is chosen on; all methods are then reported on the others.
    shard : (int, int), default (1, 1)
        Do part ``i`` of ``n`` of the training only, counted from 1.
    jobs : int, default 1
        Models that are trained at the same time.
    progress : callable, optional
        Called with (done, total); a Watch also gets remarks on what is being done.

    Returns
    -------
    LDSReport or None
        None if models of other shards are missing.

    Examples
    --------
    >>> report = lds_experiment(benchmark, "lds/", methods=["nda", "trak"])  # doctest: +SKIP
    >>> print(report)  # doctest: +SKIP
    """
    require_matplotlib()
    methods, runs = _checked(methods, runs)
    place = Path(output)
    needs_model = any(map(scoring.requires_model, methods))
    training, whole, *stages, judging = _stages(
        Watch.of(progress), len(benchmark.units), 2 * needs_model, *(1 for _ in methods), 1
    )
    training.remark("training models")
    benchmark.run(shard=shard, jobs=jobs, progress=training)
    if benchmark.missing():
        return None
    truth = benchmark.truth()
    place.mkdir(parents=True, exist_ok=True)
    truth.save(place / "truth.npz")
    made_from = _resources(resources, benchmark)
    if needs_model and made_from.model is None:
        whole.remark("training on all images")
        made_from = replace(made_from, model=benchmark.retraining.with_checkpoints(whole))
    found, queries, directory = [], benchmark.queries, benchmark.directory
    for name, watch in zip(methods, stages, strict=True):
        watch.remark(name)
        found.append(scoring.score_queries(name, made_from, queries, directory=directory, progress=watch))
    found += [scoring.MethodScores.saved(name, result, truth) for name, result in runs.items()]
    judging.remark("resampling")
    report = scoring.judge(found, truth, tuning=tuning, progress=judging)
    report.write(place)
    return report


def counterfactual_experiment(
    experiment: Counterfactual,
    *,
    methods: Sequence[str] = USUAL_METHODS,
    runs: Mapping[str, Attribution] | None = None,
    resources: Resources | None = None,
    cosine: bool = True,
    shard: tuple[int, int] = (1, 1),
    jobs: int = 1,
    progress: Progress | None = None,
) -> CounterfactualResult | None:
    """Remove the images that methods rank first, train again, and measure how much the pictures change.

    Everything is written to the directory of the experiment: models, the originals as PNG, the attributions of the
    methods, and the files of :meth:`CounterfactualResult.write`. The same call resumes an experiment that was stopped.

    Parameters
    ----------
    experiment : Counterfactual
        Collection, number of pictures and of removed images, and how models are trained.
    methods : sequence of str, default ("nda", "pixel")
        Names in ``patchtrace.methods.base.METHODS``.
    runs : mapping of str to Attribution, optional
        Results on the originals (see :meth:`Counterfactual.write_originals`) to measure too.
    resources : Resources, optional
        What methods are made from, and the encoder of the cosine; by default the collection and ``compute`` of the
        experiment.
    cosine : bool, default True
        Whether to measure the cosine of embeddings too.
    shard, jobs, progress
        As for :func:`lds_experiment`.

    Returns
    -------
    CounterfactualResult or None
        None if models of other shards are missing.

    Examples
    --------
    >>> result = counterfactual_experiment(experiment, methods=["nda", "embedding"])  # doctest: +SKIP
    >>> print(result)  # doctest: +SKIP
    """
    require_matplotlib()
    methods, runs = _checked(methods, runs)
    made_from = _resources(resources, experiment)
    # a run of another shape, or a method that does not work on these images, is found before hours of training
    experiment.removals(runs)
    for name in methods:
        if not scoring.requires_model(name):
            scoring.fitted(name, made_from)
    if cosine:
        check_encoder(made_from.encoder, experiment.train.shape)
    checkpoints = any(scoring.required_by(name) is Requires.CHECKPOINTS for name in methods)
    first, whole, *stages, training = _stages(
        Watch.of(progress), 2, 2 * checkpoints, *(1 for _ in methods), experiment.queries * (len(methods) + 1)
    )
    first.remark("training on all images")
    originals = experiment.write_originals(first)
    models = {True: experiment.retraining.with_checkpoints(whole) if checkpoints else None, False: experiment.model}
    scores = {}
    for name, watch in zip(methods, stages, strict=True):
        watch.remark(name)
        model = made_from.model or models[scoring.required_by(name) is Requires.CHECKPOINTS]
        scores[name] = scoring.fitted(name, replace(made_from, model=model)).attribute(originals, progress=watch)
        scores[name].save(Path(experiment.directory) / "attributions" / name)
    training.remark("training without images")
    encoder = made_from.encoder if cosine else None
    result = experiment.run(scores | runs, encoder=encoder, shard=shard, jobs=jobs, progress=training)
    if result is not None:
        result.write(experiment.directory)
    return result


def _checked(
    methods: Sequence[str], runs: Mapping[str, Attribution] | None
) -> tuple[tuple[str, ...], dict[str, Attribution]]:
    """Methods once each, and runs that are not called like one of them."""
    found, others = tuple(dict.fromkeys(methods)), dict(runs or {})
    for name in found:
        scoring.required_by(name)
        if name in others:
            raise PatchtraceError(f"both a method and a run are called {name!r}: give the run another name")
    return found, others


def _resources(resources: Resources | None, experiment: LDSBenchmark | Counterfactual) -> Resources:
    """What methods are made from; gradients are kept beside the models."""
    found = resources or Resources(train=experiment.train, compute=experiment.compute)
    return replace(found, cache=found.cache or Path(experiment.directory) / "gradients")


def _stages(watch: Watch, *work: int) -> list[Watch]:
    """Watches for one stage after the other, in proportion to their work."""
    edges = [done / max(1, sum(work)) for done in accumulate(work, initial=0)]
    return list(starmap(watch.part, pairwise(edges)))
