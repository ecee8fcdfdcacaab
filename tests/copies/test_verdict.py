"""Verdicts on drawn pictures that were changed in known ways, against where the parts really are.

A picture is a wall of 16 postcards: single ones are nearly flat, and have hardly a point to hold on to.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageOps

from patchtrace import Attribution, ImageSet, PixelSimilarity
from patchtrace.copies.agreement import agreement
from patchtrace.copies.outline import area, clipped
from patchtrace.copies.points import points_of
from patchtrace.copies.sight import Sight
from patchtrace.copies.transform import Similarity, candidates
from patchtrace.copies.verdict import Kind, Verdict
from patchtrace.demo import postcards

SIDE = 192
CARDS = postcards(96, SIDE // 4)
NUMBERS = range(2)


def card(number):
    """Of the pictures from 0 to 5."""
    wall = Image.new("RGB", (SIDE, SIDE))
    for place in range(16):
        wall.paste(CARDS.picture(16 * number + place), (place % 4 * SIDE // 4, place // 4 * SIDE // 4))
    return wall


def verdict(query, image):
    return Sight(query).verdict(image)


def cropped(picture, left, top, right, bottom):
    box = (round(left * SIDE), round(top * SIDE), round(right * SIDE), round(bottom * SIDE))
    return picture.crop(box).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def compressed(picture, quality):
    stream = io.BytesIO()
    picture.save(stream, "JPEG", quality=quality)
    return Image.open(stream)


def corners(polygon):
    """Left, top, right and bottom."""
    (left, top), (right, bottom) = np.min(polygon, axis=0), np.max(polygon, axis=0)
    return left, top, right, bottom


@pytest.mark.parametrize("number", NUMBERS)
def test_a_picture_is_the_same_as_itself(number):
    found = verdict(card(number), card(number))
    assert (found.kind, found.changes, found.mirrored) == (Kind.SAME, (), False)
    assert found.of_query == found.of_image == 1.0


@pytest.mark.parametrize("number", NUMBERS)
def test_another_picture_resembles(number):
    found = verdict(card(number), card(number + 2))
    assert found.kind is Kind.RESEMBLES
    assert (found.in_query, found.in_image, found.of_query) == ((), (), 0.0)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (ImageOps.mirror, "mirrored"),
        (lambda picture: picture.rotate(8, Image.Resampling.BICUBIC, fillcolor="grey"), "turned by 8 degrees"),
        (lambda picture: Image.eval(picture, lambda value: value // 2), "recoloured"),
        (lambda picture: compressed(picture, 5), "compressed or slightly changed"),
    ],
)
def test_a_changed_copy_is_called_by_its_change(number, change, words):
    found = verdict(change(card(number)), card(number))
    assert found.kind is Kind.CHANGED
    assert found.changes == (words,)
    assert found.agreement > 0.8


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("mirrored", [False, True])
def test_of_a_crop_the_outline_is_where_it_was_cut(number, mirrored):
    cut = (0.15, 0.25, 0.85, 0.95)
    query = cropped(card(number), *cut)
    found = verdict(ImageOps.mirror(query) if mirrored else query, card(number))
    assert found.kind is Kind.CHANGED
    assert found.changes == (("mirrored",) * mirrored + ("cropped",))
    np.testing.assert_allclose(corners(found.in_image), cut, atol=0.02)
    np.testing.assert_allclose(corners(found.in_query), (0, 0, 1, 1), atol=0.02)
    assert found.scale == pytest.approx(1 / 0.7, rel=0.02)


@pytest.mark.parametrize("mirrored", [False, True])
def test_of_a_pasted_part_the_outlines_are_where_it_is_and_where_it_was(mirrored):
    part = card(0).crop((0, 76, 116, 192))
    query = card(5)
    query.paste(ImageOps.mirror(part) if mirrored else part, (60, 40))
    found = verdict(query, card(0))
    assert found.kind is Kind.PART
    assert found.mirrored == mirrored
    np.testing.assert_allclose(corners(found.in_query), np.array([60, 40, 176, 156]) / SIDE, atol=0.08)
    np.testing.assert_allclose(corners(found.in_image), np.array([0, 76, 116, 192]) / SIDE, atol=0.08)
    assert found.of_query == pytest.approx((116 / SIDE) ** 2, abs=0.1)
    other = verdict(query, card(5))  # and the rest is of the picture that it was pasted into
    assert other.kind is Kind.PART
    assert not other.mirrored


def test_the_image_as_a_whole_in_a_larger_query_is_a_part_of_it():
    query = card(5).resize((SIDE, SIDE))
    query.paste(card(0).resize((96, 96), Image.Resampling.BICUBIC), (50, 60))
    found = verdict(query, card(0))
    assert found.kind is Kind.PART
    assert found.of_image > 0.8
    assert found.scale == pytest.approx(0.5, rel=0.05)


def test_a_smaller_picture_is_the_same_picture():
    assert verdict(card(2).resize((96, 96), Image.Resampling.BICUBIC), card(2)).kind is Kind.SAME


@pytest.mark.parametrize(
    "picture",
    [
        Image.new("RGB", (192, 192), "white"),
        Image.new("L", (1, 1)),
        Image.new("RGB", (3, 900)),
        Image.new("RGBA", (40, 60)),
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)),
    ],
    ids=["white", "one pixel", "a line", "clear", "noise"],
)
def test_odd_pictures_resemble_and_raise_nothing(picture):
    for query, image in ((picture, card(0)), (card(0), picture)):
        assert verdict(query, image).kind is Kind.RESEMBLES


def test_points_and_pairs_are_bounded_whatever_the_picture():
    noise = np.random.default_rng(1).random((256, 256, 3), np.float32)
    points = points_of(noise)
    assert len(points.places) <= 500
    found = candidates(points, points_of(noise[::-1].copy()), False)
    assert all(one.scale <= 5 for one in found)


def test_the_same_verdict_every_time():
    query = cropped(card(3), 0.1, 0.1, 0.9, 0.9)
    assert verdict(query, card(3)) == verdict(query, card(3))


@pytest.mark.parametrize("mirrored", [False, True])
def test_points_of_a_mirrored_picture_are_those_of_its_mirror(mirrored):
    """An even width and no octave below: then both are sampled at the same pixels."""
    pixels = np.asarray(card(1), np.float32)[:24, :25] / 255
    direct = points_of(pixels[:, ::-1].copy()) if mirrored else points_of(pixels)
    known = points_of(pixels).mirrored(25) if mirrored else points_of(pixels)
    order, other = (np.lexsort(points.places.T) for points in (direct, known))
    np.testing.assert_allclose(direct.places[order], known.places[other], atol=1e-3)
    np.testing.assert_allclose(direct.descriptions[order], known.descriptions[other], atol=1e-3)


def test_a_transform_is_found_again():
    """Where the corners of a crop of a turned picture come from, known exactly."""
    query = cropped(card(0), 0.2, 0.1, 0.9, 0.8)
    pixels = [np.asarray(picture, np.float32) / 255 for picture in (query, card(0))]
    best = max(candidates(*map(points_of, pixels), False), key=lambda one: len(one.seen))
    assert best.scale == pytest.approx(0.7, rel=0.01)
    assert abs(best.turn) < 0.5
    assert abs(best.at(0j) - (0.2 + 0.1j) * SIDE) < 1.5


def test_pixels_agree_under_the_right_transform_alone():
    pixels = np.asarray(card(0), np.float32) / 255
    right = agreement(pixels, pixels, Similarity(), 9)
    wrong = agreement(pixels, pixels, Similarity(shift=30 + 20j), 9)
    assert right.of_overlap == 1.0
    assert wrong.of_overlap < 0.4


def test_polygons_are_cut_to_a_box():
    square = ((-1.0, -1.0), (0.5, -1.0), (0.5, 0.5), (-1.0, 0.5))
    assert area(clipped(square, (0, 0, 1, 1))) == pytest.approx(0.25)
    assert clipped(square, (0.6, 0.6, 1, 1)) == ()
    assert area(()) == 0


def test_a_verdict_survives_a_file():
    found = verdict(cropped(card(0), 0.1, 0.1, 0.8, 0.8), card(0))
    assert Verdict.from_record(found.record()) == found
    assert set(found.record()) >= {"kind", "mirrored", "scale", "agreement", "points", "of_query", "of_image"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cards").mkdir()
    for number in range(4):
        card(number).save(tmp_path / "cards" / f"{number}.png")
    ImageOps.mirror(card(2)).save(tmp_path / "query.png")
    return tmp_path


def test_files_are_looked_at_with_all_their_pixels(folder):
    """At 16 x 16 a mirrored card is hard to tell; its file is not."""
    train = ImageSet.open(folder / "cards", size=16)
    queries = train.open_like(folder / "query.png")
    result = PixelSimilarity().fit(train).attribute(queries).with_verdicts(queries, train, top=4)
    assert result.verdict(0, 2).changes == ("mirrored",)
    assert [result.verdict(0, index).kind for index in (0, 1, 3)] == [Kind.RESEMBLES] * 3
    loaded = Attribution.load(result.save(folder / "run"))
    assert loaded.verdicts == result.verdicts
    rows = {row["index"]: row for row in loaded.rows()}
    assert (rows[2]["verdict"], rows[2]["mirrored"]) == ("changed copy", True)
    assert rows[2]["of_query"] == pytest.approx(1, abs=0.02)
    listed = loaded.to_json()["queries"][0]["ranking"]
    assert {row["index"]: row["verdict"]["kind"] for row in listed}[2] == "changed copy"
    lines = loaded.export(folder / "ranking.csv").read_text().splitlines()
    assert lines[0].endswith("verdict,mirrored,scale,turn,agreement,points,of_query,of_image")
    assert sum("changed copy" in line for line in lines) == 1


def test_only_what_was_asked_is_checked_and_known_verdicts_stay(folder):
    train = ImageSet.open(folder / "cards", size=16)
    result = PixelSimilarity().fit(train).attribute(train)
    one = result.with_verdicts(train, train, only=1, images=[3])
    assert [sorted(known) for known in one.verdicts] == [[], [3], [], []]
    assert one.verdict(0, 3) is None
    more = one.with_verdicts(train, train, top=1)
    assert [sorted(known) for known in more.verdicts] == [[0], [1, 3], [2], [3]]
    assert "verdict" not in next(iter(result.rows()))


def test_latents_are_not_looked_at():
    latents = ImageSet.open(np.random.default_rng(0).normal(size=(3, 4, 8, 8)).astype(np.float32), layout="NCHW")
    result = PixelSimilarity().fit(latents).attribute(latents.subset([0])).with_verdicts(latents.subset([0]), latents)
    assert result.verdict(0, 0) is None
