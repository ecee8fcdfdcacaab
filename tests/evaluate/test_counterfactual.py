"""Images are removed, models trained again, and pictures made from the same noise."""

from __future__ import annotations

import csv
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from networks import TINY
from PIL import Image
from scipy.stats import ttest_1samp

from patchtrace import Attribution, ImageSet, PatchtraceError, PixelSimilarity
from patchtrace.demo import postcards
from patchtrace.diffusion import Denoiser, Training
from patchtrace.drawing.sheet import MOST_QUERIES
from patchtrace.evaluate import counterfactual, counterfactual_result, retraining
from patchtrace.evaluate.counterfactual import CHANCE, OTHER_SEED, Counterfactual, Removal, measured
from patchtrace.methods.encoders import load_encoder

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

TRAIN = postcards(24, size=8)
REMOVE, QUERIES = 6, 3


def as_vectors(pictures):
    return pictures.reshape(len(pictures), -1)


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    directory = tmp_path_factory.mktemp("counterfactual")
    network = directory / "tiny.json"
    network.write_text(json.dumps(TINY))
    training = Training(model=str(network), epochs=2, batch=8, rate=1e-2)
    return Counterfactual(TRAIN, directory, training, remove=REMOVE, queries=QUERIES, steps=3)


@pytest.fixture(scope="module")
def scores(experiment):
    return {"pixel": PixelSimilarity().fit(TRAIN).attribute(experiment.originals())}


@pytest.fixture(scope="module")
def result(experiment, scores):
    return experiment.run(scores, encoder=as_vectors)


@pytest.fixture
def trainings(monkeypatch):
    """The names of images that models are trained on while a test runs; those that are loaded do not count."""
    seen = []

    def counted(images, place, settings, **more):
        if not (place / "training.json").is_file():
            seen.append((images.ids, settings.seed))
        return train(images, place, settings, **more)

    train = retraining.train
    monkeypatch.setattr(retraining, "train", counted)
    return seen


def pixels(images):
    return images.pixels.astype(np.float64) / 127.5 - 1


# --- what is removed ---


def test_each_model_is_trained_without_the_first_images_of_its_query(experiment, scores, trainings, tmp_path):
    replace(experiment, directory=tmp_path, queries=1).run(
        {"pixel": scores["pixel"].scores[:1]}, chance=False, other_seed=False, encoder=None
    )
    gone = set(np.argsort(-scores["pixel"].scores[0])[:REMOVE])
    assert trainings == [(TRAIN.ids, 0), (tuple(x for i, x in enumerate(TRAIN.ids) if i not in gone), 0)]


def test_scores_and_a_result_with_these_scores_remove_the_same(experiment, scores):
    plain = experiment.removals({"pixel": scores["pixel"].scores})
    assert plain == experiment.removals(scores)
    assert all(len(removal.images) == REMOVE and removal.seed == 0 for removal in plain["pixel"])


def test_chance_repeats_with_its_seed_only(experiment):
    first, again, other = (
        replace(experiment, chance_seed=seed).removals({}, other_seed=False)[CHANCE] for seed in (0, 0, 1)
    )
    assert first == again
    assert first != other
    assert len(set(first)) == QUERIES
    for removal in first:
        assert len(set(removal.images)) == REMOVE


def test_fewer_random_removals_are_shared_and_that_is_said(experiment, result, trainings):
    own = experiment.removals({})[CHANCE]
    fewer = replace(experiment, chance_models=2)
    assert fewer.removals({})[CHANCE] == [own[0], own[1], own[0]]
    found = fewer.run({}, encoder=None)
    assert trainings == []  # the models are those of the first two queries
    assert "2 random removals" in found.remarks[0]
    assert found.facts["chance_models"] == 2
    np.testing.assert_array_equal(found.l2[CHANCE][:2], result.l2[CHANCE][:2])


# --- what is measured ---


def test_pictures_and_numbers_are_those_made_by_hand(experiment, scores, result):
    def picture(kept, seed, query):
        trained = retraining.Retraining(TRAIN, experiment.directory, experiment.training)
        model = Denoiser.load(trained.place(kept, seed))
        assert seed or not kept.all() or trained.place(kept, seed) == experiment.model
        return model.sample(1, sampler="ddim", steps=3, seed=0, first=query)[0] / 127.5 - 1

    everything = np.ones(len(TRAIN), bool)
    for query in range(QUERIES):
        kept = everything.copy()
        kept[scores["pixel"].ranking(query)[:REMOVE]] = False
        before, after, other = picture(everything, 0, query), picture(kept, 0, query), picture(everything, 1, query)
        np.testing.assert_allclose(pixels(experiment.originals())[query], before, atol=1e-12)
        assert result.l2["pixel"][query] == pytest.approx(np.sqrt(((before - after) ** 2).sum()), rel=1e-5)
        assert result.l2[OTHER_SEED][query] == pytest.approx(np.sqrt(((before - other) ** 2).sum()), rel=1e-5)
        a, b = (as_vectors(x[None])[0] for x in (before, after))
        cosine = a @ b / np.sqrt((a @ a) * (b @ b))
        assert result.cosine["pixel"][query] == pytest.approx(cosine, rel=1e-5)
    assert (result.l2["pixel"] > 0).all()


def test_the_same_model_makes_the_same_picture(experiment, monkeypatch):
    monkeypatch.setattr(Counterfactual, "removals", lambda *_, **__: {"nothing": [Removal(())] * QUERIES})
    found = experiment.run({}, encoder=as_vectors)
    assert (found.l2["nothing"] == 0).all()
    np.testing.assert_allclose(found.cosine["nothing"], 1, rtol=1e-12)


def test_a_picture_does_not_depend_on_how_many_others_there_are(experiment, tmp_path):
    alone = replace(experiment, directory=tmp_path, queries=1).originals()
    assert (alone.pixels[0] == experiment.originals().pixels[0]).all()


def test_summaries_are_over_queries_and_paired_with_chance(experiment, result):
    by_name = {one.method: one for one in result.summary("cosine")}
    assert list(by_name) == ["pixel", CHANCE, OTHER_SEED]
    values, chance = result.cosine["pixel"], result.cosine[CHANCE]
    one = by_name["pixel"]
    assert one.median == np.sort(values)[1]
    assert (one.lower, one.upper) == pytest.approx(tuple(np.quantile(values, (0.25, 0.75))))
    assert one.mean.mean == pytest.approx(values.mean())
    low, high = ttest_1samp(values, 0).confidence_interval(0.95)
    assert one.mean[1:] == pytest.approx((max(low, -1), min(high, 1)))  # no cosine is beyond these
    assert one.difference[1:] == pytest.approx(tuple(ttest_1samp(values - chance, 0).confidence_interval(0.95)))
    assert by_name[CHANCE].difference is None


def test_without_the_packages_of_the_encoder_there_is_no_cosine(experiment, scores, result, monkeypatch, tmp_path):
    def lacking(*_):
        raise PatchtraceError("install this") from ImportError("no module")

    result.write(tmp_path)
    assert (tmp_path / "cosine.png").is_file()
    monkeypatch.setattr(counterfactual, "load_encoder", lacking)
    found = experiment.run(scores)
    assert found.cosine is None
    assert found.remarks == ("no cosine: install this",)
    np.testing.assert_array_equal(found.l2["pixel"], result.l2["pixel"])
    found.write(tmp_path)
    assert not (tmp_path / "cosine.png").exists()
    assert (tmp_path / "counterfactual.csv").read_text().splitlines()[0] == "method,query,l2"


# --- units of work ---


def test_a_second_run_trains_nothing_and_says_the_same(experiment, scores, result, trainings):
    again = experiment.run(scores, encoder=as_vectors)
    assert trainings == []
    assert list(again.rows()) == list(result.rows())


def test_other_settings_are_never_taken_for_these(experiment, result, tmp_path):
    before = experiment._keys(Removal(()), [0])
    for other in (
        replace(experiment, steps=4),
        replace(experiment, sample_seed=1),
        replace(experiment, training=replace(experiment.training, epochs=3)),
        replace(experiment, train=replace(TRAIN, pixels=TRAIN.pixels[::-1])),
    ):
        assert other._keys(Removal(()), [0]) != before
    assert replace(experiment, remove=5, queries=2)._keys(Removal(()), [0]) == before


def test_more_queries_need_only_what_is_new(experiment, result, trainings):
    more = replace(experiment, queries=QUERIES + 1)
    found = more.run({}, encoder=None)
    assert len(trainings) == 1
    for name in (CHANCE, OTHER_SEED):
        np.testing.assert_array_equal(found.l2[name][:QUERIES], result.l2[name])


def test_shards_together_do_all_the_work_once(experiment, scores, result, trainings, tmp_path):
    apart = replace(experiment, directory=tmp_path)
    parts, told = [], []
    for part in (1, 2, 3):
        parts.append(apart.run(scores, encoder=as_vectors, shard=(part, 3), progress=lambda *at: told.append(at)))
    assert parts[:2] == [None, None]
    assert list(parts[2].rows()) == list(result.rows())
    assert len(trainings) == len(set(trainings)) == 1 + QUERIES + QUERIES + 1
    assert [at[1] for at in told if at[0] == at[1]] == [3, 2, 2]  # seven models beside that of everything


def test_methods_that_remove_the_same_share_a_model(experiment, result, trainings, scores):
    found = experiment.run({**scores, "twin": scores["pixel"].scores}, encoder=None)
    assert trainings == []
    np.testing.assert_array_equal(found.l2["twin"], found.l2["pixel"])


def test_work_can_be_sent_to_another_process(experiment):
    sent = pickle.loads(pickle.dumps(experiment._make))
    assert sent.__self__._keys(Removal((1,)), [0]) == experiment._keys(Removal((1,)), [0])


def test_a_damaged_picture_is_sampled_again(experiment, scores, result, trainings):
    removal = experiment.removals(scores)["pixel"][1]
    damaged = experiment._cache.path(experiment._keys(removal, [1])[1])
    damaged.write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="a picture of a model in .* is damaged and computed again") as warned:
        again = experiment.run(scores, encoder=as_vectors)
    assert len(warned) == 1
    assert trainings == []
    assert list(again.rows()) == list(result.rows())
    assert damaged.is_file()


# --- what is refused ---


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"remove": 24}, "1 to 23"),
        ({"remove": 0}, "1 to 23"),
        ({"queries": 0}, "at least 1"),
        ({"steps": 0}, "at least 1"),
        ({"chance_models": 4}, "1 to 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(experiment, changes, says):
    with pytest.raises(PatchtraceError, match=says):
        replace(experiment, **changes)


def test_scores_that_do_not_fit_are_refused(experiment, scores):
    right = scores["pixel"]
    with pytest.raises(PatchtraceError, match=r"nda have shape \(3, 23\): use \(3, 24\)"):
        experiment.removals({"nda": right.scores[:, 1:]})
    with pytest.raises(PatchtraceError, match="not finite"):
        experiment.removals({"nda": np.full((QUERIES, 24), np.nan)})
    with pytest.raises(PatchtraceError, match="other images"):
        experiment.removals({"nda": replace(right, train_ids=right.train_ids[::-1])})
    with pytest.raises(PatchtraceError, match="another name"):
        experiment.removals({CHANCE: right})
    with pytest.raises(PatchtraceError, match="nothing to remove"):
        experiment.removals({}, chance=False, other_seed=False)
    with pytest.raises(PatchtraceError, match="shard 4/3"):
        experiment.run(scores, shard=(4, 3))
    with pytest.raises(PatchtraceError, match="there is no encoder 'lite'"):
        experiment.run(scores, encoder="lite")


def test_a_result_about_other_pictures_is_refused(experiment, scores):
    other = PixelSimilarity().fit(TRAIN).attribute(TRAIN.subset(range(QUERIES)))
    with pytest.raises(PatchtraceError, match="other pictures than the originals"):
        experiment.run({"pixel": other}, encoder=None)
    renamed = PixelSimilarity().fit(TRAIN).attribute(replace(experiment.originals(), ids=("a", "b", "c")))
    assert isinstance(renamed, Attribution)
    assert experiment.run({"pixel": renamed}, encoder=None) is not None


# --- what is written ---


def flat(value, count=2):
    return ImageSet(np.full((count, 3, 4, 4), value, np.uint8), tuple(f"q{i}" for i in range(count)))


def test_tables_figures_and_sheet_are_written(result, tmp_path):
    result.write(tmp_path)
    with (tmp_path / "counterfactual.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 3 * QUERIES
    assert rows[1] == {
        "method": "pixel",
        "query": "query-001.png",
        "l2": repr(float(result.l2["pixel"][1])),
        "cosine": repr(float(result.cosine["pixel"][1])),
    }
    with (tmp_path / "summary.csv").open(newline="") as stream:
        summary = list(csv.DictReader(stream))
    assert [(row["measure"], row["method"]) for row in summary] == [
        (measure, method) for measure in ("l2", "cosine") for method in ("pixel", CHANCE, OTHER_SEED)
    ]
    assert float(summary[0]["minus_chance"]) == pytest.approx((result.l2["pixel"] - result.l2[CHANCE]).mean())
    assert summary[1]["minus_chance"] == ""
    told = json.loads((tmp_path / "counterfactual.json").read_text())
    assert (told["facts"]["remove"], told["facts"]["encoder"]["encoder"]) == (REMOVE, "as_vectors")
    assert told["facts"]["methods"] == {"pixel": {"method": "pixel", "settings": {"metric": "cosine"}}}
    for name in ("l2", "cosine", "sheet"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            picture.load()
            assert picture.width > 300


def test_the_terminal_has_a_table_for_each_measure(result):
    first, second = str(result).split("\n\n")
    assert first.startswith("L2 to the original")
    assert second.startswith("cosine with the original")
    assert [line.split("  ")[0] for line in second.splitlines()[2:]] == ["pixel", CHANCE, OTHER_SEED]


def test_the_sheet_has_the_original_before_what_it_became():
    sheet = measured(flat(10), {"nda": flat(100), CHANCE: flat(200)}).sheet()
    box = counterfactual_result
    for row in range(2):
        y = box.MARGIN + box.HEADER + row * (box.TILE + box.CAPTION + box.GAP) + box.TILE // 2
        left = box.MARGIN + box.TILE + 3 * box.GAP
        places = [box.MARGIN, left, left + box.TILE + box.GAP]
        assert [sheet.getpixel((x + box.TILE // 2, y))[0] for x in places] == [10, 100, 200]


def test_a_sheet_shows_only_as_many_queries_as_can_be_looked_at():
    few, many = (measured(flat(1, count), {"nda": flat(2, count)}).sheet() for count in (MOST_QUERIES, 60))
    assert few.height == many.height


def test_one_query_has_no_interval():
    found = measured(flat(0, 1), {"nda": flat(51, 1)}, load_encoder(as_vectors))
    assert str(found.summary("l2")[0].mean) == "2.771"
    assert "nan" not in str(found)
