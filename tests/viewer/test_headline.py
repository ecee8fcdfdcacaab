"""What the page says first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from patchtrace import Attribution
from patchtrace.cli.verdicts import verdict_lines
from patchtrace.copies.verdict import Kind, Verdict
from patchtrace.null_details import NullDetails
from patchtrace.viewer.headline import headline

HALF = ((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5))
PART = Verdict(Kind.PART, agreement=0.9, points=14, in_query=HALF, in_image=HALF)
SHARES = np.float32([[0.3, 0.2, 0.1, 0.05]])
IDS = ("a/b/1.png", "a/b/2.png", "a/c/3.png", "4.png")


def null(as_large, controls=99):
    """What a null says of a query that so many controls are as large as."""
    z = np.float32([[0.0, 1.0, 4.0, 2.0]])
    return NullDetails("largest z", "controls", 0.01, [4.0], [as_large], z, np.full((1, controls), 3, np.float32))


def told(verdicts=None, null=None, shown=(0, 1, 2, 3)):
    result = Attribution(SHARES, SHARES, ("q.png",), IDS, "nda", verdicts=() if verdicts is None else (verdicts,))
    return headline(replace(result, null=null), 0, list(shown), [0, 1, 2, 3])


def test_what_was_found_comes_first_the_most_certain_before_the_best_ranked():
    changed = replace(PART, kind=Kind.CHANGED, changes=("mirrored", "cropped"))
    words = told({0: Verdict(Kind.RESEMBLES), 1: PART, 2: changed}, null(3))
    assert words["tone"] == "found"
    expected = "c/3.png is a changed copy: mirrored, cropped; 1 more image has something in common with it"
    assert words["title"] == expected
    assert "50 % of the query and 50 % of the image: 14 points agree" in words["sentences"][0]
    expected = "3 of 99 control pictures had a largest z as large (p 0.04): nothing stands out at 1 %."
    assert words["sentences"][-1] == expected


@pytest.mark.parametrize(
    ("null", "tone", "title"),
    [
        (null(0), "unusual", "It stands out among controls"),
        (null(3), "usual", "Nothing stands out"),
        (null(0, controls=39), "open", "Beyond all of 39 controls, which are too few to tell"),
        (null(1, controls=39), "usual", "Nothing stands out"),
        (None, "open", "No copy, and no part in common, was found"),
    ],
)
def test_without_a_copy_the_null_decides_and_without_a_null_nobody_knows(null, tone, title):
    words = told({0: Verdict(Kind.RESEMBLES), 1: Verdict(Kind.RESEMBLES)}, null)
    assert (words["tone"], words["title"]) == (tone, title)
    assert "the first 2 images" in words["sentences"][0]
    assert ("was not measured" in words["sentences"][-1]) == (null is None)


def test_the_lead_is_that_over_the_next_image_that_is_shown():
    assert "b/1.png has the largest weight, 30.0 %, 1.5 times that of the second (20.0 %)" in told()["sentences"][0]
    assert "3.0 times that of the second (10.0 %)" in told(shown=(0, 2, 3))["sentences"][0]
    assert told()["title"] == "The ranking, without a check for copies"


def test_a_copy_that_is_found_by_its_z_is_said_to_be_down_the_list():
    shares = np.linspace(0.2, 0.01, 15, dtype=np.float32)[None]
    z = np.zeros((1, 15), np.float32)
    z[0, 13], z[0, 2] = 9, 5
    details = NullDetails("largest z", "controls", 0.01, [9.0], [0], z, np.full((1, 99), 3, np.float32))
    result = Attribution(shares, shares, ("q.png",), tuple(map(str, range(15))), "nda", null=details)
    assert result.to_check(0) == [*range(10), 13]  # of the three with the largest z, two are among the first ten
    with_part = replace(result, verdicts=({**dict.fromkeys(range(10), Verdict(Kind.RESEMBLES)), 13: PART},))
    words = headline(with_part, 0, [0, 1], list(range(10)))
    assert words["title"] == "13 has a part in common with it"
    assert words["sentences"][0].endswith("By its share it is at place 14 of the list; its z is large.")
    nothing = replace(result, verdicts=(dict.fromkeys(result.to_check(0), Verdict(Kind.RESEMBLES)),))
    expected = "For copies the first 10 images of the list and 1 more with a large z were checked."
    assert headline(nothing, 0, [0, 1], list(range(10)))["sentences"][0] == expected
    assert verdict_lines(nothing, 10) == [
        "no copy, and no part in common, was found among the first 10 images and 1 more with a large z"
    ]
    words = verdict_lines(with_part, 10)[1].split()
    assert (words[0], words[-1]) == ("14", "13")
    assert replace(result, null=None).to_check(0) == list(range(10))
