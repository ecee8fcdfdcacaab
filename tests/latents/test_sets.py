"""Sets and stores of latents: encoded once, found again, compared like any other numbers, shown as pictures."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from taef2_by_hand import arrays, encoded_by_hand

from patchtrace import NDA, Compute, ImageSet, Level, NDAShortlist, Recipe, Scale, Store, explain
from patchtrace.attribution import Attribution
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding
from patchtrace.latents import Autoencoder, load_autoencoder

RECIPE = Recipe((Level(250, (Scale(3),)), Level(500, (Scale(3),))), schedule="flow-matching")


@pytest.fixture(scope="module")
def autoencoder(weights):
    return load_autoencoder(f"taef2:{weights}")


@pytest.fixture(scope="module")
def store(photos, weights, tmp_path_factory):
    place = tmp_path_factory.mktemp("stores") / "store"
    Store(place).update([photos], decoding=Decoding(size=(64, 64)), latents=f"taef2:{weights}")
    return place


def by_hand(photos, autoencoder, name):
    pixels = np.asarray(Image.open(photos / name).convert("RGB")).transpose(2, 0, 1)
    return autoencoder.encode(pixels[None])[0]


def latents_by_definition(path, weights):
    """Latents without PyTorch and without the package: float32 (channels, height, width)."""
    pixels = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)[None] / 127.5 - 1
    return encoded_by_hand(pixels, arrays(weights))[0].astype(np.float32)


def test_a_folder_opens_as_latents(photos, autoencoder):
    images = ImageSet.open(photos, size=64, latents=autoencoder)
    assert (images.shape, len(images), images.pixels.dtype) == ((4, 8, 8), 12, np.float16)
    for index, name in ((0, "card-000.png"), (11, "card-011.png")):
        assert images.ids[index] == name
        expected = by_hand(photos, autoencoder, name).astype(np.float32)
        np.testing.assert_allclose(images.block(index, index + 1)[0], expected, rtol=2e-3, atol=1e-4)
    assert images.block(0, 1).dtype == np.float32


def test_a_store_holds_the_same_latents_in_half_the_bytes(photos, autoencoder, store):
    kept, folder = ImageSet.open(store), ImageSet.open(photos, size=64, latents=autoencoder)
    np.testing.assert_array_equal(kept.pixels[:], folder.pixels[:])
    assert kept.fingerprint() == folder.fingerprint()
    assert kept.autoencoder is not None
    assert kept.autoencoder.identity == autoencoder.identity
    assert sum(entry.bytes for entry in Store(store).manifest().shards) < 12 * 4 * 8 * 8 * 2 + 1000
    assert Store(store).verify() == []


def test_scores_are_those_of_the_latents_as_a_plain_array(photos, weights, store):
    """Of a store and a file, against convolutions by their definition, the oracle, and plain numbers."""
    train = ImageSet.open(store)
    ours = NDA(RECIPE).fit(train).attribute(photos / "card-003.png")
    numbers = np.stack([latents_by_definition(photos / name, weights) for name in train.ids])
    plain = NDA(RECIPE, compute=Compute(engine="reference")).fit(numbers).attribute(numbers[3:4])
    assert plain.facts["train"].get("latents") is None
    # half precision is one part in 2048 off
    np.testing.assert_allclose(ours.scores, plain.scores, rtol=5e-3, atol=1e-4)
    # and nothing else is: the same numbers have the same scores
    kept = train.block(0, len(train))
    same = NDA(RECIPE).fit(kept).attribute(kept[3:4])
    np.testing.assert_array_equal(ours.scores, same.scores)
    assert ours.top(1)[0][0].id == "card-003.png"
    assert ours.facts["train"]["latents"] == train.autoencoder.record()


def test_pictures_that_keep_their_shapes_are_encoded_in_them(photos, autoencoder, tmp_path):
    for number, box in enumerate(((0, 0, 64, 64), (0, 0, 64, 40), (0, 0, 32, 64))):
        Image.open(photos / f"card-00{number}.png").crop(box).save(tmp_path / f"{number}.png")
    rules = Decoding(size=(64, 64), fit="keep")
    train = ImageSet.open(tmp_path, decoding=rules, latents=autoencoder)
    kept = Store(tmp_path / "store")
    kept.update([*sorted(tmp_path.glob("*.png"))], decoding=rules, latents=autoencoder, jobs=1)
    assert [train.size_of(n) for n in range(3)] == [(8, 8), (6, 10), (11, 6)]
    for images in (train, ImageSet.open(kept.path)):
        for number, (height, width) in enumerate([(64, 64), (48, 80), (88, 48)]):
            pixels = ImageSet.open(tmp_path / f"{number}.png", decoding=replace(rules, multiple=8))
            own = pixels.one(0)[None]
            assert own.shape[2:] == (height, width)
            np.testing.assert_allclose(images.one(number), autoencoder.encode(own)[0], rtol=2e-3, atol=1e-4)
            assert images.picture(number).size == (width, height)
            same = images.open_like(tmp_path / f"{number}.png")
            np.testing.assert_allclose(same.one(0), images.one(number), rtol=2e-3, atol=1e-4)
        assert NDA(RECIPE).fit(images).attribute(tmp_path / "2.png").top(1)[0][0].index == 2


def test_half_precision_changes_no_score_by_more_than_its_rounding_can(photos, weights, store):
    """Each latent is off by at most one part in 2048, so each logit by what the triangle inequality allows.

    With d = x - s u for a patch x of the noisy query and u of an image, and e what u and the query are off together,
    |d'|^2 - |d|^2 is at most 2 s sum |d| e + s^2 sum e^2. Over 2v it bounds what logits and normalisers are off.
    """
    kept = ImageSet.open(store)
    halves = kept.block(0, len(kept)).astype(np.float64)
    exact = np.stack([latents_by_definition(photos / name, weights) for name in kept.ids])
    level = Level.at_noise(0.97, (Scale(3),), "flow-matching")  # these small networks make large latents
    recipe = Recipe((level,), schedule="flow-matching", border="valid", k=64)
    signal, sigma = recipe.noise_at(level.t)
    noise = np.random.default_rng(1).standard_normal((1, *exact.shape[1:])).astype(np.float32)

    def patches(pictures):
        windows = np.lib.stride_tricks.sliding_window_view(pictures.astype(np.float64), (3, 3), axis=(-2, -1))
        return np.moveaxis(windows, -5, -3).reshape(-1, 9 * pictures.shape[-3])

    query, images = patches(exact[5:6]), patches(exact)
    noisy = signal * query + sigma * patches(noise)
    apart = noisy[:, None] - signal * images
    weight = np.exp(-(apart**2).sum(axis=2) / (2 * sigma**2))
    weight /= weight.sum(axis=1, keepdims=True)
    scores = NDA(recipe).fit(exact).attribute(exact[5:6], noise={level.t: noise}).scores[0]
    np.testing.assert_allclose(scores, weight.reshape(len(query), len(exact), -1).sum(axis=(0, 2)), rtol=1e-4)

    off = (np.abs(query)[:, None] + np.abs(images)) / 2048 + 1e-5  # 1e-5: the rounding of the network
    logit = (2 * signal * np.abs(apart) * off + (signal * off) ** 2).sum(axis=2) / (2 * sigma**2)
    normaliser = np.log((weight * np.exp(logit)).sum(axis=1, keepdims=True))
    most = (weight * np.expm1(logit + normaliser)).reshape(len(query), len(exact), -1).sum(axis=(0, 2))
    rounded = (
        NDA(recipe).fit(halves.astype(np.float32)).attribute(halves[5:6].astype(np.float32), noise={level.t: noise})
    )
    difference = np.abs(rounded.scores[0] - scores)
    assert (difference <= most).all()
    assert (most < 0.1 * scores).all()  # a bound that says something
    assert (difference > 0).any()


def test_queries_are_encoded_whatever_they_come_as(photos, store, autoencoder):
    train = ImageSet.open(store)
    pixels = np.asarray(Image.open(photos / "card-005.png").convert("RGB"))
    large = np.asarray(Image.fromarray(pixels).resize((96, 96), Image.Resampling.BICUBIC))
    expected = train.block(5, 6)
    for source in (
        photos / "card-005.png",
        pixels,
        Image.fromarray(pixels),
        ImageSet.open(photos / "card-005.png"),
        train.subset([5]),
        expected,
    ):
        source = source[None] if isinstance(source, np.ndarray) and source.ndim == 3 else source
        np.testing.assert_allclose(train.open_like(source).block(0, 1), expected, rtol=2e-3, atol=1e-4)
    assert train.open_like(large[None]).shape == train.shape


def test_latents_of_another_autoencoder_are_refused(photos, store, saved, tmp_path):
    other = load_autoencoder(f"taef2:{saved(tmp_path, seed=1)}")
    train, queries = ImageSet.open(store), ImageSet.open(photos, size=64, latents=other)
    for act in (
        lambda: train.open_like(queries),
        lambda: NDA(RECIPE).fit(train).attribute(queries),
        lambda: ImageSet.open(store, latents=other),
        lambda: Store(store).update(latents=other),
    ):
        with pytest.raises(PatchtraceError, match="latents of different autoencoders cannot be compared"):
            act()
    with pytest.raises(PatchtraceError, match="the set holds pictures"):
        ImageSet.open(photos, size=64).open_like(queries)


def test_what_cannot_be_latents_is_refused(photos, autoencoder, store, tmp_path):
    for act, says in (
        (lambda: ImageSet.open(photos, size=60, latents=autoencoder), r"use size=\(64, 64\)"),
        (lambda: ImageSet.open(np.zeros((2, 4, 8, 8), np.float32), latents=autoencoder), "leave latents out"),
        (lambda: ImageSet.open(store, size=32), "would need another store"),
        (lambda: ImageSet.open(store).open_like(np.zeros((1, 4, 9, 9), np.float32)), "latents of pictures of 64 x 64"),
    ):
        with pytest.raises(PatchtraceError, match=says):
            act()
    Store(tmp_path).update([photos], decoding=Decoding(size=(64, 64)))
    with pytest.raises(PatchtraceError, match="holds pictures: latents need another store"):
        Store(tmp_path).update(latents=autoencoder)


def test_weights_that_have_moved_are_named_anew(photos, saved, tmp_path):
    path = saved(tmp_path / "before")
    Store(tmp_path / "store").update([photos], decoding=Decoding(size=(64, 64)), latents=f"taef2:{path}")
    shutil.move(tmp_path / "before", tmp_path / "after")
    train = ImageSet.open(tmp_path / "store")  # opens: its latents are there
    with pytest.raises(PatchtraceError, match=r"it is not here.*--latents"):
        train.open_like(photos / "card-001.png")
    named = ImageSet.open(tmp_path / "store", latents=f"taef2:{tmp_path / 'after' / path.name}")
    assert named.open_like(photos / "card-001.png").shape == (4, 8, 8)
    assert named.fingerprint() == train.fingerprint()


def test_an_update_encodes_what_is_new_and_nothing_else(photos, weights, tmp_path):
    folder, calls = tmp_path / "photos", []
    shutil.copytree(photos, folder)
    inner = load_autoencoder(f"taef2:{weights}").network

    def counted(pixels):
        calls.append(len(pixels))
        return np.stack([inner.encode(picture[None])[0] for picture in pixels])

    counting = Autoencoder.of(counted, inner.decode, name="counted", weights="v1", factor=8, channels=4)
    store = Store(tmp_path / "store")
    store.update([folder], decoding=Decoding(size=(64, 64)), latents=counting)
    assert sum(calls) == 12
    calls.clear()
    Image.new("RGB", (64, 64), "red").save(folder / "card-999.png")
    (folder / "card-000.png").unlink()
    done = store.update(latents=counting)
    assert (sum(calls), done.added, done.removed, done.kept) == (1, 1, 1, 11)
    assert ImageSet.open(store.path).fingerprint() == ImageSet.open(folder, size=64, latents=counting).fingerprint()
    assert store.verify() == []
    assert store.gc() > 0


def test_a_run_that_was_stopped_goes_on_where_it_stopped(photos, weights, tmp_path):
    inner, calls = load_autoencoder(f"taef2:{weights}").network, []

    def stopped_after(most):
        def encode(pixels):
            if len(calls) + len(pixels) > most:
                raise KeyboardInterrupt
            calls.extend([1] * len(pixels))
            return inner.encode(pixels)

        # one at a time, so that some are done
        one = Autoencoder.of(encode, name="stopped", weights="v1", factor=8, channels=4)
        object.__setattr__(one.network, "at_once", 1)
        return one

    store = Store(tmp_path / "store")
    update = {"decoding": Decoding(size=(64, 64)), "shard_images": 2}
    with pytest.raises(KeyboardInterrupt):
        store.update([photos], latents=stopped_after(7), **update)
    calls.clear()
    done = store.update([photos], latents=stopped_after(99), **update)
    assert (done.added + done.kept, len(calls)) == (12, 6)
    expected = ImageSet.open(photos, size=64, latents=stopped_after(999))
    np.testing.assert_array_equal(ImageSet.open(store.path).pixels[:], expected.pixels[:])


def test_an_array_of_pictures_becomes_a_store_of_latents(autoencoder, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 256, (5, 16, 24, 3), dtype=np.uint8)
    np.save(tmp_path / "pictures.npy", pictures)
    store = Store(tmp_path / "store")
    assert store.update([tmp_path / "pictures.npy"], latents=autoencoder).added == 5
    images = ImageSet.open(store.path)
    expected = autoencoder.encode(pictures.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(images.pixels[:], expected)
    assert store.update().kept == 5
    assert images.open_like(pictures[:1]).shape == (4, 2, 3)


def test_damage_is_seen(store, tmp_path):
    shutil.copytree(store, tmp_path / "store")
    shard = next((tmp_path / "store" / "shards").glob("*.npy"))
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    assert "is not what was written" in Store(tmp_path / "store").verify()[0]
    with pytest.raises(PatchtraceError, match="damaged"):
        ImageSet.open(tmp_path / "store").block(0, 1)


def test_a_store_of_pictures_is_what_it_always_was(photos, tmp_path):
    """Bytes that earlier versions read, and whose journal they continue."""
    Store(tmp_path).update([photos], decoding=Decoding(size=(16, 16)))
    record = Store(tmp_path).manifest().record()
    assert "latents" not in record
    assert record["version"] == 1


def test_pictures_behind_latents_are_shown(photos, store, autoencoder, tmp_path):
    original = Image.open(photos / "card-002.png").convert("RGB")
    folder = ImageSet.open(photos, size=64, latents=autoencoder)
    for images in (folder, ImageSet.open(store)):
        np.testing.assert_array_equal(np.asarray(images.picture(2)), np.asarray(original))
        np.testing.assert_array_equal(np.asarray(images.frame(2)), np.asarray(original))
    # without a file, what the decoder makes of the latents
    alone = ImageSet(folder.pixels[:], folder.ids, autoencoder=autoencoder)
    decoded = autoencoder.decode(folder.block(2, 3))[0]
    shown = np.asarray(alone.picture(2)).transpose(2, 0, 1) / 127.5 - 1
    np.testing.assert_allclose(shown, decoded, atol=0.005)


def test_shortlists_clusters_and_memory_take_latents(store, photos):
    train, query = ImageSet.open(store), photos / "card-004.png"
    exact = NDA(RECIPE).fit(train).attribute(query)
    other = NDA(RECIPE, compute=Compute(memory="300MB", threads=1, engine="reference")).fit(train).attribute(query)
    np.testing.assert_allclose(other.scores, exact.scores, rtol=1e-4, atol=1e-6)
    short = NDAShortlist(4, recipe=RECIPE).fit(train).attribute(query)
    assert short.top(1)[0][0].id == "card-004.png"


@pytest.mark.slow
def test_workers_of_a_cluster_take_latents(store, photos):
    train, query = ImageSet.open(store), photos / "card-004.png"
    here = NDA(RECIPE).fit(train).attribute(query)
    there = NDA(RECIPE, compute=Compute(cluster="local:2")).fit(train).attribute(query)
    np.testing.assert_array_equal(there.scores, here.scores)


def test_results_are_explained_after_they_were_saved(store, photos, tmp_path):
    train = ImageSet.open(store)
    queries = train.open_like(photos / "card-004.png")
    NDA(RECIPE).fit(train).attribute(queries).save(tmp_path)
    found = explain(Attribution.load(tmp_path), queries, train)
    assert found.maps().shape[1:] == (8, 8)
    assert found.images[0] == 4


def test_the_recipe_has_the_noise_of_the_models(store):
    train = ImageSet.open(store)
    assert NDA().fit(train).recipe_ == Recipe.for_latents(8, 8, "flow-matching")
    shares = [round(schedule.noise_share(level.t), 2) for schedule, level in _levels("scaled-linear")]
    assert shares == [round(schedule.noise_share(level.t), 2) for schedule, level in _levels("flow-matching")]


def _levels(name):
    from patchtrace import Schedule

    return [(Schedule.named(name), level) for level in Recipe.for_latents(64, 64, name).levels]


def test_hashes_of_a_store_tell_equal_pictures(photos, autoencoder, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    shutil.copy(folder / "card-000.png", folder / "card-again.png")
    store = Store(tmp_path / "store")
    store.update([folder], decoding=Decoding(size=(64, 64)), latents=autoencoder)
    assert store.duplicates() == [["card-000.png", "card-again.png"]]


def test_a_copy_is_seen_in_the_pictures_behind_latents(photos, autoencoder, store):
    train, query = ImageSet.open(store), ImageSet.open(photos / "card-003.png", size=64, latents=autoencoder)
    found = NDA(RECIPE).fit(train).attribute(query).with_verdicts(query, train, images=[3, 4])
    assert [found.verdict(0, index).kind.value for index in (3, 4)] == ["same picture", "resembles"]
