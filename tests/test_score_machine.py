"""The score machine against its formula, its loss against retraining, its influence against finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from patchtrace import Compute, ImageSet, PatchtraceError, Schedule, ScoreMachine
from patchtrace.demo import postcards
from patchtrace.engines import ENGINES
from patchtrace.score_machine import PATCHES

RNG = np.random.default_rng(0)
SCHEDULE = Schedule.named("ddpm-linear")


def pictures(count=4, shape=(3, 9, 8), seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, *shape)).astype(np.float32)


def noisy(clean, t, seed=1):
    signal, sigma = SCHEDULE.at(t)
    return (signal * clean + sigma * np.random.default_rng(seed).standard_normal(clean.shape)).astype(np.float32)


def machine(train=None, engine="auto", memory="1GB", **options):
    compute = Compute(engine=engine, memory=memory)
    return ScoreMachine(pictures() if train is None else train, compute=compute, **{"patches": 3, **options})


# -- one step -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", ["match", "zero"])
def test_a_pixel_is_the_weighted_mean_of_middle_pixels(border):
    """The formula in loops. Under ``match``, both pictures are padded with a colour that no pixel is near."""
    train, t = pictures(2, (2, 5, 6)), 300
    signal, sigma = SCHEDULE.at(t)
    x = noisy(pictures(1, (2, 5, 6), seed=5)[0], t)
    pad = 1000.0 if border == "match" else 0.0

    def patch(picture, row, column):
        padded = np.pad(picture.astype(float), ((0, 0), (1, 1), (1, 1)), constant_values=pad)
        return padded[:, row : row + 3, column : column + 3]

    expected = np.zeros_like(x)
    for row in range(5):
        for column in range(6):
            logits, colours = [], []
            for image in train:
                for r in range(5):
                    for c in range(6):
                        distance = ((patch(x, row, column) - patch(signal * image, r, c)) ** 2).sum()
                        logits.append(-distance / (2 * sigma**2))
                        colours.append(image[:, r, c])
            weights = np.exp(np.array(logits) - max(logits))
            expected[:, row, column] = weights @ np.array(colours) / weights.sum()
    np.testing.assert_allclose(machine(train, border=border).denoise(x, t), expected, atol=2e-5)


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"reference"}))
def test_every_engine_paints_the_same(engine):
    x = noisy(pictures(2, seed=3), 250)
    ours, oracle = (machine(engine=name) for name in (engine, "reference"))
    np.testing.assert_allclose(ours.denoise(x, 250), oracle.denoise(x, 250), atol=2e-5)
    ours, oracle = (one.sample(2, steps=3, seed=4) for one in (ours, oracle))
    np.testing.assert_allclose(ours.images, oracle.images, atol=1e-3)
    np.testing.assert_allclose(ours.shares, oracle.shares, atol=1e-3)


def test_one_picture_and_many_are_denoised_alike():
    x = noisy(pictures(3, seed=3), 250)
    whole = machine().denoise(x, 250)
    np.testing.assert_allclose(machine().denoise(x[1], 250), whole[1], atol=1e-6)


def test_a_known_picture_under_little_noise_comes_back():
    cards = postcards(20)
    clean = cards.block(7, 8)
    error = np.abs(ScoreMachine(cards).denoise(noisy(clean, 20), 20) - clean)
    assert np.median(error) < 0.02


# -- painting -----------------------------------------------------------------------------------------------------


def test_samples_are_repeatable_and_do_not_depend_on_their_number():
    few, many = machine().sample(1, steps=4, seed=7), machine().sample(3, steps=4, seed=7)
    np.testing.assert_allclose(many.images[:1], few.images, atol=1e-5)
    np.testing.assert_allclose(many.shares[:1], few.shares, atol=1e-5)
    assert not np.allclose(many.images[0], many.images[1])
    assert not np.allclose(machine().sample(1, steps=4, seed=8).images, few.images)


def test_new_noise_on_the_way_gives_other_pictures_from_the_same_start():
    still, moved = (machine().sample(2, steps=5, seed=7, eta=eta).images for eta in (0.0, 1.0))
    assert not np.allclose(still, moved)
    np.testing.assert_array_equal(machine().sample(2, steps=5, seed=7, eta=1.0).images, moved)


def test_samples_are_made_of_the_colours_there_are():
    train = pictures() * 0.5
    images = machine(train).sample(2, steps=5).images
    assert images.dtype == np.float32
    assert train.min() - 1e-6 <= images.min()
    assert images.max() <= train.max() + 1e-6


def test_shares_and_maps_add_up():
    samples = machine().sample(2, steps=5)
    origin = samples.provenance
    assert samples.shares.shape == (2, 4)
    assert origin.sources.shape == origin.weights.shape == (2, 9, 8, 4)
    np.testing.assert_allclose(samples.shares.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(origin.weights.sum(axis=3), 1, rtol=1e-5)  # four images, and the map names four
    assert (np.diff(origin.weights, axis=3) <= 0).all()
    summed = np.zeros((2, 4))
    for number in range(2):
        np.add.at(summed[number], origin.sources[number].ravel(), origin.weights[number].ravel() / 72)
    np.testing.assert_allclose(summed, samples.shares, rtol=1e-4)


def test_a_machine_that_knows_one_picture_paints_it():
    """With patches as large as the picture there is one patch for each place, so the colour there is certain."""
    picture = pictures(1, (3, 9, 9))
    samples = machine(picture, patches={0: 9}).sample(1, steps=3)
    np.testing.assert_allclose(samples.images, picture, atol=1e-5)
    np.testing.assert_allclose(samples.shares, 1, rtol=1e-5)


def test_of_two_pictures_and_a_patch_of_full_size_one_is_painted():
    picture = pictures(2, (3, 9, 9))
    samples = machine(picture, patches={0: 9}).sample(8, steps=30)
    centre = samples.images[:, :, 4, 4]
    distances = np.abs(centre[:, None] - picture[None, :, :, 4, 4]).max(axis=2)
    assert (distances.min(axis=1) < 0.02).all()
    assert (samples.provenance.sources[:, 4, 4, 0] == distances.argmin(axis=1)).all()


@pytest.mark.slow
def test_memory_changes_nothing(monkeypatch):
    train = pictures(30, (3, 24, 24))
    batches = []
    inner = ScoreMachine._batches

    def counted(self, count):
        batches.append([*inner(self, count)])
        return iter(batches[-1])

    monkeypatch.setattr(ScoreMachine, "_batches", counted)
    plenty = machine(train, memory="1GB").sample(60, steps=2)
    little = machine(train, memory="10MB").sample(60, steps=2)
    assert len(batches[0]) == 1
    assert len(batches[1]) > 1
    np.testing.assert_allclose(little.images, plenty.images, atol=1e-4)
    np.testing.assert_allclose(little.shares, plenty.shares, atol=1e-4)


def test_weights_that_cannot_fit_are_refused_with_what_would_do():
    train = np.zeros((2000, 1, 40, 40), np.float32)
    with pytest.raises(PatchtraceError, match=r"memory='\d"):
        ScoreMachine(train, patches=3, compute=Compute(memory="10MB")).sample(1)


# -- leaving images out -------------------------------------------------------------------------------------------


def test_a_machine_without_images_is_the_machine_of_the_others():
    train, x = pictures(), noisy(pictures(1, seed=3)[0], 250)
    for left_out in ([1, 3], np.array([False, True, False, True]), (3, 1)):
        rest = machine().without(left_out)
        assert rest.train.ids == ("0", "2")
        np.testing.assert_array_equal(rest.denoise(x, 250), machine(train[[0, 2]]).denoise(x, 250))
    assert machine().without([]).train.ids == machine().train.ids
    assert rest.settings() == machine().settings()
    with pytest.raises(PatchtraceError, match="leave out fewer"):
        machine().without(range(4))


def test_loss_is_the_mean_squared_error_of_the_predicted_noise():
    images, one = pictures(2, seed=3), machine()
    losses = one.loss(images, timesteps=[100, 400], draws=2, seed=5)
    expected = np.zeros(2)
    for t in (100, 400):
        signal, sigma = SCHEDULE.at(t)
        for draw in range(2):
            eps = np.random.default_rng((5, t, draw)).standard_normal(images.shape[1:], dtype=np.float32)
            x = (signal * images + sigma * eps).astype(np.float32)
            predicted = (x - signal * one.denoise(x, t)) / sigma
            expected += ((predicted - eps) ** 2).mean(axis=(1, 2, 3)) / 4
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_losses_of_many_machines_at_once_are_those_of_each():
    masks = np.array([[1, 1, 0, 1], [0, 1, 1, 0], [1, 1, 1, 1]], dtype=bool)
    images = pictures(2, seed=3)
    together = machine().loss(images, draws=2, weights=masks)
    assert together.shape == (3, 2)
    for mask, row in zip(masks, together, strict=True):
        np.testing.assert_allclose(machine().without(~mask).loss(images, draws=2), row, rtol=1e-5)


def test_a_machine_far_from_the_picture_keeps_its_digits():
    """Beside the picture itself, what the others have under little noise is lost in any softmax over all."""
    train = pictures()
    mask = np.array([[False, True, True, True]])
    found = machine().loss(train[:1], timesteps=[0, 300], weights=mask)
    np.testing.assert_allclose(found[0], machine().without([0]).loss(train[:1], timesteps=[0, 300]), rtol=1e-4)


def test_an_image_of_weight_two_is_an_image_that_is_there_twice():
    train, images = pictures(), pictures(1, seed=3)
    twice = machine(np.concatenate([train, train[2:3]])).loss(images)
    np.testing.assert_allclose(machine().loss(images, weights=[[1, 1, 2, 1]])[0], twice, rtol=1e-5)


# -- influence ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("engine", "step"), [("reference", 1e-4), ("auto", 2e-2)])
def test_influence_is_the_derivative_of_the_loss(engine, step):
    images = pictures(2, seed=3)
    one = machine(engine=engine, patches={0: 3, 300: 5})
    options = {"timesteps": [150, 450], "draws": 2, "seed": 1}
    found = one.influence(images, **options)
    weights = np.ones((8, 4))
    for n in range(4):
        weights[2 * n, n] += step
        weights[2 * n + 1, n] -= step
    losses = one.loss(images, weights=weights, **options)
    differences = (losses[0::2] - losses[1::2]).T / (2 * step)
    np.testing.assert_allclose(found, differences, atol=1e-3 * np.abs(found).max())


def test_influence_on_pictures_is_the_derivative_of_the_loss(collection):
    one = ScoreMachine(collection["train"][:12], compute=Compute(threads=1))
    query, options = collection["val"][:1], {"timesteps": [100, 300], "draws": 1}
    found = one.influence(query, **options)
    weights = np.ones((24, 12))
    step = 0.01
    weights[np.arange(12), np.arange(12)] += step
    weights[12 + np.arange(12), np.arange(12)] -= step
    losses = one.loss(query, weights=weights, **options)[:, 0]
    differences = (losses[:12] - losses[12:]) / (2 * step)
    np.testing.assert_allclose(found[0], differences, atol=1e-3 * np.abs(found).max())


def test_influences_of_all_images_cancel():
    """More of everything changes nothing."""
    found = machine().influence(pictures(1, seed=3))
    assert abs(found.sum()) < 1e-5 * np.abs(found).max()


# -- tracing ------------------------------------------------------------------------------------------------------


def test_a_trace_is_the_mean_of_the_weights_at_each_level():
    train, image = pictures(), pictures(1, seed=3)
    both = machine().trace(image, timesteps=[100, 400], draws=2)
    each = [machine().trace(image, timesteps=[t], draws=2) for t in (100, 400)]
    np.testing.assert_allclose(both.shares, (each[0].shares + each[1].shares) / 2, atol=1e-6)
    known = machine().trace(train[[2, 0]], timesteps=[30])
    assert known.shares.argmax(axis=1).tolist() == [2, 0]
    assert known.sources.shape == (2, 9, 8, 4)


# -- settings -----------------------------------------------------------------------------------------------------


def test_patches_shrink_as_the_noise_does():
    one = ScoreMachine(postcards(2))
    assert one.patches == PATCHES
    assert one.patch_at(0) == 3
    assert one.patch_at(99) == 5
    assert one.patch_at(999) == 31
    for size in (1, 2, 5, 16, 48, 64):
        patches = ScoreMachine(np.zeros((2, 3, size, size), np.float32)).patches.values()
        assert all(side % 2 == 1 and side <= size for side in patches)
        assert list(patches) == sorted(patches)
    assert max(ScoreMachine(np.zeros((2, 3, 64, 64), np.float32)).patches.values()) == 61


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"patches": 4}, "odd"),
        ({"patches": 11}, "1 to 8"),
        ({"patches": {100: 3}}, "from t = 0"),
        ({"patches": {}}, "from t = 0"),
        ({"patches": {0: "x"}}, "odd"),
        ({"border": "valid"}, "match or zero"),
        ({"schedule": "nope"}, "ddpm-linear"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(options, hint):
    with pytest.raises(PatchtraceError, match=hint):
        machine(**options)


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda one: one.sample(0), "1 or more"),
        (lambda one: one.sample(1, steps=0), "1 or more"),
        (lambda one: one.sample(1, eta=2), "0 to 1"),
        (lambda one: one.denoise(np.zeros((3, 4, 4)), 100), "shape"),
        (lambda one: one.denoise(np.full((3, 9, 8), math.nan), 100), "finite"),
        (lambda one: one.denoise(np.zeros((3, 9, 8)), 1000), "outside the schedule"),
        (lambda one: one.loss(pictures(1), timesteps=[]), "at least one"),
        (lambda one: one.loss(pictures(1), draws=0), "at least one"),
        (lambda one: one.loss(pictures(1), weights=[[1, 2]]), "4 training images"),
        (lambda one: one.loss(pictures(1), weights=[[0, 0, 0, 0]]), "needs at least one image"),
        (lambda one: one.loss(pictures(1), weights=[[1, -1, 0, 0]]), "of at least 0"),
        (lambda one: one.loss(pictures(1, (3, 4, 4))), "bring the others to size"),
    ],
)
def test_calls_that_cannot_be_are_refused(call, hint):
    with pytest.raises(PatchtraceError, match=hint):
        call(machine())


def test_an_empty_set_is_refused():
    with pytest.raises(PatchtraceError, match="no image"):
        ScoreMachine(ImageSet(np.zeros((0, 3, 4, 4), np.uint8), ()))


def test_progress_ends_at_the_total():
    for call in (
        lambda one, seen: one.sample(3, steps=2, progress=seen),
        lambda one, seen: one.loss(pictures(2), progress=seen),
        lambda one, seen: one.influence(pictures(2), progress=seen),
        lambda one, seen: one.trace(pictures(2), progress=seen),
    ):
        told = []
        call(machine(), lambda done, total, told=told: told.append((done, total)))
        assert told[-1][0] == told[-1][1]
        assert sorted(told) == told
