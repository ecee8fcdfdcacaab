"""Patch positions and pair counts."""

from __future__ import annotations

import pytest

from patchtrace.engines import Comparison


def comparison(patch, pool=1, border="match"):
    return Comparison(patch, pool, "orthonormal", border, 100)


@pytest.mark.parametrize(("patch", "positions"), [(1, 32), (5, 32), (8, 31), (21, 32), (32, 31)])
def test_odd_patches_stand_at_every_pixel_and_even_ones_between_them(patch, positions):
    assert comparison(patch).axis(32).positions == positions


def test_valid_keeps_only_patches_inside():
    assert comparison(5, border="valid").axis(32).positions == 28


def test_a_row_left_out_by_pooling_does_not_hang_over():
    # a patch of 5 pooled by 2 uses its first four rows: the lowest position but one then lies inside
    assert comparison(5, pool=2).axis(10).interior == range(2, 9)
    assert comparison(5).axis(10).interior == range(2, 8)


def test_the_border_rule_leaves_a_thirty_ninth_of_the_pairs_at_patch_21():
    everything = comparison(21, border="zero").pairs(32, 32)
    assert everything == 1024**2
    assert round(everything / comparison(21).pairs(32, 32)) == 39


def test_the_border_rule_leaves_three_fifths_of_the_pairs_at_patch_5():
    assert comparison(5).pairs(32, 32) / 1024**2 == pytest.approx(0.6, abs=0.01)
