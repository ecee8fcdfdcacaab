"""Scores of any method from a file: every form gives the same numbers, and what does not fit is refused in words."""

from __future__ import annotations

import csv
import json
import struct
import zipfile

import numpy as np
import pytest

from patchtrace import Attribution, PatchtraceError
from patchtrace.evaluate import GroundTruth, make_subsets
from patchtrace.evaluate.score_files import SUFFIXES, images_in, read_scores

QUERIES, TRAIN = ("p", "q, with a comma"), tuple(f"train/{number}.png" for number in range(5))
SCORES = np.random.default_rng(0).normal(size=(2, 5))


@pytest.fixture
def truth():
    return about(TRAIN, QUERIES)


def about(train_ids, query_ids, facts=None):
    shape = (3, len(query_ids))
    return GroundTruth(make_subsets(len(train_ids), 3), np.ones(shape), train_ids, query_ids, facts or {})


def write_csv(path, rows):
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows(rows)
    return path


def npy(path, truth):
    np.save(path.with_suffix(".npy"), SCORES)
    return path.with_suffix(".npy")


def npz(path, truth):
    np.savez_compressed(path.with_suffix(".npz"), scores=SCORES)
    return path.with_suffix(".npz")


def bare_csv(path, truth):
    return write_csv(path.with_suffix(".csv"), SCORES.tolist())


def csv_with_header(path, truth):
    return write_csv(path.with_suffix(".csv"), [truth.train_ids, *SCORES.tolist()])


def csv_with_queries(path, truth):
    return write_csv(
        path.with_suffix(".csv"), [[name, *row] for name, row in zip(truth.query_ids, SCORES, strict=True)]
    )


def csv_with_both(path, truth):
    rows = [[name, *row] for name, row in zip(truth.query_ids, SCORES.tolist(), strict=True)]
    return write_csv(path.with_suffix(".csv"), [["", *truth.train_ids], *rows])


def long_csv(path, truth):
    rows = [[truth.query_ids[i], truth.train_ids[j], SCORES[i, j], "more"] for i, j in np.ndindex(*SCORES.shape)]
    return write_csv(path.with_suffix(".csv"), [["query", "id", "score", "remark"], *rows[::-1]])


def exported_csv(path, truth):
    values = SCORES.astype(np.float32)
    result = Attribution(values, np.abs(values), truth.query_ids, truth.train_ids, "mine")
    return result.export(path.with_suffix(".csv"))


def wide_parquet(path, truth):
    import pandas as pd

    table = pd.DataFrame(SCORES, columns=list(truth.train_ids), index=list(truth.query_ids))
    table.to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def long_parquet(path, truth):
    values = SCORES.astype(np.float32)
    return Attribution(values, np.abs(values), truth.query_ids, truth.train_ids, "mine").export(
        path.with_suffix(".parquet")
    )


FORMS = [
    npy,
    npz,
    bare_csv,
    csv_with_header,
    csv_with_queries,
    csv_with_both,
    long_csv,
    exported_csv,
    wide_parquet,
    long_parquet,
]


@pytest.mark.parametrize("names", ["names", "numbers"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_scores(form, names, tmp_path):
    """Ids that are numbers look like scores: where a table has them is told by its shape."""
    ids = (TRAIN, QUERIES) if names == "names" else (tuple("01234"), tuple("01"))
    truth = about(*ids)
    found = read_scores(form(tmp_path / "mine", truth), truth)
    assert found.name == "mine"
    np.testing.assert_array_equal(found.variants[""].astype(np.float32), SCORES.astype(np.float32))


def test_a_file_that_names_its_images_may_have_them_in_another_order(tmp_path):
    """Also where the names are numbers."""
    truth, order = about(tuple("01234"), tuple("01")), [4, 2, 0, 1, 3]
    head = ["", *(str(place) for place in order)]
    path = write_csv(tmp_path / "a.csv", [head, ["1", *SCORES[1, order]], ["0", *SCORES[0, order]]])
    np.testing.assert_allclose(read_scores(path, truth).variants[""], SCORES)


def test_numbers_keep_their_digits(tmp_path, truth):
    for number, values in enumerate((SCORES * 1e300, 1e9 + SCORES, SCORES * 1e-60)):
        np.save(tmp_path / f"{number}.npy", values)
        np.testing.assert_array_equal(read_scores(tmp_path / f"{number}.npy", truth).variants[""], values)


def test_names_like_formulas_are_found_again(tmp_path):
    truth = about(("-a.png", "=b.png", *TRAIN[2:]), QUERIES)
    found = read_scores(exported_csv(tmp_path / "mine", truth), truth)
    np.testing.assert_allclose(found.variants[""], SCORES.astype(np.float32))


def test_names_that_are_no_names_are_not_read(tmp_path, truth):
    np.savez_compressed(tmp_path / "a.npz", scores=SCORES, train_ids=np.zeros(1000, "S40000"))
    with pytest.raises(PatchtraceError, match="use 5 names"):
        read_scores(tmp_path / "a.npz", truth)


def test_two_columns_of_one_name_are_refused(tmp_path, truth):
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*TRAIN[:4], TRAIN[0]]
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in SCORES.T], names=names), tmp_path / "a.parquet")
    with pytest.raises(PatchtraceError, match="two of its columns have the same name"):
        read_scores(tmp_path / "a.parquet", truth)


def test_all_suffixes_are_tried_here(tmp_path, truth):
    assert {form(tmp_path / "mine", truth).suffix for form in FORMS} == set(SUFFIXES)


def test_an_npz_can_say_what_it_is_about(tmp_path, truth):
    facts = {"settings": {"k": 3}, "requires": "the model"}
    np.savez(tmp_path / "a.npz", scores=SCORES, train_ids=TRAIN, query_ids=QUERIES, facts=json.dumps(facts))
    found = read_scores(tmp_path / "a.npz", truth, "mine")
    assert (found.name, found.settings, found.requires) == ("mine", {"k": 3}, "the model")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_ids": ("other", *TRAIN[1:])}, "number 0 is 'train/0.png' in the truth and 'other'"),
        ({"query_ids": ("p", "x")}, "of the queries, number 1 is 'q, with a comma' in the truth and 'x'"),
        ({"query_ids": ("p",)}, "use 2 names"),
        ({"facts": json.dumps({"train": {"fingerprint": "other"}})}, "the training images .* have other pixels"),
        ({"facts": "{"}, "no readable arrays"),
    ],
)
def test_an_npz_about_other_images_is_refused(tmp_path, change, says):
    truth = about(TRAIN, QUERIES, {"train": "this", "queries": "these"})
    np.savez(tmp_path / "a.npz", scores=SCORES, **change)
    with pytest.raises(PatchtraceError, match=says):
        read_scores(tmp_path / "a.npz", truth)


SHAPES = [
    (SCORES.T, r"shape \(5, 2\), and the truth is about 2 queries and 5 images: transpose them"),
    (SCORES.ravel(), r"shape \(10,\), .*: reshape them to \(2, 5\)"),
    (SCORES[:, :4], r"shape \(2, 4\), .* 2 queries and 5 images: use \(2, 5\)"),
    (SCORES[:1], r"shape \(1, 5\), .* use \(2, 5\)"),
    (SCORES[None], r"shape \(1, 2, 5\), .* use \(2, 5\)"),
    (np.full((2, 5), np.nan), "not finite"),
    (np.array([["a"] * 5] * 2), "use numbers"),
    (SCORES.astype(complex), "use numbers"),
    (np.array([[None] * 5] * 2), "use numbers"),
]


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(("array", "says"), SHAPES)
def test_other_arrays_are_refused(tmp_path, truth, array, says, suffix):
    path = tmp_path / f"mine{suffix}"
    if suffix == ".npy":
        np.save(path, array, allow_pickle=True)
    else:
        np.savez(path, scores=array, allow_pickle=True)
    with pytest.raises(PatchtraceError, match=says) as found:
        read_scores(path, truth)
    assert f"the scores in {str(path)!r}" in str(found.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it is empty"),
        ("1,2,3,4,5\n", r"shape \(1, 5\)"),
        ("1,2,3,4,5\n1,2\n", "its rows have from 2 to 5 cells"),
        ("1,2,3,4,5\n1,2,three,4,5\n", "not numbers"),
        ("1,2,3\n1,2,3\n", r"shape \(2, 3\)"),
        ("1,2,3,4,5\n" * 9, "more than 3 rows, and the truth is about 2 queries"),
        ("x,train/1.png,c,d,e\n1,2,3,4,5\n1,2,3,4,5\n", "number 0 is 'train/0.png' in the truth and 'x'"),
        ("query,score\np,1\n", "add one that names the image"),
        ("query,id,score\np,train/0.png,1\n", "9 of 10 pairs have no score, such as image 'train/1.png' for query 'p'"),
        ("query,id,score\nz,train/0.png,1\n", "the truth has no query 'z'"),
        ("query,id,score\np,z,1\n", "the truth has no image 'z'"),
        ("query,index,score\np,5,1\n", "the truth has no image '5'"),
        ("query,index,score\np,-1,1\n", "the truth has no image '-1'"),
        ("query,index,score\np,1,x\n", "row 1 has the score 'x'"),
        ("query,index,score\np,1\n", "row 1 has the score 'None'"),
        ("query,index,score\np,1,2\np,1,2\n", "two scores of image '1' for query 'p'"),
        ("query,index,score\np," + "9" * 9999 + ",2\n", "the truth has no image '999"),
        ("query,index,score\np," + "0" * 9999 + "1,2\n", "the truth has no image '000"),
    ],
)
def test_other_tables_are_refused(tmp_path, truth, text, says):
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(PatchtraceError, match=says):
        read_scores(tmp_path / "mine.csv", truth)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [b"", b"\xff\x00garbage" * 50, b"PK\x03\x04broken", b"\x93NUMPY\x01\x00"])
def test_damaged_files_are_refused(tmp_path, truth, suffix, content):
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(content)
    with pytest.raises(PatchtraceError, match="the scores in"):
        read_scores(path, truth)


def test_an_array_that_claims_to_be_huge_is_refused_by_its_header(tmp_path, truth):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 5000000000000), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    (tmp_path / "mine.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "mine.npz", "w") as archive:
        archive.writestr("scores.npy", content)
    for name in ("mine.npy", "mine.npz"):
        assert images_in(tmp_path / name) == 5_000_000_000_000
        with pytest.raises(PatchtraceError, match=r"shape \(2, 5000000000000\)"):
            read_scores(tmp_path / name, truth)


def test_a_pickle_is_not_read(tmp_path, truth):
    np.save(tmp_path / "mine.npy", np.array([[{"a": 1}] * 5] * 2), allow_pickle=True)
    with pytest.raises(PatchtraceError, match="use numbers"):
        read_scores(tmp_path / "mine.npy", truth)


def test_other_types_and_missing_arrays_are_named(tmp_path, truth):
    with pytest.raises(PatchtraceError, match=r"files of type \.txt are not read: use \.npy, \.npz, \.csv, \.parquet"):
        read_scores(tmp_path / "mine.txt", truth)
    np.savez(tmp_path / "mine.npz", other=SCORES)
    with pytest.raises(PatchtraceError, match="no array 'scores', only other"):
        read_scores(tmp_path / "mine.npz", truth)
    with pytest.raises(PatchtraceError, match=r"cannot be read|no readable"):
        read_scores(tmp_path / "none.npy", truth)
