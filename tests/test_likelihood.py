"""Likelihood ratios: their cost, how they are fitted, and where they are shown."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from patchtrace import Attribution, Null, PatchtraceError, PixelSimilarity, calibrate
from patchtrace.demo import postcards
from patchtrace.likelihood import RIDGE, Likelihood, cllr
from patchtrace.null import calibration
from patchtrace.null.planted import of_hosts, planted
from patchtrace.viewer.headline import headline

ratios = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


@given(ratios, ratios)
def test_the_cost_is_that_of_its_definition(sources, others):
    expected = sum(math.log2(1 + 1 / ratio) for ratio in sources) / len(sources)
    expected += sum(math.log2(1 + ratio) for ratio in others) / len(others)
    assert cllr(np.array(sources), np.array(others)) == pytest.approx(expected / 2)


def test_the_line_is_that_of_logistic_regression():
    rng = np.random.default_rng(1)
    sources, others = rng.normal(3, 1, 40), rng.normal(2, 2, 160)
    found = Likelihood.fitted(sources, others)
    values = np.concatenate([sources, others])
    middle, spread = values.mean(), values.std()

    def loss(line):
        logits = [line[0] + line[1] * (some - middle) / spread for some in (sources, others)]
        both = np.logaddexp(0, -logits[0]).mean() + np.logaddexp(0, logits[1]).mean()
        return both / 2 + RIDGE / 2 * line[1] ** 2

    line = minimize(loss, [0.0, 0.0], tol=1e-12).x
    assert found.slope == pytest.approx(line[1] / spread, rel=1e-4)
    assert found.intercept == pytest.approx(line[0] - line[1] * middle / spread, rel=1e-4)


def test_a_statistic_that_says_nothing_earns_no_ratio():
    values = np.linspace(0, 1, 50)
    assert not Likelihood.fitted(values, values).earned


def test_no_ratio_is_beyond_what_the_sample_shows():
    known = Likelihood.fitted(np.linspace(10, 11, 30), np.linspace(0, 1, 60))
    assert known.earned
    assert [known.ratio(value) for value in (-1e9, 1e9)] == pytest.approx([1 / 31, 61])
    assert "ratio 61 (no more can be shown)" in known.sentence(1e9)
    assert "ratio 0.032 (no more can be shown)" in known.sentence(-1e9)
    # held-out ratios are bounded by what was left to fit them with
    assert known.cllr == pytest.approx((np.log2(1 + 1 / 49) + np.log2(1 + 1 / 25)) / 2, rel=1e-6)


def test_the_cost_is_that_of_pictures_that_were_held_out():
    # one of five parts lies the other way round: a ratio that was fitted on all of them would know that
    sources = np.where(np.arange(50) % 5 == 0, -5.0, 5.0)
    known = Likelihood.fitted(sources, -sources)
    of_all = cllr(*(np.array([known.ratio(value) for value in values]) for values in (sources, -sources)))
    assert known.cllr > of_all + 0.1


@pytest.mark.parametrize(
    "fields", [(np.nan, 1.0, 0.5, 50, 50), (0.0, 1.0, -0.5, 50, 50), (0.0, 1.0, 0.5, 3, 50), (0.0, 1, 0.5, 50, 50)]
)
def test_what_no_calibration_comes_to_is_refused(fields):
    with pytest.raises(PatchtraceError):
        Likelihood(*fields)


@pytest.fixture(scope="module")
def cards():
    return postcards(70, size=16)


@pytest.fixture(scope="module")
def null(cards):
    null = calibrate(cards.subset(range(30)), cards.subset(range(30, 60)), likelihood_ratio=True)
    return replace(null, likelihood=replace(null.likelihood, intercept=-16.0, slope=4.0, cllr=0.25))


def test_planted_pictures_have_a_square_of_what_is_allowed(cards):
    train, hosts = cards.subset(range(6)), cards.subset(range(30, 42))
    allowed = np.zeros((12, 6), bool)
    allowed[:, 4] = True
    made = planted(train, hosts, allowed)
    for number in np.flatnonzero(of_hosts(12)):
        new = (made.pixels[number] != hosts.pixels[number]).any(axis=0)
        rows, columns = (np.flatnonzero(new.any(axis=axis)) for axis in (1, 0))
        square = made.pixels[number][:, rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        windows = np.lib.stride_tricks.sliding_window_view(train.pixels[4], square.shape)
        assert (windows == square).all(axis=(-3, -2, -1)).any()


def test_a_null_keeps_it_and_the_same_controls(cards, null, tmp_path):
    assert (null.likelihood.sources, null.likelihood.others) == (30, 30)
    loaded = Null.load(null.save(tmp_path))
    assert loaded.likelihood == null.likelihood
    np.testing.assert_array_equal(loaded.rows, calibrate(cards.subset(range(30)), cards.subset(range(30, 60))).rows)


def test_members_are_no_sources_of_themselves(cards, monkeypatch):
    seen = []
    monkeypatch.setattr(calibration, "likelihood_of", lambda *rows: seen.extend(rows))
    calibrate(cards.subset(range(40)), count=20, likelihood_ratio=True)
    rows, made = (np.isnan(some) for some in seen)
    assert rows.any(axis=2).all()
    np.testing.assert_array_equal(made[of_hosts(20)], rows[of_hosts(20)])
    assert not made[~of_hosts(20)].any()


def test_work_that_was_stopped_is_resumed(cards, tmp_path):
    def stop(done, total):
        if done >= 50 * 30:
            raise KeyboardInterrupt

    train, controls, seen = cards.subset(range(30)), cards.subset(range(30, 60)), []
    with pytest.raises(KeyboardInterrupt):
        calibrate(train, controls, likelihood_ratio=True, checkpoint=tmp_path, progress=stop)
    resumed = calibrate(
        train, controls, likelihood_ratio=True, checkpoint=tmp_path, progress=lambda done, total: seen.append(done)
    )
    assert seen[:4] == [300, 600, 900, 1200]
    assert resumed.likelihood == calibrate(train, controls, likelihood_ratio=True).likelihood


def test_a_result_has_it_in_sentence_json_page_and_file(cards, null, tmp_path):
    train, queries = cards.subset(range(30)), cards.subset([4, 65])
    details = null.judge(queries, train, rate=0.05)
    result = replace(PixelSimilarity().fit(train).attribute(queries), null=details)
    loaded = Attribution.load(result.save(tmp_path))
    for some in (result, loaded):
        copied, new = (query["null"] for query in json.loads(json.dumps(some.to_json(3)))["queries"])
        assert copied["likelihood_ratio"] == pytest.approx(31)
        assert new["likelihood_ratio"] < 1
        assert "it holds for such pictures only, and is not the odds of copying" in new["likelihood_sentence"]
        assert "Cllr 0.25 on held-out ones" in " ".join(headline(some, 0, [4], [4])["sentences"])


def test_it_is_not_shown_where_it_is_not_earned_or_stale(cards, null):
    train, queries = cards.subset(range(30)), cards.subset([65])
    assert null.judge(queries, train).ratio_sentence(0)
    assert null.judge(queries, train.subset(range(25))).likelihood is None
    useless = replace(null, likelihood=replace(null.likelihood, cllr=1.0))
    about = useless.judge(queries, train).about(0)
    assert (about["likelihood_ratio"], about["likelihood_sentence"]) == (None, "")


def test_few_controls_have_none(cards):
    with pytest.raises(PatchtraceError, match="19 controls at least, not 9"):
        calibrate(cards.subset(range(30)), count=9, likelihood_ratio=True)
