"""What the viewer gets: the numbers of the explanation, small enough to be mailed."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from patchtrace import NDA, Compute, ImageSet, Recipe, Stopping, explain
from patchtrace.engines import NoisyQuery
from patchtrace.engines.reference import noisy_patches
from patchtrace.nda.pairs import spread
from patchtrace.viewer.data import answer_of, encoded, first_look, look_closer, packed
from patchtrace.viewer.report import make_report, render_report


def unpacked(array):
    raw = np.frombuffer(base64.b64decode(array["data"]), np.dtype(array["dtype"]).newbyteorder("<"))
    return raw.reshape(array["shape"]) * array["scale"]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Files larger than what is compared; the last is almost the same as the first."""
    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for number in range(11):
        small = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        picture = Image.fromarray(small).resize((96, 96), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:02d}.png")
    with Image.open(folder / "00.png") as picture:
        Image.eval(picture, lambda value: min(255, value + 2)).save(folder / "11.png")
    return folder


@pytest.fixture(scope="module")
def made(photos):
    train = ImageSet.open(photos, size=16)
    queries = train.open_like(photos / "00.png")
    result = NDA(Recipe.for_size(16, 16)).fit(train).attribute(queries).with_verdicts(queries, train)
    explanation = explain(result, queries, train)
    return (
        result,
        queries,
        train,
        explanation,
        answer_of(result, queries, train, 0, explanation, command="patchtrace x"),
    )


def test_the_view_is_plain_json_with_the_facts(made):
    result, _, train, _, answer = made
    view = json.loads(json.dumps(answer.inlined(), allow_nan=False))
    facts = dict(view["facts"])
    assert facts["Fingerprint of the collection"] == train.fingerprint()
    assert facts["Command"] == "patchtrace x"
    assert "12 images" in facts["Collection"]
    assert "seed 0" in facts["Draws of the noise"]
    assert view["headline"]["title"] == "00.png is the same picture; 1 more image has something in common with it"
    first = view["images"][0]
    words = {one["id"]: one["verdict"]["words"] for one in (first, *first["copies"])}
    assert words == {"00.png": "same picture", "11.png": "changed copy: compressed or slightly changed"}
    assert not view["images"][1]["verdict"]["found"]
    assert view["summary"]["coverage"][-1][1] == pytest.approx(result.shares.sum(), rel=1e-5)
    assert [one["share"] for one in view["opponents"]] == [hit.share for hit in result.bottom(3)[0]]


def test_grids_and_heat_add_up_to_the_share(made):
    result, _, _, _, answer = made
    for image, found in zip(answer.view["images"], answer.evidence, strict=True):
        total = 0.0
        for step, grid, heat in zip(answer.view["steps"], found["grids"], found["heat"], strict=True):
            part = step["weight"] * unpacked(grid).sum()
            assert unpacked(heat).sum() == pytest.approx(part, rel=1e-3, abs=1e-7)
            total += part
        assert total == pytest.approx(result.shares[0, image["index"]], rel=1e-3)


def test_images_that_look_alike_are_folded(made):
    answer = made[-1]
    first = answer.view["images"][0]
    assert {first["id"], first["copies"][0]["id"]} == {"00.png", "11.png"}
    assert len(answer.view["images"]) == 11
    owner = unpacked(answer.view["mosaic"]["owner"])
    assert (owner == 0).mean() > 0.9


def test_partners_are_those_of_the_explanation(made):
    _, _, _, explanation, answer = made
    pair = explanation.pair(answer.view["images"][1]["index"])
    for partners, expected in zip(answer.evidence[1]["partners"], pair.partners, strict=True):
        np.testing.assert_array_equal(unpacked(partners["place"]), expected.place)
        np.testing.assert_allclose(unpacked(partners["part"]), expected.part, atol=expected.part.max() / 254)


def test_noised_patches_can_be_put_together_from_the_view(photos):
    """As the viewer does it, against those that were compared: one noise for all patches, and a patchwork."""
    for draws in (1, 2):
        train = ImageSet.open(photos, size=16)
        recipe = Recipe.for_size(16, 16)
        result = NDA(Recipe(recipe.levels, draws=draws)).fit(train).attribute(train.subset([3]))
        explanation = explain(result, train.subset([3]), train)
        view = answer_of(result, train.subset([3]), train, 0, explanation).view
        for number, step in enumerate(view["steps"]):
            if step["pool"] > 1:
                continue
            level = view["levels"][step["level"]]
            noise, other = (np.pad(unpacked(level[name]), ((0, 0), *[(16, 16)] * 2)) for name in ("noise", "turned"))
            clean = np.pad(level["signal"] * explanation.clean, ((0, 0), *[(16, 16)] * 2))
            signs, is_turned = unpacked(step["signs"]), unpacked(step["is_turned"])
            query: NoisyQuery = explanation.noisy[number]
            expected = noisy_patches(next(iter(query)), explanation.steps[number].comparison)
            assert step["patchwork"] == (draws > 1)
            for r, c in ((0, 0), (1, 0), (3, 15), (7, 7), (8, 9), (15, 2)):
                side = range(step["extent"])
                at = np.ix_(
                    range(3), [16 + r - step["pad"] + d for d in side], [16 + c - step["pad"] + d for d in side]
                )
                rows = r if is_turned[r, c] else step["noise_rows"][r]
                columns = c if is_turned[r, c] else step["noise_columns"][c]
                of = other if is_turned[r, c] else noise
                from_place = np.ix_(
                    range(3),
                    [16 + rows - step["pad"] + d for d in side],
                    [16 + columns - step["pad"] + d for d in side],
                )
                patch = clean[at] + signs[r, c] * of[from_place]
                np.testing.assert_allclose(patch.ravel(), expected[r * 16 + c], atol=0.02)


def test_pictures_show_the_file_not_what_was_compared(made):
    answer = made[-1]
    image = answer.view["images"][0]
    sizes = {}
    for kind in ("frame", "pixels"):
        key = image[kind]
        with Image.open(io.BytesIO(encoded(key, answer.pictures[key]))) as picture:
            sizes[kind] = picture.size
            assert not picture.getexif()
    assert sizes == {"frame": (192, 192), "pixels": (16, 16)}


def test_a_file_that_was_replaced_is_named_and_not_shown(photos, made, tmp_path):
    folder = shutil.copytree(photos, tmp_path / "photos")
    train = ImageSet.open(folder, size=16)
    result, queries, *_ = made
    first = result.train_ids[result.ranking(0)[0]]
    assert first_look(result, queries, train, "soon").view["file_note"] == ""
    Image.new("RGB", (96, 96), "blue").save(folder / first)
    known: dict[str, Image.Image] = {}
    for _ in range(2):  # the second time with the pictures of the first
        answer = first_look(result, queries, train, "soon", pictures=known)
        shown = answer.pictures[answer.view["images"][0]["frame"]]
        assert shown.tobytes() == train.picture(result.ranking(0)[0]).tobytes()
        assert answer.view["file_note"].endswith(f"shown as they were compared: {first}.")


def test_maps_from_the_view_are_those_of_the_explanation(made):
    """The viewer spreads grids on pixels itself; this is the rule it follows."""
    _, _, _, explanation, answer = made
    step, grid = explanation.steps[0], unpacked(answer.evidence[0]["grids"][0])
    found = spread(grid, step.comparison, (16, 16))
    by_hand = np.zeros((16, 16))
    meta = answer.view["steps"][0]
    for r in range(meta["rows"]):
        for c in range(meta["columns"]):
            rows = slice(max(0, r - meta["pad"]), min(16, r - meta["pad"] + meta["extent"]))
            columns = slice(max(0, c - meta["pad"]), min(16, c - meta["pad"] + meta["extent"]))
            visible = by_hand[rows, columns]
            visible += grid[r, c] / visible.size
    np.testing.assert_allclose(found, by_hand, rtol=1e-9)


def test_with_little_time_the_first_images_have_evidence_and_the_page_says_so(made):
    result, queries, train, _, whole = made
    few = look_closer(result, queries, train, compute=Compute(threads=2), seconds=1e-9)
    assert len(few.evidence) == 2
    assert few.evidence == whole.evidence[:2]
    assert few.view["evidence_note"] == "The time limit left time for the patches of the first 2 images."
    assert few.view["images"] == whole.view["images"]
    assert few.view["mosaic"] == whole.view["mosaic"]
    assert few.view["evidence_note"] in render_report(few.inlined())


def test_with_enough_time_nothing_is_missing(made):
    result, queries, train, _, whole = made
    found = look_closer(result, queries, train, seconds=1000, command="patchtrace x")
    assert found.evidence == whole.evidence
    assert found.view == whole.view
    assert found.view["evidence_note"] == ""


@pytest.mark.parametrize(("seconds", "image"), [(1.0, 1.0), (1000.0, 1e-3)])
def test_after_a_coarse_pass_there_is_evidence_if_a_sample_fits_into_the_time(made, monkeypatch, seconds, image):
    _, queries, train, _, whole = made
    monkeypatch.setattr("patchtrace.nda.method.COARSE_FROM", 0)
    monkeypatch.setattr("patchtrace.viewer.data.seconds_of_an_image", lambda *_: image)
    monkeypatch.setattr("patchtrace.viewer.data.SHOWN", 5)
    recipe = replace(Recipe.for_size(16, 16), draws="auto")
    result = NDA(recipe, stopping=Stopping(seconds=1e-6)).fit(train).attribute(queries)
    found = look_closer(result, queries, train, seconds=seconds)
    fits = seconds > 1
    note = "are approximate" if fits else "The time limit left no time to compare patches"
    assert len(found.evidence) == (len(found.view["images"]) if fits else 0)
    assert note in found.view["evidence_note"]
    assert note in render_report(found.inlined())
    assert len(found.view["steps"]) == len(whole.view["steps"])


def test_images_that_tie_share_a_rank(made):
    result, queries, train, _, whole = made
    assert [image["rank"] for image in whole.view["images"][:3]] == [1, 3, 4]  # its near-duplicate has rank 2
    level = np.full_like(result.shares, 0.05)
    tied = replace(result, scores=level, shares=level, nda=replace(result.nda, tolerance=0.1))
    view = first_look(tied, queries, train, "first answer").view
    assert {(image["rank"], image["tied"]) for image in view["images"]} == {(1, True)}
    assert view["pending"] == "first answer"


def test_arrays_are_packed_to_their_type():
    values = np.array([[0.0, 0.5], [0.25, 1.0]])
    np.testing.assert_allclose(unpacked(packed(values, "u2")), values, atol=1e-5)
    np.testing.assert_array_equal(unpacked(packed(np.array([1, -1]), "i1", 1.0)), [1, -1])
    np.testing.assert_array_equal(unpacked(packed(np.zeros(3), "u1")), 0)


def test_a_name_cannot_turn_the_line_that_it_stands_in(photos, tmp_path):
    """Else a name such as this one makes 21 % of the 12 % beside it."""
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    for path in sorted(folder.iterdir()):
        path.rename(path.with_name(f"\u202e{path.name}"))
    train = ImageSet.open(folder, size=16)
    queries = train.subset([0])
    result = NDA(Recipe.for_size(16, 16)).fit(train).attribute(queries)
    report = make_report(tmp_path / "report.html", look_closer(result, queries, train)).read_text()
    assert "\u202e" not in report
    view = json.loads(re.findall(r'id="view">(.*?)</script>', report, re.DOTALL)[0])
    assert all("\u202e" not in image["id"] for image in view["images"])
    assert r"\u202e" in report


def test_a_report_is_one_file(made, tmp_path):
    result, queries, train, *_ = made
    path = make_report(tmp_path / "report.html", look_closer(result, queries, train, command="patchtrace attribute"))
    text = path.read_text()
    assert "00.png" in text
    assert all(target.startswith(("data:image/", "#")) for target in re.findall(r'(?:src|href)="([^"]*)', text))
    assert "https://" not in text
    assert path.stat().st_size < 10_000_000
