"""Tables on a terminal and as CSV."""

from __future__ import annotations

import csv

import pytest

from patchtrace import PatchtraceError
from patchtrace.evaluate.tables import text_table, text_width
from patchtrace.files import write_csv


def test_numbers_stand_at_the_right_and_text_at_the_left():
    lines = text_table(["name", "n", "p"], [["a", 5, "<0.001"], ["longer", 1234, "0.5"]]).splitlines()
    assert lines == ["name       n       p", "a          5  <0.001", "longer  1234     0.5"]


def test_one_word_among_numbers_makes_a_column_of_text():
    assert text_table(["x"], [["10"], ["none"], ["7"]]).splitlines() == ["x", "10", "none", "7"]


def test_what_is_not_known_is_left_empty():
    assert text_table(["a", "b"], [[None, 2], [10, None]]).splitlines() == [" a  b", "    2", "10"]


def test_a_table_without_rows_has_its_header():
    assert text_table(["a", "bc"], []) == "a  bc"


def test_columns_stay_below_each_other_with_wide_letters_and_accents():
    lines = text_table(["name", "x"], [["写真", "left"], ["e\u0301te\u0301", "left"], ["abcd", "left"]]).splitlines()
    assert {text_width(line[: line.index("left")]) for line in lines[1:]} == {6}


def test_csv_keeps_digits_and_odd_names(tmp_path):
    rows = [['a,b\n"c"', 0.1 + 0.2], ["ü", None]]
    path = write_csv(tmp_path / "t.csv", ["name", "value"], rows)
    with path.open(newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream)) == [["name", "value"], ['a,b\n"c"', "0.30000000000000004"], ["ü", ""]]


@pytest.mark.parametrize("name", ["=1+1.png", "+a", "-a", "@a", "\t=a", "\r=a", "\n=a", "'a"])
def test_names_that_a_spreadsheet_would_compute_are_marked_as_text(tmp_path, name):
    path = write_csv(tmp_path / "t.csv", ["name", "value"], [[name, -0.5]])
    with path.open(newline="", encoding="utf-8") as stream:
        assert list(csv.reader(stream))[1] == ["'" + name, "-0.5"]


def test_a_row_that_does_not_fit_is_refused_and_leaves_the_older_file(tmp_path):
    path = write_csv(tmp_path / "t.csv", ["a"], [[1]])
    before = path.read_bytes()
    with pytest.raises(PatchtraceError, match="2 cells, and the table 1"):
        write_csv(path, ["a"], [[1], [1, 2]])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(PatchtraceError, match="2 cells"):
        text_table(["a"], [[1, 2]])
