"""Absurd numbers and odd pictures: an answer or a sentence that says what would be right, never a traceback."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from patchtrace.compute import MOST_THREADS, Compute
from patchtrace.engines import native
from patchtrace.errors import PatchtraceError


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--draws", "99999999999999999999"], "from 1 to 1000000, or auto"),
        (["--draws", "1000001"], "from 1 to 1000000, or auto"),
        (["--most-draws", "99999999999999999999"], "at most 1000000"),
        (["--threads", "100000"], "threads is 100000: use a whole number of at most 1024"),
        (["--memory", "1KB"], "use at least 10MB"),
        (["--memory", "nan"], "use a size such as"),
        (["--size", "0"], "a side from 1 to 4096"),
        (["--size", "5000"], "a side from 1 to 4096"),
        (["--top", "9" * 30], "use a whole number of at most"),
        (["--shortlist", "9" * 30], "use a whole number of at most"),
        (["--seed", "9" * 30], "use a whole number of at most"),
        (["--cluster", "local:100000"], "local:N with a number of workers"),
        (["--seconds", "nan"], "use a finite number greater than 0"),
        (["--precision", "inf"], "use a finite number greater than 0"),
        (["--rate", "nan"], "nan is not in the range 0<x<1"),
        (["--timeout", "nan"], "use a finite number greater than 0"),
        (["--group-by", "(" * 1000], "is not a way to group"),
    ],
)
def test_an_absurd_number_is_refused_with_what_would_be_right(photos, query, call, options, says):
    code, out, err = call("attribute", query, "--train", photos, *options)
    assert code in (1, 2)
    assert not out
    assert says in err
    assert len(err) < 1500


def test_a_number_of_threads_in_the_environment_is_bounded_too(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert native.default_threads() == MOST_THREADS


@pytest.mark.parametrize("memory", ["9" * 500 + "GB", "1e5GB", "0", "-1", ""])
def test_odd_amounts_of_memory_are_answered(memory):
    if memory.startswith("9"):
        assert Compute(memory=memory).budget.total > 10**15
    else:
        with pytest.raises(PatchtraceError, match="memory is"):
            Compute(memory=memory)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("role", ["query", "train"])
def test_values_that_are_not_finite_are_refused(tmp_path, call, value, role):
    good = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    bad = good.copy()
    bad[2, 1, 3, 3] = value
    np.save(tmp_path / "query.npy", bad if role == "query" else good)
    np.save(tmp_path / "train.npy", bad if role == "train" else good)
    code, _, err = call("attribute", tmp_path / "query.npy", "--train", tmp_path / "train.npy")
    assert code == 1
    assert "values that are not finite" in err


@pytest.mark.parametrize("size", ["1", "2", "1x40", "40x1"])
def test_tiny_and_thin_pictures_are_answered(photos, query, call, size):
    code, out, _ = call("attribute", query, "--train", photos, "--size", size, "--draws", 2)
    assert code == 0
    assert "nan" not in out


@pytest.mark.parametrize("magnitude", [1e6, 1e18, 1e30])
def test_latents_of_any_magnitude_are_answered(tmp_path, call, magnitude):
    latents = np.random.default_rng(0).uniform(-magnitude, magnitude, (5, 4, 8, 8)).astype(np.float32)
    np.save(tmp_path / "a.npy", latents)
    code, out, _ = call("attribute", tmp_path / "a.npy", "--train", tmp_path / "a.npy", "--draws", 2, "--top", 1)
    assert code == 0
    assert out.count("100.0 %") >= len(latents)  # each query is one of the images


def test_queries_equal_to_every_image_are_answered(photos, call):
    code, out, _ = call("attribute", photos, "--train", photos, "--draws", 2, "--top", 1)
    assert code == 0
    assert out.count("  id\n") == 6


def test_one_image_has_all_of_the_query(tmp_path, call):
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(tmp_path / "one.png")
    recipe = tmp_path / "r.toml"
    recipe.write_text(f"k = {2**63 - 1}\n[[levels]]\nt = 100\nscales = [{{patch = 3}}]\n")  # beyond all patches
    code, out, _ = call("attribute", tmp_path / "one.png", "--train", tmp_path / "one.png", "--recipe", recipe)
    assert code == 0
    assert "100.0 %  one.png" in out


def test_settings_that_are_nested_too_deeply_are_refused(tmp_path, call):
    path = tmp_path / "settings.toml"
    path.write_text("a = " + "[" * 5000 + "]" * 5000)
    code, _, err = call("--config", path, "doctor")
    assert code == 2
    assert "cannot read the settings" in err


def test_control_characters_in_settings_do_not_reach_the_terminal(tmp_path, call, photos, query):
    path = tmp_path / "settings.toml"
    path.write_text('[attribute]\nencoder = "\\u001b[31m"\nmethod = "\\u001b[31mnda"\n')
    code, out, err = call("--config", path, "attribute", query, "--train", photos)
    assert code == 2
    assert "\x1b" not in out + err


def test_the_note_of_a_recipe_does_not_reach_the_terminal_as_it_is(tmp_path, call, photos, query):
    recipe = tmp_path / "r.toml"
    recipe.write_text('note = "\\u001b[31mred\\u0007"\n[[levels]]\nt = 100\nscales = [{patch = 3}]\n')
    code, out, err = call("attribute", query, "--train", photos, "--recipe", recipe, "-v")
    assert code == 0
    assert "\\x1b[31mred\\x07" in err
    assert not {"\x1b", "\x07"} & set(out + err)


def test_pictures_that_are_too_large_for_the_memory_are_refused_before_the_first_comparison(photos, query, call):
    code, out, err = call("attribute", query, "--train", photos, "--size", 1000, "--draws", 1)
    assert code == 1
    assert not out
    assert "pictures of 1000 x 1000 need" in err
    assert "--memory" in err
