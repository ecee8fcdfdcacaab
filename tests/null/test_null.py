"""The null of a collection: agreement, calibration, p-values, and what a changed collection does to them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps

from patchtrace import Attribution, ImageSet, Null, NullDetails, PatchtraceError, PixelSimilarity, calibrate
from patchtrace.demo import postcards
from patchtrace.null import agreement as module
from patchtrace.null.agreement import agreement, structure
from patchtrace.null.alike import near_duplicates
from patchtrace.null.calibration import AT_ONCE
from patchtrace.null.collection import beside, standardised
from patchtrace.null_details import p_value, stand_out
from patchtrace.viewer.data import look_closer

SIDE = 16


@pytest.fixture(scope="module")
def cards():
    return postcards(70, size=SIDE)


@pytest.fixture(scope="module")
def train(cards):
    return cards.subset(range(40))


@pytest.fixture(scope="module")
def null(cards, train):
    return calibrate(train, cards.subset(range(40, 59)))


def changed(cards, number, change):
    picture = change(cards.picture(number)).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return ImageSet.open(np.asarray(picture)[None])


def slow_ratio(window, there):
    """The likelihood ratio of two windows, in float64; none if one of them is plain."""
    if min((window**2).mean(), (there**2).mean()) < module.PLAIN:
        return 0.0
    r = (window * there).sum() / np.sqrt((window**2).sum() * (there**2).sum())
    r = min(max(r, 0), module.MOST_CORRELATION)
    return -window[0].size * np.log(1 - r * r)


def slow_anywhere(query, image):
    """By the definition, template by template and place by place."""
    best = 0.0
    height, width = query.shape[1:]
    field = structure(image[None])[0].astype(np.float64)
    for scale in module.SCALES:
        resized = module._resized(query, round(scale * height), round(scale * width))
        for picture in (resized, resized[..., ::-1]):
            drawn = structure(np.ascontiguousarray(picture)[None])[0].astype(np.float64)
            for part, places in module.WINDOWS:
                h, w = (round(part * side) for side in drawn.shape[1:])
                for top in np.linspace(0, drawn.shape[1] - h, places).round().astype(int):
                    for left in np.linspace(0, drawn.shape[2] - w, places).round().astype(int):
                        window = drawn[:, top : top + h, left : left + w]
                        for y in range(height - h + 1):
                            for x in range(width - w + 1):
                                best = max(best, slow_ratio(window, field[:, y : y + h, x : x + w]))
    return best**0.5


def slow_in_place(query, image):
    """By the definition, window by window."""
    best = 0.0
    height, width = query.shape[1:]
    drawn, field = (structure(picture[None])[0].astype(np.float64) for picture in (query, image))
    for own in (drawn, drawn[..., ::-1]):
        for part in module.SIZES:
            h, w = round(part * height), round(part * width)
            for y in range(height - h + 1):
                for x in range(width - w + 1):
                    here = np.s_[:, y : y + h, x : x + w]
                    best = max(best, slow_ratio(own[here], field[here]))
    return best**0.5


@pytest.mark.parametrize(("way", "slow"), [(0, slow_anywhere), (1, slow_in_place)])
def test_agreement_is_what_its_definition_says(cards, way, slow):
    some = cards.subset([3, 11])
    found = agreement(cards.subset([7]), some)[0, way]
    query = cards.block(7, 8)[0]
    np.testing.assert_allclose(found, [slow(query, image) for image in some.block(0, 2)], rtol=1e-3)


def test_agreement_of_pictures_that_are_not_square_is_what_its_definition_says(cards):
    wide = ImageSet.open(np.ascontiguousarray(cards.pixels[:4, :, 2:14]))
    found, (query, image) = agreement(wide.subset([0]), wide.subset([2]))[0, :, 0], wide.block(0, 3)[[0, 2]]
    np.testing.assert_allclose(found, [slow_anywhere(query, image), slow_in_place(query, image)], rtol=1e-3)


def test_agreement_does_not_depend_on_how_a_collection_is_cut(cards, train, monkeypatch):
    whole = agreement(cards.subset([50]), train)
    monkeypatch.setattr(module, "SPECTRA_BYTES", 1)
    np.testing.assert_allclose(agreement(cards.subset([50]), train), whole, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda picture: picture, id="copy"),
        pytest.param(ImageOps.mirror, id="mirrored"),
        pytest.param(lambda picture: picture.point([round(0.6 * level) for level in range(256)] * 3), id="darker"),
        pytest.param(lambda picture: ImageEnhance.Contrast(picture).enhance(0.5), id="less contrast"),
    ],
)
def test_a_changed_copy_stands_out_and_so_does_its_source(cards, train, null, change):
    details = null.judge(changed(cards, 5, change), train, rate=0.05)
    assert details.p(0) == p_value(0, 19)
    assert details.best(0) == 5
    assert details.stands_out(0, 5)


def test_other_pictures_do_not_stand_out_more_often_than_the_rate_says(cards, train):
    """Under exchangeability the number of controls above a query is uniform: over all ways to choose the query."""
    others = cards.subset(range(40, 70))
    rows = agreement(others, train)
    ranks = []
    for query in range(len(rows)):
        z, tops = beside(np.delete(rows, query, axis=0), rows[query])
        ranks.append(int((tops >= z.max()).sum()))
    # z is over all of them together, the query included, so that each is first, second, ... exactly once
    assert sorted(ranks) == list(range(len(rows)))


def test_members_are_compared_without_themselves_and_their_near_duplicates(cards, train):
    pixels = np.concatenate([train.pixels[:], train.pixels[3:4, :, :, ::-1]])
    twice = ImageSet.open(pixels)
    null = calibrate(twice, count=len(twice))
    assert null.kind == "members"
    assert np.isnan(null.rows[3][:, [3, 40]]).all()
    assert np.isnan(null.rows[40][:, [3, 40]]).all()
    assert np.isnan(null.rows).sum() == 2 * (len(twice) + 2)
    assert "each without itself" in null.judge(cards.subset([60]), twice).sentence(0)


def test_leaving_an_image_out_is_exact(train):
    """What the others have does not depend on the image, so its column can be left out."""
    without = train.subset(range(1, len(train)))
    np.testing.assert_allclose(
        agreement(train.subset([0]), without)[0], agreement(train.subset([0]), train)[0, :, 1:], rtol=1e-4, atol=1e-3
    )


def test_near_duplicates_are_found_and_others_are_not(cards, train):
    darker = np.clip(train.pixels[8:9].astype(int) * 7 // 10 + 5, 0, 255).astype(np.uint8)
    more = ImageSet.open(np.concatenate([train.pixels[:], darker, train.pixels[2:3, :, :, ::-1]]))
    found = near_duplicates(more, [2, 8, 20])
    assert [some.tolist() for some in found] == [[2, 41], [8, 40], [20]]


def test_a_picture_without_contrast_is_like_itself_only():
    plain = ImageSet.open(np.full((4, 3, 16, 16), 90, np.uint8))
    assert [some.tolist() for some in near_duplicates(plain, [1])] == [[1]]
    assert agreement(plain.subset([0]), plain).max() == 0


def test_standardised_rows_are_those_of_the_way_with_more():
    rows = np.random.default_rng(0).random((30, 2, 8)).astype(np.float32)
    rows[3, :, 2] = np.nan
    z = standardised(rows)
    each = np.stack([standardised(rows[:, [way]]) for way in (0, 1)])
    np.testing.assert_allclose(np.nanmean(each, axis=1), 0, atol=1e-12)
    np.testing.assert_array_equal(z, each.max(axis=0))
    assert np.isnan(z).sum() == 1
    assert (np.nanstd(each, axis=1) < 1.3).all()


def test_a_null_that_was_saved_says_the_same(cards, train, null, tmp_path):
    query = cards.subset([60, 61])
    loaded = Null.load(null.save(tmp_path))
    before, after = null.judge(query, train), loaded.judge(query, train)
    assert before.record() == after.record()
    np.testing.assert_array_equal(before.z, after.z)


@pytest.mark.parametrize("name", ["rows.npy", "digests.npy", "null.json"])
def test_damage_is_noticed(null, tmp_path, name):
    null.save(tmp_path)
    raw = bytearray((tmp_path / name).read_bytes())
    raw[-5] ^= 1
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(PatchtraceError, match="no readable null"):
        Null.load(tmp_path)


def with_first(rows, value):
    """The same with a value in place of the first agreement."""
    changed = rows.copy()
    changed[0, 0, 0] = value
    return changed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda null: {"rows": with_first(null.rows, np.nan)}, "unknown"),
        (lambda null: {"rows": with_first(null.rows, np.inf)}, "finite and not negative"),
        (lambda null: {"rows": with_first(null.rows, -1)}, "finite and not negative"),
        (lambda null: {"rows": null.rows.astype(np.complex64)}, "complex64 do not match"),
        (lambda null: {"rows": null.rows[:, :, :-1]}, "do not match"),
        (lambda null: {"kind": "members", "rows": np.full_like(null.rows, np.nan)}, "unknown"),
        (lambda null: {"train_ids": (None, *null.train_ids[1:])}, "not text"),
        (lambda null: {"control_ids": ([], *null.control_ids[1:])}, "not text"),
        (lambda null: {"digests": null.digests.astype(np.int64)}, "digests"),
        (lambda null: {"kind": "\x1b[31m"}, "kind is"),
    ],
)
def test_a_null_that_no_calibration_comes_to_is_refused(null, change, says):
    with pytest.raises(PatchtraceError, match=says):
        replace(null, **change(null))


def test_a_null_of_an_earlier_version_says_to_calibrate_again(null, tmp_path):
    null.save(tmp_path)
    path = tmp_path / "null.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"file_version": 1}))
    with pytest.raises(PatchtraceError, match=r"in another way; run `patchtrace calibrate` again"):
        Null.load(tmp_path)


def test_a_changed_collection_is_noticed_and_what_is_left_of_it_tested(cards, train, null):
    fewer = train.subset(range(3, 40))
    details = null.judge(changed(cards, 5, ImageOps.mirror), fewer, rate=0.05)
    assert details.remark == "the null is stale: 3 of its images are gone and left out"
    assert details.best(0) == 2
    more = ImageSet.open(np.concatenate([train.pixels[:], cards.pixels[60:62]]))
    more = ImageSet(more.pixels, (*train.ids, "new", "newer"))
    details = null.judge(cards.subset([60]), more, rate=0.05)
    assert "2 images are new and not tested" in details.remark
    assert not details.z[0, 40:].any()
    with pytest.raises(PatchtraceError, match="null is of another collection"):
        null.judge(cards.subset([60]), cards.subset(range(30, 70)))


def test_a_null_of_another_size_is_refused(null, cards):
    larger = postcards(40, size=20)
    with pytest.raises(PatchtraceError, match="calibrate"):
        null.judge(larger.subset([1]), larger)


def test_small_pictures_have_no_null():
    with pytest.raises(PatchtraceError, match="12 x 12"):
        calibrate(postcards(5, size=8))


def test_killed_work_is_resumed(cards, train, tmp_path):
    def stop(done, total):
        if done > (AT_ONCE + 3) * len(train):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        calibrate(train, count=AT_ONCE + 4, checkpoint=tmp_path, progress=stop)
    seen = []
    resumed = calibrate(train, count=AT_ONCE + 4, checkpoint=tmp_path, progress=lambda done, total: seen.append(done))
    assert seen[0] == AT_ONCE * len(train)  # in one piece
    np.testing.assert_array_equal(resumed.rows, calibrate(train, count=AT_ONCE + 4).rows)


def test_hubs_are_near_most_controls(train, null):
    rows = null.rows.copy()
    rows[..., 7] += 2 * rows.max()
    first = replace(null, rows=rows).hubs()[0]
    assert (first.index, first.id, first.first) == (7, train.ids[7], 19)


def test_members_that_are_far_from_usual_are_named(train):
    null = calibrate(train, count=20)
    rows = np.random.default_rng(0).random((20, 2, 40)).astype(np.float32)
    rows[4, 1, 9] = 4
    assert replace(null, rows=rows).unusual_members() == [(null.control_ids[4], train.ids[9])]


def test_benjamini_and_hochberg_by_their_definition():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = np.round(rng.random(12) ** 3, 2) + 0.001
        order = np.argsort(p)
        passed = [k for k in range(1, 13) if p[order[k - 1]] <= 0.1 * k / 12]
        expected = np.zeros(12, dtype=bool)
        expected[order[: max(passed, default=0)]] = True
        np.testing.assert_array_equal(stand_out(p, 0.1), expected)


def test_a_sentence_says_what_the_number_of_controls_cannot_show():
    z, tops = np.float32([[0.5, 3.0]]), np.float32([[1.0, 2.0, 2.5]])
    details = NullDetails("largest z", "controls", 0.01, [3.0], [0], z, tops)
    assert details.sentence(0) == (
        "none of 3 control pictures had a largest z as large (p 0.25; 3 controls cannot show less than 0.25): "
        "too few to tell whether it stands out at 1 %"
    )
    assert json.loads(json.dumps(details.about(0)))["p"] == 0.25
    assert replace(details, as_large=[1]).sentence(0).endswith("nothing stands out at 1 %")
    two = NullDetails("largest z", "controls", 0.01, [3.0, 1.0], [0, 2], np.vstack([z, z]), np.vstack([tops, tops]))
    (sentence,) = two.sentences_of_all()
    assert sentence.startswith("0 of 2 queries stand out")
    assert sentence.endswith("3 controls are too few to tell")
    assert "too few" not in replace(two, as_large=[1, 2]).sentences_of_all()[0]


@pytest.mark.parametrize(
    "broken",
    [
        {"as_large": [4]},
        {"values": [float("nan"), 1.0]},
        {"rate": 1.5},
        {"z": np.float32([[np.nan, 1.0]])},
        {"tops": np.float32([[]])},
        {"kind": "friends"},
    ],
)
def test_details_that_no_null_comes_to_are_refused(broken):
    details = NullDetails("largest z", "controls", 0.01, [3.0], [0], np.float32([[0.5, 3.0]]), np.float32([[1, 2, 2]]))
    with pytest.raises(PatchtraceError):
        replace(details, **broken).check((1, 2))


def test_the_view_of_a_page_has_the_numbers(cards, train, null):
    query = changed(cards, 5, ImageOps.mirror)
    result = replace(PixelSimilarity().fit(train).attribute(query), null=null.judge(query, train, rate=0.05))
    view = look_closer(result, query, train).view
    assert view["null"]["sentence"] == result.null.sentence(0)
    assert view["null"]["best"] == 5
    found = next(image for image in view["images"] if image["index"] == 5)
    assert found["stands_out"]
    assert found["z"] == pytest.approx(float(result.null.z[0, 5]))


def test_a_result_keeps_what_the_null_said(cards, train, null, tmp_path):
    query = cards.subset([60, 61])
    labels = ["even", "odd"] * 20
    details = null.judge(query, train, labels=labels)
    result = replace(PixelSimilarity().fit(train).attribute(query), null=details)
    loaded = Attribution.load(result.save(tmp_path))
    assert loaded.null.record() == details.record()
    np.testing.assert_array_equal(loaded.null.tops, details.tops)
    assert loaded.top(1)[0][0].z == result.top(1)[0][0].z
    replace(result, null=None).save(tmp_path)
    assert Attribution.load(tmp_path).null is None
    assert not (tmp_path / "z.npy").exists()


def test_a_group_has_the_rank_of_its_largest_z(cards, train, null):
    labels = np.array(["even", "odd"] * 20)
    query = cards.subset([60])
    found = null.judge(query, train, labels=labels)
    rows = np.concatenate([null.rows, agreement(query, train)])
    z = standardised(rows)[:, labels == "odd"].max(axis=1)
    assert found.groups["odd"] == [p_value(int((z[:-1] >= z[-1]).sum()), 19)]
