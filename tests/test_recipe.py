"""Recipes check themselves, travel as TOML, and fit pictures of any size."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchtrace import Level, PatchtraceError, Recipe, Scale, Schedule

SIMPLE = Recipe((Level(100, (Scale(5),)),))


@st.composite
def scales(draw):
    patch = draw(st.integers(1, 64))
    weight = draw(st.floats(1e-6, 1e6, allow_nan=False))
    return Scale(patch, draw(st.integers(1, patch)), weight)


@st.composite
def recipes(draw):
    steps = draw(st.lists(st.integers(0, 999), min_size=1, max_size=4, unique=True))
    return Recipe(
        tuple(Level(t, tuple(draw(st.lists(scales(), min_size=1, max_size=3)))) for t in steps),
        k=draw(st.integers(1, 10**6)),
        border=draw(st.sampled_from(["match", "zero", "valid"])),
        pooling=draw(st.sampled_from(["orthonormal", "mean"])),
        schedule=draw(
            st.sampled_from(
                ["ddpm-linear", "cosine", Schedule.from_array([0.1 ** (t / 999) * 0.99 for t in range(1000)])]
            )
        ),
        draws=draw(st.integers(1, 100)),
        views=draw(st.lists(st.sampled_from(["flips", "zoom:1.5", "zoom:2.25"]))),
        exponent=draw(st.floats(0.1, 10)),
        seed=draw(st.integers(0, 2**63 - 1)),
        note=draw(st.text(st.characters(exclude_categories=["Cs"]))),
    )


@given(recipes())
def test_toml_reads_back_to_an_equal_recipe(recipe):
    back = Recipe.from_toml(recipe.to_toml())
    assert back == recipe
    assert back.note == recipe.note


@given(recipes())
def test_plain_data_reads_back_to_an_equal_recipe(recipe):
    assert Recipe.from_dict(recipe.to_dict()) == recipe


def test_recipes_are_frozen():
    with pytest.raises(FrozenInstanceError):
        SIMPLE.k = 5


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: SIMPLE.check(4, 9), "a patch of at most 4"),
        (lambda: Recipe((Level(1000, (Scale(5),)),)), "use 0 to 999"),
        (lambda: Level(-1, (Scale(5),)), "at least 0"),
        (lambda: Level(100, ()), "at least one Scale"),
        (lambda: Level(100, 5), "at least one Scale"),
        (lambda: Recipe(5), "at least one Level"),
        (lambda: Recipe(()), "at least one Level"),
        (lambda: Recipe((Level(1, (Scale(1),)), Level(1, (Scale(3),)))), "into one level"),
        (lambda: Scale(5, weight=0), "greater than 0"),
        (lambda: Scale(5, weight=-1.0), "greater than 0"),
        (lambda: Scale(5, weight=float("nan")), "greater than 0"),
        (lambda: Scale(5, weight=float("inf")), "greater than 0"),
        (lambda: Scale(0), "at least 1"),
        (lambda: Scale(2.5), "whole number"),
        (lambda: Scale(True), "whole number"),
        (lambda: Scale(4, pool=5), "a pool of at most 4"),
        (lambda: replace(SIMPLE, k=0), "at least 1"),
        (lambda: replace(SIMPLE, draws=0), "at least 1"),
        (lambda: replace(SIMPLE, seed=-1), "at least 0"),
        (lambda: replace(SIMPLE, exponent=0), "greater than 0"),
        (lambda: replace(SIMPLE, views="flop"), "'flop' is not a view: use flips, zoom:1.5"),
        (lambda: replace(SIMPLE, views=["zoom:0.5"]), "more than 1, up to 4"),
        (lambda: replace(SIMPLE, views=["zoom:1"]), "more than 1, up to 4"),
        (lambda: replace(SIMPLE, views=["zoom:nan"]), "more than 1, up to 4"),
        (lambda: replace(SIMPLE, views=True), "views is True: use flips"),
        (lambda: replace(SIMPLE, views="zoom:4").check(5, 5), "more than 100: use smaller patches or zooms"),
        (lambda: Recipe.from_toml("flips = 'yes'\nlevels = []"), r"use views = \['flips'\]"),
        (lambda: Recipe.from_toml("flips = true\nviews = []\nlevels = []"), r"use views = \['flips'\]"),
        (lambda: replace(SIMPLE, border="mirror"), "match, zero, valid"),
        (lambda: replace(SIMPLE, pooling="max"), "orthonormal, mean"),
        (lambda: replace(SIMPLE, schedule="linear"), "ddpm-linear"),
        (lambda: replace(SIMPLE, schedule=7), "a name"),
        (lambda: replace(SIMPLE, schedule=Schedule.from_array([0.9, 0.5])), "use 0 to 1"),
        (lambda: Recipe.preset("cifar10"), "cifar, celeba, cifar-stable"),
        (lambda: Recipe.from_toml("k = "), "not valid TOML"),
        (lambda: Recipe.from_toml("k = 5"), "needs the setting 'levels'"),
        (lambda: Recipe.from_toml("levels = 5"), "list of tables"),
        (lambda: Recipe.from_toml("kk = 5\nlevels = []"), "did you mean 'k'"),
        (lambda: Recipe.from_toml("[[levels]]\nt = 1\nscale = []"), "did you mean 'scales'"),
        (lambda: Recipe.from_toml("[[levels]]\nt = 1"), "needs the setting 'scales'"),
        (lambda: Recipe.from_toml("[[levels]]\nt = 1\nscales = [5]"), "table of settings"),
        (lambda: Recipe.from_toml("[[levels]]\nt = 1\nscales = [{path = 5}]"), "did you mean 'patch'"),
        (lambda: Recipe.from_toml("[[levels]]\nt = '1'\nscales = [{patch = 5}]"), "whole number"),
        (lambda: Recipe.load("/nowhere/recipe.toml"), "cannot read the recipe"),
        (lambda: Recipe.for_size(0, 5), "at least 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_what_would_be_right(make, says):
    with pytest.raises(PatchtraceError, match=says):
        make()


def test_a_bad_recipe_file_is_named(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("k = 0\n[[levels]]\nt = 1\nscales = [{patch = 3}]\n")
    with pytest.raises(PatchtraceError, match=r"mine\.toml.*at least 1"):
        Recipe.load(path)


def test_cifar_preset_is_the_paper_s():
    recipe = Recipe.preset("cifar")
    assert [level.t for level in recipe.levels] == [100, 200, 300, 400, 500]
    assert [level.scales[0] for level in recipe.levels] == [Scale(p, 1, 0.75) for p in (5, 7, 9, 21, 21)]
    assert [level.scales[1] for level in recipe.levels] == [Scale(p, 2, 0.25) for p in (8, 8, 10, 20, 20)]
    assert (recipe.k, recipe.border, recipe.pooling, recipe.draws, recipe.views) == (
        100,
        "match",
        "orthonormal",
        1,
        (),
    )


def test_celeba_preset_has_the_paper_s_full_scale_patches():
    assert [level.scales[0].patch for level in Recipe.preset("celeba").levels] == [5, 7, 9, 11, 13]


def test_quick_preset_has_one_level_and_one_scale():
    recipe = Recipe.preset("quick")
    assert len(recipe.levels) == len(recipe.levels[0].scales) == 1


@given(st.integers(1, 600), st.integers(1, 600))
def test_for_size_gives_a_recipe_that_fits_and_says_how_it_chose(height, width):
    recipe = Recipe.for_size(height, width)
    recipe.check(height, width)
    assert recipe.note == Recipe.preset("patchtrace").note or str(min(height, width)) in recipe.note
    full = [level.scales[0].patch for level in recipe.levels]
    assert full == sorted(full)
    assert all(patch % 2 for patch in full)
    assert all(scale.patch % scale.pool == 0 for level in recipe.levels for scale in level.scales)


def test_for_size_gives_the_preset_at_its_own_size():
    assert Recipe.for_size(32, 32) == Recipe.preset("patchtrace")


def test_for_size_has_the_full_scale_of_the_paper_at_the_size_of_celeba():
    ours, theirs = (
        [level.scales[0].patch for level in one.levels] for one in (Recipe.for_size(64, 64), Recipe.preset("celeba"))
    )
    assert ours == theirs


def test_the_default_compares_mirrored_images_too_and_the_paper_does_not():
    assert Recipe.for_size(12, 32).views == Recipe.preset("patchtrace").views == ("flips",)
    assert all(Recipe.preset(name).views == () for name in ("cifar", "celeba", "cifar-stable", "celeba-stable"))


@pytest.mark.parametrize(("flips", "views"), [("flips = true", ("flips",)), ("flips = false", ()), ("", ())])
def test_recipes_of_before_there_were_views_load_as_they_were(flips, views):
    recipe = Recipe.from_toml(f"{flips}\n{SIMPLE.to_toml().replace('views = []', '')}")
    assert recipe == replace(SIMPLE, views=views)


def test_numbers_of_numpy_become_plain_ones():
    recipe = Recipe([Level(np.int64(100), [Scale(np.int32(5), weight=np.float32(0.5))])], exponent=np.float64(2))
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    assert type(recipe.levels[0].t) is int


def test_weights_of_a_level_are_relative():
    level = Level(1, (Scale(3, weight=3), Scale(5, weight=1)))
    assert [weight for _, weight in level.weighted_scales()] == [0.75, 0.25]


def test_a_schedule_object_equal_to_a_named_one_is_that_name():
    assert replace(SIMPLE, schedule=Schedule.named("cosine")) == replace(SIMPLE, schedule="cosine")


BIG = "9" * 4000
HUGE = "0x" + "f" * 8000
GOOD = "k = 100\n[[levels]]\nt = 100\nscales = [{patch = 5}]\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a = " + "[" * 5000 + "]" * 5000, "nested too deeply", id="deep lists"),
        pytest.param("a = " + "{a = " * 3000 + "1" + "}" * 3000, "nested too deeply", id="deep tables"),
        pytest.param(GOOD.replace("100", BIG, 1), "k is 9{80}.* at most", id="large k"),
        pytest.param(GOOD.replace("100", HUGE, 1), "k is a number of more than 4000 digits", id="huge k"),
        pytest.param(GOOD.replace("100", "9" * 5000, 1), "thousands of digits", id="k that Python does not read"),
        pytest.param(GOOD.replace("t = 100", f"t = {HUGE}"), "t is a number of more than", id="huge t"),
        pytest.param(GOOD.replace("5", HUGE), "patch is a number of more than", id="huge patch"),
        pytest.param(GOOD.replace("5", "5, weight = 1e308"), "weight is 1e.308: .* 0.25 and 0.75", id="large weight"),
        pytest.param(GOOD.replace("5", "5, weight = 1e-320"), "weight is 1e-320: .* 0.25", id="small weight"),
        pytest.param(GOOD.replace("5", f"5, weight = {BIG}"), "weight is 9.* finite", id="large whole weight"),
        pytest.param(f"seed = {HUGE}\n{GOOD}", "seed is a number of more than", id="huge seed"),
        pytest.param(f"border = {HUGE}\n{GOOD}", "border is a number of more than", id="huge border"),
        pytest.param(f"exponent = {BIG}\n{GOOD}", "exponent is 9.* finite", id="large exponent"),
        pytest.param(f"draws = 99999999999999999999\n{GOOD}", "draws .* at most 1000000, or 'auto'", id="many draws"),
        pytest.param(f"note = 5\n{GOOD}", "note is 5: use a text", id="note"),
        pytest.param(f"schedule = {{name = 5, alphas_cumprod = [0.5]}}\n{GOOD}", "name of a schedule is 5", id="name"),
        pytest.param(f"schedule = {{name = 'x', alphas_cumprod = [{BIG}]}}\n{GOOD}", "must be numbers", id="alpha"),
        pytest.param(
            f"schedule = {{name = 'x', alphas_cumprod = [0.9999999999999999]}}\n{GOOD.replace('t = 100', 't = 0')}",
            "noise of variance 1.11022e-16 at t = 0",
            id="hardly any noise",
        ),
    ],
)
def test_a_hostile_recipe_is_refused_in_a_short_sentence(text, says):
    with pytest.raises(PatchtraceError, match=says) as error:
        Recipe.from_toml(text)
    assert len(str(error.value)) < 300


def test_a_level_can_be_given_by_its_noise_share():
    text = 'schedule = "flow-matching"\n[[levels]]\nnoise_share = 0.25\nscales = [{patch = 3}]\n'
    recipe = Recipe.from_toml(text)
    assert recipe.levels[0].t == 249
    assert Recipe.from_toml(recipe.to_toml()) == recipe
    with pytest.raises(PatchtraceError, match="use one of them"):
        Recipe.from_toml(text.replace("noise_share", "t = 3\nnoise_share"))
    with pytest.raises(PatchtraceError, match="between 0 and 1"):
        Recipe.from_toml(text.replace("0.25", "250"))
