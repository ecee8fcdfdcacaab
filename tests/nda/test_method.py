"""NDA: the oracle's scores, and what must hold because of the mathematics."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from patchtrace import (
    NDA,
    Attribution,
    Compute,
    ImageSet,
    Level,
    PatchtraceError,
    Recipe,
    Scale,
    Stopping,
    Watch,
    attribute,
)
from patchtrace.compute import parse_memory
from patchtrace.engines import get_engine
from patchtrace.nda_details import NoiseOrigin

TWO_SCALES = Recipe(
    (
        Level(100, (Scale(3, weight=0.75), Scale(4, pool=2, weight=0.25))),
        Level(300, (Scale(5, weight=0.75), Scale(6, pool=2, weight=0.25))),
    ),
    k=7,
)


def pictures(count=9, shape=(3, 10, 12), seed=0):
    """Smooth random pictures, so that weights spread over several images as they do on real ones."""
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 256, (count, shape[0], (shape[1] + 1) // 2, (shape[2] + 1) // 2))
    return np.kron(coarse, np.ones((1, 1, 2, 2)))[:, :, : shape[1], : shape[2]].astype(np.uint8)


def run(recipe=TWO_SCALES, train=None, queries=None, engine="auto", memory="1GB", parts=False, **options):
    train = pictures() if train is None else train
    queries = pictures(2, seed=1) if queries is None else queries
    rules = {field.name: options.pop(field.name) for field in fields(Stopping) if field.name in options}
    compute = Compute(engine=engine, memory=memory)
    method = NDA(recipe, stopping=Stopping(**rules), parts=parts, compute=compute)
    return method.fit(train).attribute(queries, **options)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("views", ["none", "flips,zoom:1.5"])
@pytest.mark.parametrize("border", ["match", "zero", "valid"])
@pytest.mark.parametrize("shape", [(3, 10, 12), (1, 10, 9), (4, 8, 8)], ids=str)
def test_engines_agree(views, border, shape):
    recipe = replace(TWO_SCALES, views=views, border=border, draws=2)
    train, queries = (pictures(n, shape, seed=n).astype(np.float32) / 127.5 - 1 for n in (5, 2))
    fast, oracle = (run(recipe, train, queries, engine) for engine in ("blocked", "reference"))
    np.testing.assert_allclose(fast.scores, oracle.scores, rtol=1e-5, atol=1e-7)


def test_permuting_training_images_permutes_scores():
    order = np.random.default_rng(3).permutation(9)
    close(run(train=pictures()[order]).scores, run().scores[:, order])


def test_memory_changes_nothing(monkeypatch):
    blocks = []
    engine = type(get_engine(Compute()))
    compare = engine.compare
    monkeypatch.setattr(
        engine,
        "compare",
        lambda self, question: blocks.append(len(question.block)) or compare(self, question),
    )
    train = pictures(40, (3, 32, 32)).repeat(2, axis=0)
    queries = pictures(1, (3, 32, 32), seed=5)
    recipe = replace(Recipe.preset("quick"), draws=2)
    little = run(recipe, train, queries, memory=10_000_000).scores
    assert max(blocks) < len(train)
    blocks.clear()
    plenty = run(recipe, train, queries, memory="8GB").scores
    assert max(blocks) == len(train)
    close(little, plenty)


def test_queries_do_not_influence_each_other():
    queries = pictures(3, seed=1)
    close(run(queries=queries).scores[1:2], run(queries=queries[1:2]).scores)


def test_shares_sum_to_one_without_the_cut_and_to_less_with_it():
    np.testing.assert_allclose(run(replace(TWO_SCALES, k=10_000)).shares.sum(axis=1), 1, rtol=1e-5)
    assert (run(replace(TWO_SCALES, k=1)).shares.sum(axis=1) < 0.99).all()


def test_scores_are_sums_over_patches():
    # 10 x 12 patches of odd size, 9 x 11 of even size, mixed 3 : 1
    result = run(replace(TWO_SCALES, k=10_000))
    np.testing.assert_allclose(result.scores.sum(axis=1), 0.75 * 120 + 0.25 * 99, rtol=1e-5)


def test_shares_rank_as_scores_do():
    result = run()
    np.testing.assert_array_equal(np.argsort(result.scores), np.argsort(result.shares))


def test_a_set_taken_twice_halves_every_share():
    twice = run(train=np.concatenate([pictures(), pictures()]))
    close(2 * twice.shares[:, :9], run().shares)


def test_a_query_from_the_set_is_found():
    assert run(queries=pictures()[4:6]).scores.argmax(axis=1).tolist() == [4, 5]


def test_a_mirrored_query_is_found_with_flips():
    recipe = Recipe((Level(50, (Scale(7),)),), views="flips")
    assert run(recipe, queries=pictures()[4:5, :, :, ::-1]).scores.argmax() == 4


def test_draws_are_averaged_and_each_is_the_same_however_many_there_are():
    rng = np.random.default_rng(0)
    eps = rng.standard_normal((3, 3, 10, 12))
    several = run(noise={100: eps, 300: eps}).scores
    single = [run(noise={100: e, 300: e}).scores for e in eps]
    close(several, np.mean(single, axis=0))


def test_a_seed_repeats_and_another_does_not():
    assert (run().scores == run().scores).all()
    assert not np.allclose(run().scores, run(replace(TWO_SCALES, seed=1)).scores, rtol=0.01)


def test_two_draws_of_large_pictures_are_a_noise_and_its_negative():
    rng = np.random.default_rng(5)
    train, query = rng.integers(0, 256, (4, 20, 22, 3), np.uint8), rng.integers(0, 256, (1, 20, 22, 3), np.uint8)
    recipe = Recipe((Level(100, (Scale(3),)),), k=7)

    def scores(draws=1, **options):
        return NDA(replace(recipe, draws=draws)).fit(train).attribute(query, **options).scores

    eps = {100: -np.random.default_rng((0, 100, 0)).standard_normal((3, 20, 22))}
    close(scores(2), (scores() + scores(noise=eps)) / 2)


def test_a_single_draw_is_the_same_noise_for_all_patches():
    eps = {t: np.random.default_rng((0, t, 0)).standard_normal((3, 10, 12)) for t in (100, 300)}
    np.testing.assert_array_equal(run().scores, run(noise=eps).scores)


def test_exponent_raises_scores_and_leaves_shares():
    plain, raised = run(), run(replace(TWO_SCALES, exponent=1.5))
    close(raised.scores, plain.scores**1.5)
    np.testing.assert_array_equal(raised.shares, plain.shares)


def test_parts_sum_to_the_scores_and_are_named():
    result = run(parts=True)
    close(result.nda.parts.sum(axis=0), result.scores)
    assert [tuple(part) for part in result.nda.part_names] == [(100, 3, 1), (100, 4, 2), (300, 5, 1), (300, 6, 2)]


def test_a_part_is_the_score_of_its_level_and_scale_alone():
    alone = run(Recipe((Level(300, (Scale(5),)),), k=7)).scores
    close(run(parts=True).nda.parts[2], 0.5 * 0.75 * alone)


def test_parts_are_not_kept_unless_asked_for():
    assert run().nda.parts is None


def test_weights_matter_only_relative_to_each_other():
    scaled = tuple(Level(lv.t, tuple(replace(s, weight=8 * s.weight) for s in lv.scales)) for lv in TWO_SCALES.levels)
    close(run(replace(TWO_SCALES, levels=scaled)).scores, run().scores)


def test_progress_reaches_its_total_and_never_goes_back():
    seen = []
    run(progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0
    assert len({total for _, total in seen}) == 1


def test_the_result_says_how_it_was_made(tmp_path):
    result = run()
    assert Recipe.from_dict(result.settings["recipe"]) == TWO_SCALES
    assert result.settings["engine"] == get_engine(Compute()).name
    assert result.nda.recipe == TWO_SCALES
    assert result.nda.noise is NoiseOrigin.SEED
    assert result.facts["train"]["images"] == 9
    assert len(result.facts["train"]["fingerprint"]) == 64


def test_given_noise_is_on_the_record():
    eps = np.zeros((3, 10, 12))
    result = run(noise={t: np.stack([eps, eps]) for t in (100, 300)})
    assert result.nda.noise is NoiseOrigin.CALLER
    assert result.settings["recipe"]["draws"] == 2


def test_without_a_recipe_one_is_chosen_by_size():
    method = NDA().fit(pictures())
    assert method.recipe_ == Recipe.for_size(10, 12)


def test_the_one_liner_is_nda_with_the_recipe_for_the_size_and_draws_until_it_is_settled():
    train = pictures().transpose(0, 2, 3, 1)
    recipe = replace(Recipe.for_size(10, 12), draws="auto")
    result = attribute(train[:1], train)
    np.testing.assert_array_equal(result.scores, NDA(recipe).fit(train).attribute(train[:1]).scores)
    assert result.nda.ended == ["settled"]


def test_the_one_liner_brings_files_to_32(tmp_path):
    images = ImageSet.open(pictures())
    for i in range(3):
        images.picture(i).save(tmp_path / f"{i}.png")
    result = attribute(tmp_path / "1.png", tmp_path, recipe=Recipe.preset("quick"))
    assert result.facts["train"]["shape"] == [3, 32, 32]
    assert result.top(1)[0][0].id == "1.png"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: NDA(TWO_SCALES).attribute(pictures()), r"call fit\(train\) first"),
        (lambda: NDA().recipe_, r"call fit\(train\) first"),
        (lambda: NDA(Recipe.preset("cifar")).fit(pictures()), "larger than the 10 x 12 image"),
        (lambda: run(noise={100: np.zeros((3, 10, 12))}), "no entry for t = 300"),
        (lambda: run(noise={100: np.zeros((3, 12, 10)), 300: np.zeros((3, 10, 12))}), r"\(3, 12, 10\)"),
        (lambda: run(noise={100: np.full((3, 10, 12), np.nan), 300: np.zeros((3, 10, 12))}), "finite"),
        (lambda: run(noise={100: np.zeros((0, 3, 10, 12)), 300: np.zeros((3, 10, 12))}), "finite values of shape"),
        (lambda: run(noise={100: np.zeros((2, 3, 10, 12)), 300: np.zeros((3, 10, 12))}), "the same number"),
        (lambda: run(replace(TWO_SCALES, exponent=30)), "too large for float32"),
        (lambda: run("cifar"), "use a Recipe"),
        (lambda: NDA(TWO_SCALES).fit(ImageSet.open(pictures()).subset([])), "holds no image"),
        (lambda: run(engine="warp"), "no engine"),
        (lambda: run(memory="lots"), "500MB"),
        (lambda: run(memory="1KB"), "at least 10MB"),
        (lambda: run(queries=pictures(1, (1, 10, 12))), "shape"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(make, says):
    with pytest.raises(PatchtraceError, match=says):
        make()


@pytest.mark.parametrize(
    ("text", "count"),
    [("500MB", 500_000_000), ("2 GiB", 2**31), ("1g", 10**9), (20_000_000, 20_000_000), ("3e7", None)],
)
def test_memory_is_read_as_people_write_it(text, count):
    if count is None:
        with pytest.raises(PatchtraceError):
            parse_memory(text)
    else:
        assert parse_memory(text) == count


# -- draws --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_errors_are_those_of_the_mean_over_pairs():
    recipe = replace(TWO_SCALES, draws=12)
    result = run(recipe, top=3, tolerance=0)
    assert result.nda.draws == [[12, 12]] * 2
    assert result.nda.ended == ["fixed", "fixed"]
    others = np.stack([run(replace(recipe, seed=seed)).shares for seed in range(1, 41)])
    spread = others.std(axis=0, ddof=1)
    assert np.median(result.nda.errors / spread) == pytest.approx(1, rel=0.3)
    np.testing.assert_allclose(result.nda.chances.sum(axis=1), 3, rtol=1e-5)


def test_one_draw_says_nothing_about_its_error():
    result = run()
    assert result.nda.errors is None
    assert result.nda.chances is None
    assert result.nda.moments is None
    assert result.remarks(0) == []
    assert result.top(1)[0][0].error is None


def test_auto_goes_on_until_the_list_is_settled():
    remarks = []
    watch = Watch()
    watch.remark = remarks.append
    result = run(replace(TWO_SCALES, draws="auto"), progress=watch, top=2, confidence=0.9, most_draws=2000)
    assert result.nda.ended == ["settled", "settled"]
    for query in range(2):
        first = result.ranking(query)[:2]
        assert result.nda.chances[query, first].mean() >= 0.9
        assert "the list is settled" in result.remarks(query)[0]
    assert remarks[-1].endswith("of 2 settled")
    again = run(replace(TWO_SCALES, draws="auto"), top=2, confidence=0.9, most_draws=2000)
    np.testing.assert_array_equal(again.scores, result.scores)


def test_auto_ends_where_its_draws_or_its_time_do():
    recipe = replace(TWO_SCALES, draws="auto")
    few = run(recipe, confidence=0.999, top=5, most_draws=4, tolerance=0)
    assert few.nda.ended == ["draws", "draws"]
    assert np.max(few.nda.draws) <= 4
    assert "draw limit reached" in few.remarks(0)[0]
    short = run(recipe, confidence=0.999, top=5, most_draws=10**6, tolerance=0, seconds=1e-9)
    assert short.nda.ended == ["time", "time"]


def test_a_list_of_all_images_is_settled_at_once():
    result = run(replace(TWO_SCALES, draws="auto"), top=1000, precision=10)
    assert result.nda.draws == [[2, 2]] * 2


def test_more_draws_go_on_where_the_first_ended(tmp_path):
    first = Attribution.load(run(replace(TWO_SCALES, draws=6)).save(tmp_path))
    at_once = run(replace(TWO_SCALES, draws=14))
    more = run(replace(TWO_SCALES, draws=14), start=first)
    close(more.scores, at_once.scores)
    np.testing.assert_allclose(more.nda.errors, at_once.nda.errors, rtol=1e-4)
    assert more.nda.record() == at_once.nda.record()


def test_a_result_that_does_not_fit_is_not_continued():
    first = run(replace(TWO_SCALES, draws=4))
    for other in (
        {"recipe": replace(TWO_SCALES, draws=8, k=3)},
        {"recipe": replace(TWO_SCALES, draws=8, seed=1)},
        {"recipe": replace(TWO_SCALES, draws=8), "queries": pictures(2, seed=2)},
        {"recipe": replace(TWO_SCALES, draws=8), "train": pictures(9, seed=2)},
    ):
        with pytest.raises(PatchtraceError, match="cannot be continued"):
            run(start=first, **other)
    eps = {t: np.random.default_rng(t).standard_normal((4, 3, 10, 12)) for t in (100, 300)}
    for start in (run(), run(noise=eps)):
        with pytest.raises(PatchtraceError, match="cannot be continued"):
            run(replace(TWO_SCALES, draws=8), start=start)
    with pytest.raises(PatchtraceError, match="without parts"):
        run(replace(TWO_SCALES, draws=8), start=first, parts=True)


def test_auto_goes_on_from_a_result_as_if_it_had_never_ended():
    rules = {"top": 3, "confidence": 0.97, "tolerance": 0}
    short = run(replace(TWO_SCALES, draws="auto"), most_draws=8, **rules)
    assert "draws" in short.nda.ended
    longer = run(replace(TWO_SCALES, draws="auto"), most_draws=4000, start=short, **rules)
    assert np.sum(longer.nda.draws) > np.sum(short.nda.draws)
    assert longer.nda.ended == ["settled", "settled"]
    again = run(replace(TWO_SCALES, draws="auto"), most_draws=4000, start=longer, **rules)
    np.testing.assert_array_equal(again.scores, longer.scores)  # nothing is left to do


def test_what_would_fill_the_memory_is_not_kept(monkeypatch):
    monkeypatch.setattr("patchtrace.nda.method.KEPT_PART", 10**12)
    result = run(replace(TWO_SCALES, draws=2))
    assert result.nda.moments is None
    assert np.isfinite(result.nda.errors).all()


def test_a_result_that_does_not_fit_is_refused_with_the_memory_it_needs():
    train = np.zeros((20_000, 5, 5, 3), np.uint8)
    with pytest.raises(PatchtraceError, match=r"20,000 images and 40 queries need 0\.\d GB: use memory='0\.\dGB'"):
        NDA(Recipe((Level(100, (Scale(3),)),)), compute=Compute(memory="10MB")).fit(train).attribute(train[:40])


def test_noise_from_the_caller_counts_draw_by_draw():
    eps = {t: np.random.default_rng(t).standard_normal((6, 3, 10, 12)) for t in (100, 300)}
    result = run(noise=eps)
    assert result.nda.draws == [[6, 6]] * 2
    assert result.nda.samples == [[6, 6]] * 2
    assert (result.nda.errors > 0).any()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"top": 0}, "top"),
        ({"confidence": 1.5}, "confidence"),
        ({"most_draws": 1}, "most_draws"),
        ({"seconds": 0}, "seconds"),
    ],
    ids=str,
)
def test_rules_for_stopping_that_cannot_be_are_refused(options, hint):
    with pytest.raises(PatchtraceError, match=hint):
        NDA(TWO_SCALES, stopping=Stopping(**options)).fit(pictures())
