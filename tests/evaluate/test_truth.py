"""Subsets and their losses: stratified choice, a plain file, and clear words about what does not fit."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchtrace import Attribution, PatchtraceError
from patchtrace.evaluate.truth import GroundTruth, make_subsets, read_subsets


@pytest.fixture
def truth():
    rng = np.random.default_rng(0)
    return GroundTruth(
        make_subsets(11, 5),
        rng.random((5, 3)),
        tuple(f"bilder/grün {i}.png" for i in range(11)),
        ("p", "q", "r"),
        {"seeds": 3, "queries": "fingerprint of three"},
    )


def result_for(truth, **facts):
    scores = np.ones((len(truth.query_ids), len(truth.train_ids)), np.float32)
    return Attribution(scores, scores / scores.shape[1], truth.query_ids, truth.train_ids, "x", facts=facts)


# -- subsets --------------------------------------------------------------------------------------------


@given(st.integers(2, 40), st.floats(0.1, 0.9), st.integers(1, 4), st.integers(0, 2**31))
def test_subsets_have_one_size_and_each_class_its_part(images, fraction, kinds, seed):
    size = int(fraction * images + 0.5)
    if not 0 < size < images:
        return
    classes = np.random.default_rng(seed).integers(0, kinds, images)
    subsets = make_subsets(images, 6, fraction=fraction, classes=classes, seed=seed)
    assert subsets.shape == (6, images)
    assert (subsets.sum(axis=1) == size).all()
    for kind in range(kinds):
        in_class = subsets[:, classes == kind].sum(axis=1)
        assert (np.abs(in_class - fraction * (classes == kind).sum()) < 1).all()


def test_what_rounding_leaves_over_goes_to_other_classes_in_other_subsets():
    classes = np.repeat(["horse", "automobile", "ship"], 5)
    subsets = make_subsets(15, 60, classes=classes)
    sizes = np.stack([subsets[:, classes == name].sum(axis=1) for name in ("horse", "automobile", "ship")], axis=1)
    assert sorted(np.unique(sizes)) == [2, 3]
    # 8 of 15 images: two of the three classes have one more, each of them in about 40 of 60 subsets
    assert ((sizes == 3).sum(axis=0) > 25).all()


def test_images_are_in_subsets_equally_often_and_independently():
    subsets = make_subsets(20, 4000).astype(float)
    assert np.abs(subsets.mean(axis=0) - 0.5).max() < 5 * np.sqrt(0.25 / 4000)
    together = np.corrcoef(subsets.T)[np.triu_indices(20, 1)]
    assert np.abs(together + 1 / 19).max() < 5 / np.sqrt(4000)


def test_more_subsets_leave_the_first_as_they_were():
    assert (make_subsets(30, 10, seed=4)[:6] == make_subsets(30, 6, seed=4)).all()
    assert (make_subsets(30, 6, seed=4) != make_subsets(30, 6, seed=5)).any()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"images": 1}, "images is 1"),
        ({"count": 0}, "count is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"fraction": 0.01}, "between 0 and 1"),
        ({"fraction": 1.0}, "between 0 and 1"),
        ({"fraction": float("nan")}, "between 0 and 1"),
        ({"classes": [0, 1]}, "one for each image"),
    ],
)
def test_subsets_that_cannot_be_are_refused(change, says):
    with pytest.raises(PatchtraceError, match=says):
        make_subsets(**{"images": 10, **change})


# -- the file -------------------------------------------------------------------------------------------


def test_what_is_saved_comes_back(truth, tmp_path):
    again = GroundTruth.load(truth.save(tmp_path / "truth.npz"))
    assert (again.subsets == truth.subsets).all()
    assert (again.losses == truth.losses).all()
    assert again.subsets.dtype == np.bool_
    assert (again.train_ids, again.query_ids, again.facts) == (truth.train_ids, truth.query_ids, truth.facts)
    with np.load(tmp_path / "truth.npz", allow_pickle=False) as archive:
        assert sorted(archive.files) == ["facts", "losses", "query_ids", "subsets", "train_ids"]


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int64, np.float32])
def test_a_published_file_needs_subsets_and_losses_only(truth, tmp_path, kind):
    np.savez(tmp_path / "t.npz", subsets=truth.subsets.astype(kind), losses=truth.losses.astype(np.float32))
    again = GroundTruth.load(tmp_path / "t.npz")
    assert (again.subsets == truth.subsets).all()
    assert again.losses.dtype == np.float64
    assert again.train_ids == tuple(map(str, range(11)))
    assert again.query_ids == ("0", "1", "2")


def test_packed_bits_need_the_number_of_images(truth, tmp_path):
    packed = np.packbits(truth.subsets, axis=1)
    np.savez(tmp_path / "without.npz", subsets=packed, losses=truth.losses)
    with pytest.raises(PatchtraceError, match="how many images"):
        GroundTruth.load(tmp_path / "without.npz")
    assert (GroundTruth.load(tmp_path / "without.npz", images=11).subsets == truth.subsets).all()
    with pytest.raises(PatchtraceError, match="use 30"):
        GroundTruth.load(tmp_path / "without.npz", images=30)
    np.savez(tmp_path / "with.npz", subsets=packed, losses=truth.losses, train_ids=np.arange(100, 111))
    again = GroundTruth.load(tmp_path / "with.npz")
    assert (again.subsets == truth.subsets).all()
    assert again.train_ids[0] == "100"
    full = np.packbits(np.ones((5, 16), bool), axis=1)
    np.savez(tmp_path / "more.npz", subsets=full, losses=truth.losses)
    with pytest.raises(PatchtraceError, match="more than 11"):
        GroundTruth.load(tmp_path / "more.npz", images=11)


def halves():
    order = np.random.default_rng(0).permuted(np.tile(np.arange(5000), (64, 1)), axis=1)
    return np.packbits(order < 2500, axis=1)


@pytest.mark.parametrize("source", ["random", "published"])
def test_packed_halves_of_a_large_set_are_read_as_halves(source, request, tmp_path):
    packed = halves() if source == "random" else request.getfixturevalue("cifar2")["subsets"]
    np.savez(tmp_path / "t.npz", subsets=packed, losses=np.zeros((64, 1)))
    subsets = GroundTruth.load(tmp_path / "t.npz", images=5000).subsets
    assert subsets.shape == (64, 5000)
    assert (subsets.sum(axis=1) == 2500).all()


def _npz(**arrays):
    def write(path):
        np.savez(path, **arrays)

    return write


with io.BytesIO() as _stream:
    np.save(_stream, np.ones(3))
    NPY = _stream.getvalue()
GOOD = {"subsets": np.ones((4, 3), bool), "losses": np.ones((4, 2))}


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda path: path.write_bytes(b"no archive"), "no readable truth"),
        (lambda path: path.write_bytes(b""), "no readable truth"),
        (lambda path: None, "no readable truth"),
        (lambda path: path.write_bytes(NPY), "single array"),
        (_npz(subsets=GOOD["subsets"]), "no array 'losses', only subsets"),
        (_npz(losses=GOOD["losses"]), "no array 'subsets'"),
        (_npz(**{**GOOD, "losses": np.ones((2, 4))}), "transpose them"),
        (_npz(**{**GOOD, "losses": np.ones((5, 2))}), "4 subsets, but losses of 5"),
        (_npz(**{**GOOD, "losses": np.ones(4)}), r"\(subsets, queries\)"),
        (_npz(**{**GOOD, "losses": np.array([["a", "b"]] * 4)}), "numbers"),
        (_npz(**{**GOOD, "losses": np.array([[1, 2], [3, 4], [5, np.nan], [7, 8]])}), "subset 2 on query 1 is nan"),
        (_npz(**{**GOOD, "subsets": np.ones(3, bool)}), r"\(subsets, images\)"),
        (_npz(**{**GOOD, "subsets": np.full((4, 3), 2)}), "0 and 1"),
        (_npz(**{**GOOD, "subsets": np.array([[None, {}, 1]] * 4)}), "no readable truth"),  # pickled
        (_npz(**GOOD, train_ids=["a"]), "use 1, one for each image"),
        (_npz(**GOOD, query_ids=["a", "b", "c"]), "3 ids do not match 2 queries"),
        (_npz(**GOOD, query_ids=np.ones((2, 2))), "a row of text"),
        (_npz(**GOOD, facts="{"), "not JSON"),
        (_npz(**GOOD, facts="[1]"), "JSON object"),
    ],
)
def test_a_damaged_or_wrong_file_is_refused_in_words(write, says, tmp_path):
    path = tmp_path / "truth.npz"
    write(path)
    with pytest.raises(PatchtraceError, match=says) as caught:
        GroundTruth.load(path)
    assert "truth.npz" in str(caught.value)


@pytest.mark.parametrize("at", [0.1, 0.4, 0.7, 0.95])
def test_half_a_file_is_noticed(truth, tmp_path, at):
    path = truth.save(tmp_path / "truth.npz")
    data = path.read_bytes()
    path.write_bytes(data[: int(at * len(data))])
    with pytest.raises(PatchtraceError, match="no readable truth"):
        GroundTruth.load(path)


def test_a_changed_byte_in_the_losses_is_noticed(truth, tmp_path):
    path = truth.save(tmp_path / "truth.npz")
    data = bytearray(path.read_bytes())
    data[data.index(b"losses.npy") + 60] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(PatchtraceError, match="no readable truth"):
        GroundTruth.load(path)


# -- what it is about -----------------------------------------------------------------------------------


def test_a_choice_of_queries(truth):
    some = truth.select([2, 0])
    assert some.query_ids == ("r", "p")
    assert (some.losses == truth.losses[:, [2, 0]]).all()
    assert some.facts == {"seeds": 3, "selected": [2, 0]}
    assert truth.select(np.array([False, True, False])).query_ids == ("q",)
    with pytest.raises(PatchtraceError, match="3 queries"):
        truth.select([3])


def test_a_result_about_the_same_images_fits(truth):
    truth.check(result_for(truth, queries={"fingerprint": "fingerprint of three"}))
    by_number = GroundTruth(truth.subsets, truth.losses, tuple(map(str, range(11))), ("0", "1", "2"))
    by_number.check(result_for(truth))
    truth.check(result_for(by_number))


def test_a_result_about_other_images_is_refused(truth):
    others = {
        "number 1 is 'q' in the truth and 'r' in the result": truth.select([0, 2, 1]),
        "about 3 queries, the result about 2": truth.select([0, 1]),
        "about 11 training images, the result about 10": GroundTruth(
            truth.subsets[:, :10], truth.losses, truth.train_ids[:10], truth.query_ids
        ),
        "of the training images, number 0": GroundTruth(
            truth.subsets, truth.losses, truth.train_ids[::-1], truth.query_ids
        ),
    }
    for says, other in others.items():
        with pytest.raises(PatchtraceError, match=says):
            truth.check(result_for(other))
    with pytest.raises(PatchtraceError, match="other pixels"):
        truth.check(result_for(truth, queries={"fingerprint": "another"}))


# -- published subsets ----------------------------------------------------------------------------------

MASKS = np.random.default_rng(0).random((4, 11)) < 0.5


@pytest.mark.parametrize("form", [MASKS, MASKS.astype(np.uint8), MASKS.astype(float), np.packbits(MASKS, axis=1)])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_published_subsets_of_every_form(tmp_path, form, suffix):
    path = tmp_path / f"subsets{suffix}"
    np.save(path, form) if suffix == ".npy" else np.savez(path, subsets=form)
    np.testing.assert_array_equal(read_subsets(path, 11), MASKS)


def test_packed_subsets_may_be_as_many_as_images(tmp_path):
    masks = np.random.default_rng(1).random((11, 11)) < 0.5
    np.save(tmp_path / "subsets.npy", np.packbits(masks, axis=1))
    np.testing.assert_array_equal(read_subsets(tmp_path / "subsets.npy", 11), masks)


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (MASKS.T, r"shape \(11, 4\): transpose them"),
        (MASKS[:, :10], "10 columns: use 11"),
        (MASKS[0], r"shape \(11,\)"),
        (MASKS * 2, "neither booleans nor 0 and 1"),
        (MASKS & (np.arange(4) != 2)[:, None], "subset 2 has no image"),
        (np.full((4, 2), 255, np.uint8), "more than 11 images"),
    ],
)
def test_other_subsets_are_refused(tmp_path, array, says):
    np.save(tmp_path / "subsets.npy", array)
    with pytest.raises(PatchtraceError, match=says) as found:
        read_subsets(tmp_path / "subsets.npy", 11)
    assert "subsets.npy" in str(found.value)


def test_files_without_subsets_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", masks=MASKS)
    with pytest.raises(PatchtraceError, match="no array 'subsets', only masks"):
        read_subsets(tmp_path / "a.npz", 11)
    np.save(tmp_path / "pickled.npy", np.array([{}]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("1 0 1")
    for name in ("pickled.npy", "text.npy", "none.npy"):
        with pytest.raises(PatchtraceError, match="no readable subsets"):
            read_subsets(tmp_path / name, 11)
