"""Answers in time: ties, contenders, time limits, results of growing certainty."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from patchtrace import NDA, Attribution, ImageSet, Level, Recipe, Scale, explain
from patchtrace.attribution import joined
from patchtrace.demo import postcards
from patchtrace.engines import LocalWork
from patchtrace.nda import choice, coarse, query_run
from patchtrace.nda.draws import Estimate, chance_of_top
from patchtrace.nda.shortlist import NDAShortlist
from patchtrace.nda_details import Ended, tied_ranks
from patchtrace.progress import Watch
from patchtrace.recipe import Stopping

RECIPE = Recipe((Level(100, (Scale(3),)), Level(300, (Scale(5),))), draws="auto")


def clouds(count, seed=0, side=16):
    """Pictures with structure at several scales."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((count, side, side, 3))
    for size in (2, 4, 8, 16):
        pixels += rng.normal(0, 30, (count, size, size, 3)).repeat(side // size, axis=1).repeat(side // size, axis=2)
    return np.clip(pixels + 128, 0, 255).astype(np.uint8)


TRAIN = clouds(300)
#: The left of one image and the right of another, with noise.
QUERY = np.concatenate([TRAIN[5:6, :, :8], TRAIN[9:10, :, 8:]], axis=2)
QUERY = np.clip(QUERY + np.random.default_rng(1).normal(0, 40, QUERY.shape), 0, 255).astype(np.uint8)


@pytest.fixture
def _sampling(monkeypatch):
    """Sizes at which a small collection is sampled as a large one is."""
    for module in (choice, query_run):
        monkeypatch.setattr(module, "LEAST_SAMPLE", 100)
        monkeypatch.setattr(module, "SAMPLED", 1)
    monkeypatch.setattr(choice, "FROM_IMAGES", 300)
    monkeypatch.setattr("patchtrace.nda.method.COARSE_FROM", 0)


def results(recipe=RECIPE, train=TRAIN, query=QUERY, **rules):
    return list(NDA(recipe, stopping=Stopping(**rules)).fit(train).stream(query))


# -- ties -----------------------------------------------------------------------------------------------


def test_ranks_are_shared_within_the_tolerance_of_their_first():
    shares = np.array([1.0, 0.95, 0.91, 0.89, 0.5])
    assert tied_ranks(shares, 0.1) == [(1, True), (1, True), (1, True), (4, False), (5, False)]
    assert tied_ranks(shares, 0) == [(rank, False) for rank in range(1, 6)]
    # far below the first nothing has to be told apart
    assert tied_ranks(np.array([1.0, 0.04, 0.035, 0.031]), 0.1)[1:] == [(2, True)] * 3


def test_who_ties_with_the_last_belongs_to_the_list():
    mean, error = np.array([5.0, 2.0, 1.95, 1.0]), np.full(4, 0.05)
    found = Estimate(mean, error, np.full(4, np.inf))
    strict, tied = chance_of_top(found, 2), chance_of_top(found, 2, tolerance=0.1)
    assert 0.6 < strict[1] < 0.9
    assert tied[1] > 0.97
    assert tied[2] > 0.9
    assert tied[3] == 0


def test_a_tie_at_the_end_of_the_list_does_not_keep_a_run_going():
    """Two copies of one image at the end of the list: no number of draws tells them apart."""
    twins = np.concatenate([TRAIN[:20], TRAIN[:20]])
    found = results(train=twins, query=TRAIN[3:4], top=1, most_draws=400)[-1]
    assert found.nda.ended == [Ended.SETTLED]
    assert found.ranks(0, 2) == [(1, True), (1, True)]
    strict = results(train=twins, query=TRAIN[3:4], top=1, most_draws=40, tolerance=0)[-1]
    assert strict.nda.ended == [Ended.DRAWS]


def test_listed_shares_are_known_to_the_precision_that_is_asked_for():
    for precision in (0.2, 0.05):
        found = results(precision=precision, most_draws=4000)[-1]
        assert found.nda.ended == [Ended.SETTLED]
        first = found.top(1)[0][0].share
        for hit in found.top(10)[0]:
            assert hit.error <= precision * max(hit.share, first / 10)


# -- a number of draws with a time limit ------------------------------------------------------------------


@pytest.mark.usefixtures("_sampling")
@pytest.mark.parametrize("draws", [1, 4])
def test_a_limit_that_is_long_enough_changes_nothing(draws):
    recipe = replace(RECIPE, draws=draws)
    limited, free = results(recipe, seconds=1e6)[-1], results(recipe)[-1]
    assert limited.nda.ended == free.nda.ended == [Ended.FIXED]
    assert limited.method == "nda"
    assert limited.nda.draws == free.nda.draws == [[draws] * len(recipe.levels)]
    np.testing.assert_array_equal(limited.scores, free.scores)


@pytest.mark.usefixtures("_sampling")
@pytest.mark.parametrize("draws", [1, 4])
def test_a_limit_that_is_too_short_bounds_a_number_of_draws(draws):
    found = results(replace(RECIPE, draws=draws), seconds=1e-9)[-1]
    assert found.method == "nda-shortlist"
    assert found.nda.ended == [Ended.TIME]
    assert np.max(found.nda.draws) <= draws
    assert any("approximate" in line for line in found.remarks(0))


# -- shortlists -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_sampling")
def test_a_result_of_a_shortlist_is_continued_and_explained(tmp_path):
    first = NDAShortlist(40, RECIPE, stopping=Stopping(precision=0.2)).fit(TRAIN).attribute(QUERY)
    first = Attribution.load(first.save(tmp_path))
    more = NDA(RECIPE, stopping=Stopping(precision=0.03)).fit(TRAIN).attribute(QUERY, start=first)
    assert more.method == "nda-shortlist"
    assert np.sum(more.nda.draws) > np.sum(first.nda.draws)
    assert np.mean([h.error for h in more.top(10)[0]]) < np.mean([h.error for h in first.top(10)[0]])
    train, query = ImageSet.open(TRAIN), ImageSet.open(QUERY)
    exact = explain(replace(more, nda=replace(more.nda, shortlists=[])), query, train, images=10)
    sampled = explain(more, query, train, images=10, sample=100)
    assert sampled.sampled
    assert not exact.sampled
    np.testing.assert_allclose(sampled.maps().sum(), exact.maps().sum(), rtol=0.25)


@pytest.mark.usefixtures("_sampling")
def test_a_fresh_result_of_a_shortlist_is_explained_with_its_own_samples():
    """No other image is compared again, and the explanation adds up to the shares that are shown."""
    train, query = ImageSet.open(TRAIN), ImageSet.open(QUERY)
    result = NDAShortlist(40, replace(RECIPE, draws=2)).fit(train).attribute(query)
    found = explain(result, query, train, images=10)
    assert found.sampled
    np.testing.assert_allclose(found.maps().sum(axis=(1, 2)), result.shares[0, found.images], rtol=1e-5)
    exact = explain(NDA(replace(RECIPE, draws=2)).fit(train).attribute(query), query, train, images=10)
    assert set(found.images[:2]) == set(exact.images[:2])
    np.testing.assert_allclose(found.maps().sum(), exact.maps().sum(), rtol=0.25)


# -- contenders ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_sampling")
def test_with_a_time_limit_the_contenders_of_a_large_collection_are_compared(tmp_path):
    rules = {"precision": 0.03, "top": 2}
    found = results(seconds=1e5, **rules)
    last = found[-1]
    assert last.method == "nda-shortlist"
    listed = last.nda.shortlist
    assert (listed.of, listed.images) == (300, 30)
    assert "a coarse pass chose 30 of the 300 images" in " ".join(last.remarks(0))
    # all of the list have the first draw, and shares of their own
    draws = last.nda.moments[4, 0]
    assert ((draws >= 1).sum(axis=1) == 30).all()
    assert (draws[:, last.ranking(0)[:2]].sum(axis=0) > 4).all()
    exact = results(**rules)[-1]
    assert exact.method == "nda"
    np.testing.assert_allclose(last.shares[0], exact.shares[0], atol=5 * last.nda.errors.max())
    assert explain(last, ImageSet.open(QUERY), ImageSet.open(TRAIN), images=10).sampled
    # without a limit it is continued with the same list, and stays approximate
    more = NDA(replace(RECIPE, draws=80), stopping=Stopping(**rules)).fit(TRAIN)
    more = more.attribute(QUERY, start=Attribution.load(last.save(tmp_path)))
    assert more.nda.draws == [[80, 80]]
    assert more.method == "nda-shortlist"


@pytest.mark.usefixtures("_sampling")
def test_after_one_draw_of_the_list_those_far_behind_get_no_more():
    second = results(seconds=1e5, top=2)[2]  # after the coarse pass and one draw of the list
    draws = second.nda.moments[4, 0]
    assert (draws[:, second.ranking(0)[:2]] == 2).all()
    assert 0 < (draws[0] == 1).sum() < 30
    assert second.nda.errors is not None


@pytest.mark.usefixtures("_sampling")
def test_samples_are_smaller_at_levels_where_less_is_enough(monkeypatch):
    """At high noise all images count alike, and a few stand for all."""
    sizes = {100: [], 700: []}
    sample_of = query_run.QueryRun._sample_of

    def recorded(run, level):
        sizes[run.plan.levels[level].t].append(sample_of(run, level))
        return sizes[run.plan.levels[level].t][-1]

    monkeypatch.setattr(query_run.QueryRun, "_sample_of", recorded)
    levels = tuple(Level(t, (Scale(3),)) for t in sizes)
    results(recipe=Recipe(levels, draws="auto"), seconds=1e5, top=2, precision=0.02)
    assert sizes[700][-1] < sizes[100][-1]


@pytest.mark.usefixtures("_sampling")
def test_draws_of_a_chunk_share_samples_and_shares_stay_what_they_are(monkeypatch):
    """A few draws at once have one sample: less work, the same mean."""
    recipe, found, asked = replace(RECIPE, draws=32), {}, []
    masses = query_run.sampled_masses
    monkeypatch.setattr(query_run, "sampled_masses", lambda *of: (asked.append(len(of[2])), masses(*of))[1])
    for draws in (1, 4):
        monkeypatch.setattr(query_run, "SAMPLE_DRAWS", draws)
        asked.clear()
        found[draws] = NDAShortlist(40, recipe).fit(TRAIN).attribute(QUERY)
        assert sum(asked) == 2 * 32 / draws  # at both levels
    best = found[1].ranking(0)[:2]
    np.testing.assert_allclose(found[4].shares[0, best], found[1].shares[0, best], rtol=0.05)


def test_draws_are_for_images_with_too_large_errors(monkeypatch):
    """Not for those that are known well enough already."""
    asked = []
    wanting = query_run.QueryRun._wanting

    def recorded(run, found, best):
        asked.append((found, best, wanting(run, found, best)))
        return asked[-1][2]

    monkeypatch.setattr(query_run.QueryRun, "_wanting", recorded)
    results(precision=0.04)
    assert len(asked) > 2
    found, best, chosen = asked[-1]
    errors = found.error[best] / np.maximum(found.mean[best], found.mean.max() / 10)
    assert len(chosen) < len(best)
    assert errors[np.isin(best, chosen)].max() == errors[:10].max()


@pytest.mark.usefixtures("_sampling")
def test_one_query_may_be_approximate_and_another_exact(tmp_path):
    rules = {"precision": 0.03, "top": 2}
    one, other = results(**rules)[-1], results(seconds=1e5, **rules)[-1]
    both = joined([one, other], ImageSet.open(np.concatenate([QUERY, QUERY])))
    assert [listed is None for listed in both.nda.shortlists] == [True, False]
    both = Attribution.load(both.save(tmp_path))
    assert both.method == "nda-shortlist"
    assert "approximate" not in " ".join(both.remarks(0))
    assert "approximate" in " ".join(both.remarks(1))


@pytest.mark.slow
def test_shares_by_contenders_are_unbiased_and_their_intervals_hold():
    """Against long exact runs, with the sizes of samples that users get."""
    cards, recipe = postcards(3004, 8), replace(Recipe.for_size(8, 8), draws="auto", views=())
    train = cards.subset(np.arange(3000))
    inside, ratios = [], []
    for number in (3001, 3003):
        query = cards.subset([number])
        truth = NDA(replace(recipe, draws=200, seed=1000)).fit(train).attribute(query)
        best = truth.ranking(0)[:10]
        shares, errors = truth.shares[0, best], truth.nda.errors[0, best]
        for seed in range(16):
            rules = Stopping(seconds=1e5, precision=0.06)
            found = NDAShortlist(300, replace(recipe, seed=seed), stopping=rules).fit(train).attribute(query)
            assert set(best) <= set(np.flatnonzero(found.nda.moments[4, 0, 0]))
            wide = np.hypot(found.nda.errors[0, best], errors)
            inside.append(np.abs(found.shares[0, best] - shares) < 1.96 * wide)
            ratios.append(found.shares[0, best].sum() / shares.sum())
    assert 0.93 <= np.mean(inside) <= 0.97
    assert np.mean(ratios) == pytest.approx(1, abs=0.02)


# -- time -----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_sampling")
def test_results_grow_more_certain_and_the_first_comes_from_a_coarse_pass():
    found = results(precision=0.05)
    assert [one.nda.ended[0] for one in found[:-1]] == [Ended.PROVISIONAL] * (len(found) - 1)
    assert found[0].nda.errors is None
    assert found[0].method == "nda-shortlist"
    assert "coarse pass" in " ".join(found[0].remarks(0))
    assert found[-1].method == "nda"
    errors = [np.mean([h.error for h in one.top(10)[0]]) for one in found if one.nda.errors is not None]
    assert errors[-1] < errors[0]


@pytest.mark.usefixtures("_sampling")
def test_too_little_time_for_all_images_gives_a_shortlist(monkeypatch):
    monkeypatch.setattr(choice, "FITS", 1e9)
    notes = []
    watch = Watch()
    watch.note = notes.append
    found = NDA(RECIPE, stopping=Stopping(seconds=30, precision=0.2)).fit(TRAIN).attribute(QUERY, progress=watch)
    assert found.method == "nda-shortlist"
    assert found.nda.shortlist.images == 30  # a tenth
    assert "a coarse pass has chosen 30 of them" in notes[0]
    assert "approximate" in " ".join(found.remarks(0))
    exact = NDA(RECIPE).fit(TRAIN).attribute(QUERY)
    assert set(found.ranking(0)[:2]) == set(exact.ranking(0)[:2]) == {5, 9}


@pytest.mark.parametrize(
    ("images", "image", "seconds", "fixed", "listed", "sample"),
    [
        (50_000, 0.001, 60, "auto", 5000, 1000),  # a tenth at the most
        (50_000, 0.004, 60, "auto", 1000, 1000),  # six draws of so many, and of the sample
        (2000, 0.06, 55, "auto", 128, 238),  # two draws of all that fit, of which a third is listed
        (228, 0.06, 20, "auto", 22, 111),
        (228, 0.06, 5, "auto", 0, 1000),  # a sample that small says nothing
        (2000, 0.06, 200, 20, 46, 87),
        (2000, 1.0, 60, "auto", 0, 1000),
    ],
)
def test_shortlist_and_sample_fit_into_the_time(images, image, seconds, fixed, listed, sample):
    assert choice._shortlist(images, image, seconds, fixed) == (listed, sample)
    draws = choice.LEAST_DRAWS if fixed == "auto" else fixed
    assert not listed or draws * (listed + sample) * image <= seconds


@pytest.mark.usefixtures("_sampling")
def test_in_little_time_the_sample_is_small_and_errors_say_so(monkeypatch):
    room = choice.room_within
    monkeypatch.setattr(query_run, "room_within", lambda *of: room(*of)._replace(listed=30, sample=20))
    monkeypatch.setattr(query_run, "SAMPLED", 0)
    stopping = Stopping(seconds=1e4, precision=1e-3, most_draws=64)
    found = NDA(RECIPE, stopping=stopping).fit(TRAIN).attribute(QUERY)
    exact = NDA(replace(RECIPE, draws=400, seed=5)).fit(TRAIN).attribute(QUERY)
    best = exact.ranking(0)[:5]
    assert found.nda.shortlist.sampled == 20
    wide = np.hypot(found.nda.errors[0, best], exact.nda.errors[0, best])
    assert (np.abs(found.shares[0, best] - exact.shares[0, best]) < 3 * wide).all()
    assert found.shares[0, best].sum() == pytest.approx(exact.shares[0, best].sum(), rel=0.1)


@pytest.mark.usefixtures("_sampling")
def test_a_coarse_pass_that_takes_too_long_leaves_levels_out_and_its_recall_is_not_known(monkeypatch):
    monkeypatch.setattr(choice, "FITS", 1e9)
    whole = NDA(RECIPE, stopping=Stopping(seconds=30)).fit(TRAIN).attribute(QUERY)
    assert whole.nda.shortlist.recall is not None
    monkeypatch.setattr(coarse, "COARSE_TIME", 1e-9)
    shapes, masses = [], LocalWork.masses
    monkeypatch.setattr(
        LocalWork, "masses", lambda work, jobs: (shapes.append(work.train.shape), masses(work, jobs))[1]
    )
    cut = NDA(RECIPE, stopping=Stopping(seconds=30)).fit(TRAIN).attribute(QUERY)
    assert shapes.count((3, 8, 8)) == 1  # of two levels, in small pictures
    assert cut.nda.shortlist.recall is None
    assert "was not measured" in " ".join(cut.remarks(0))
    assert set(cut.ranking(0)[:2]) == {5, 9}


@pytest.mark.usefixtures("_sampling")
def test_an_image_that_the_coarse_pass_missed_joins_when_samples_show_it(monkeypatch):
    monkeypatch.setattr(choice, "FITS", 1e9)
    looked = query_run.looked_closer

    def blind(*of):
        shares = looked(*of)
        shares[9] = 0
        return shares

    monkeypatch.setattr(query_run, "looked_closer", blind)
    found = NDA(RECIPE, stopping=Stopping(seconds=1e4, precision=0.02)).fit(TRAIN).attribute(QUERY)
    exact = NDA(replace(RECIPE, draws=400, seed=5)).fit(TRAIN).attribute(QUERY)
    facts = found.nda.shortlist
    assert facts.images == 30
    assert facts.added > 0
    assert f"samples of the others added {facts.added}" in " ".join(found.remarks(0))
    assert set(found.ranking(0)[:2]) == {5, 9}
    wide = np.hypot(found.nda.errors[0, 9], exact.nda.errors[0, 9])
    assert abs(found.shares[0, 9] - exact.shares[0, 9]) < 3 * wide
    # what joined without a draw at each level is left out
    assert (found.nda.moments[4, 0] > 0).sum(axis=1).tolist() == [30 + facts.added] * 2


@pytest.mark.usefixtures("_sampling")
def test_too_little_time_for_anything_gives_the_answer_of_the_coarse_pass():
    found = NDA(RECIPE, stopping=Stopping(seconds=1e-6)).fit(TRAIN).attribute(QUERY)
    assert found.method == "nda-shortlist"
    assert found.nda.shortlist.images == 0
    assert found.nda.ended == [Ended.TIME]
    assert found.nda.errors is None
    assert found.shares.sum() == pytest.approx(1, abs=0.05)


@pytest.mark.usefixtures("_sampling")
def test_work_ends_at_the_time_limit(monkeypatch):
    """Comparisons that turn out far slower than the trial said are not waited for."""
    slow = LocalWork.answers

    def slower(*arguments):
        for block in slow(*arguments):
            time.sleep(0.1)
            yield block

    monkeypatch.setattr(LocalWork, "answers", slower)
    begin = time.monotonic()
    found = NDA(RECIPE, stopping=Stopping(seconds=1.0, precision=1e-3, most_draws=10**6)).fit(TRAIN).attribute(QUERY)
    assert found.nda.ended == [Ended.TIME]
    assert time.monotonic() - begin < 20  # it would go on for hours


@pytest.mark.usefixtures("_sampling")
def test_the_time_limit_may_come_between_the_levels_of_a_draw(monkeypatch):
    """One level then has one draw, the other two."""
    drawn, check = [], query_run.Clock.check

    def out_of_time(clock):
        check(clock)
        if len(drawn) == 3:
            raise query_run.OutOfTime

    sampled = query_run.QueryRun._sampled

    def counted(*arguments):
        for masses in sampled(*arguments):
            drawn.append(1)
            yield masses

    monkeypatch.setattr(query_run.Clock, "check", out_of_time)
    monkeypatch.setattr(query_run.QueryRun, "_sampled", counted)
    found = results(seconds=1e5)[-1]
    assert found.nda.ended == [Ended.TIME]
    assert found.nda.draws == [[2, 1]]
    assert len(found.nda.normalisers[0]) == 1
    explained = explain(found, ImageSet.open(QUERY), ImageSet.open(TRAIN), images=4)
    assert explained.sampled


def test_progress_never_falls_back():
    seen = []
    NDA(RECIPE, stopping=Stopping(precision=0.05)).fit(TRAIN).attribute(
        clouds(2, seed=5), progress=lambda done, total: seen.append(done / total)
    )
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= 1
