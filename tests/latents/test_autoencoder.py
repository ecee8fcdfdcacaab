"""Autoencoders: TAEF2 against a computation of its own, those of diffusers, functions, and what is refused."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from taef2_by_hand import arrays, decoded_by_hand, encoded_by_hand

from patchtrace.errors import PatchtraceError
from patchtrace.latents import Autoencoder, load_autoencoder, recorded
from patchtrace.latents.load import _from_hub

RNG = np.random.default_rng(0)
PICTURES = RNG.uniform(-1, 1, (3, 3, 16, 24)).astype(np.float32)
REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def test_taef2_computes_what_its_layout_says(weights):
    autoencoder = load_autoencoder(f"taef2:{weights}")
    by_hand = encoded_by_hand(PICTURES, arrays(weights))
    assert by_hand.std() > 0.1
    latents = autoencoder.encode(PICTURES)
    assert latents.dtype == np.float16
    np.testing.assert_allclose(latents, by_hand, rtol=1e-3, atol=1e-4)
    pictures = autoencoder.decode(latents)
    expected = decoded_by_hand(latents, arrays(weights.with_name("tiny_decoder.safetensors")))
    np.testing.assert_allclose(pictures, np.clip(expected, -1, 1), atol=1e-4)
    assert pictures.shape == PICTURES.shape


def test_half_precision_is_off_by_at_most_one_part_in_2048(weights):
    by_hand = encoded_by_hand(PICTURES, arrays(weights))
    latents = load_autoencoder(f"taef2:{weights}").encode(PICTURES).astype(np.float64)
    off = np.abs(latents - by_hand)
    assert (off <= np.abs(by_hand) * (1 / 2048) + 1e-5).all()  # each of them, but for the rounding of the network
    assert off.max() > np.abs(by_hand).max() / 20000  # it is half precision, not single


def test_bytes_floats_and_grey_are_encoded_alike(weights):
    autoencoder = load_autoencoder(f"taef2:{weights}")
    grey = RNG.integers(0, 256, (2, 1, 8, 8), dtype=np.uint8)
    floats = grey.astype(np.float32) / np.float32(127.5) - 1
    expected = autoencoder.encode(np.repeat(floats, 3, axis=1))
    np.testing.assert_array_equal(autoencoder.encode(grey), expected)
    np.testing.assert_array_equal(autoencoder.encode(floats), expected)


def test_a_picture_has_the_same_latents_whatever_is_encoded_with_it(weights):
    autoencoder = load_autoencoder(f"taef2:{weights}")
    alone = np.concatenate([autoencoder.encode(picture[None]) for picture in PICTURES])
    np.testing.assert_allclose(autoencoder.encode(PICTURES).astype(np.float32), alone, rtol=2e-3, atol=1e-4)


def test_one_file_or_a_directory_with_both_parts_is_the_same_autoencoder(weights, tmp_path):
    both = {}
    for name in ("encoder", "decoder"):
        part = load_file(weights.with_name(f"tiny_{name}.safetensors"))
        both |= {f"{name}.{key}": value for key, value in part.items()}
    save_file(both, tmp_path / "taef2.safetensors")
    pair = load_autoencoder(f"taef2:{weights}")
    for place in (tmp_path / "taef2.safetensors", tmp_path, weights.parent):
        other = load_autoencoder(f"taef2:{place}")
        pair.check_same(other, "a store")
        np.testing.assert_array_equal(other.decode(other.encode(PICTURES)), pair.decode(pair.encode(PICTURES)))


def test_an_autoencoder_is_known_by_its_weights_and_not_by_their_place(saved, weights, tmp_path):
    same, other = saved(tmp_path / "same"), saved(tmp_path / "other", seed=1)
    first = load_autoencoder(f"taef2:{weights}")
    first.check_same(load_autoencoder(f"taef2:{same}"), "a store")
    halves = {name: value.half() for name, value in load_file(same).items()}
    save_file(halves, tmp_path / "half_encoder.safetensors")
    with pytest.raises(PatchtraceError, match="different autoencoders cannot be compared"):
        first.check_same(load_autoencoder(f"taef2:{tmp_path / 'half_encoder.safetensors'}"), "a store")
    with pytest.raises(PatchtraceError, match="different autoencoders cannot be compared"):
        first.check_same(load_autoencoder(f"taef2:{other}"), "a store")


def test_a_recorded_autoencoder_is_found_again_and_its_weights_are_compared(saved, tmp_path):
    path = saved(tmp_path / "w")
    record = load_autoencoder(f"taef2:{path}").record()
    again = recorded(record)
    np.testing.assert_array_equal(again.encode(PICTURES), load_autoencoder(f"taef2:{path}").encode(PICTURES))
    saved(tmp_path / "w", seed=1)
    with pytest.raises(PatchtraceError, match=r"other weights than those that made the latents.*--latents"):
        recorded(record).encode(PICTURES)
    path.unlink()
    with pytest.raises(PatchtraceError, match=r"it is not here.*--latents"):
        recorded(record).encode(PICTURES)


def test_only_the_encoder_is_needed_to_compare(saved, tmp_path):
    path = saved(tmp_path)
    path.with_name("tiny_decoder.safetensors").unlink()
    autoencoder = load_autoencoder(f"taef2:{path}")
    latents = autoencoder.encode(PICTURES)
    with pytest.raises(PatchtraceError, match="no decoder here"):
        autoencoder.decode(latents)


@pytest.mark.parametrize("kind", ["AutoencoderKL", "AutoencoderTiny"])
@pytest.mark.parametrize("nested", [False, True], ids=["model", "pipeline"])
def test_autoencoders_of_diffusers_give_what_diffusers_gives(kind, nested, tmp_path):
    import diffusers

    torch.manual_seed(0)
    if kind == "AutoencoderKL":
        model = diffusers.AutoencoderKL(
            block_out_channels=(8, 8, 16),
            down_block_types=("DownEncoderBlock2D",) * 3,
            up_block_types=("UpDecoderBlock2D",) * 3,
            latent_channels=4,
            norm_num_groups=4,
            scaling_factor=0.3,
            shift_factor=0.1,
        )
    else:
        model = diffusers.AutoencoderTiny(
            encoder_block_out_channels=(8, 8, 8),
            decoder_block_out_channels=(8, 8, 8),
            num_encoder_blocks=(1, 1, 1),
            num_decoder_blocks=(1, 1, 1),
            latent_channels=16,
        )
    model = model.eval()
    model.save_pretrained(tmp_path / "vae" if nested else tmp_path)
    autoencoder = load_autoencoder(f"diffusers:{tmp_path}")
    with torch.inference_mode():
        pixels = torch.from_numpy(PICTURES)
        if kind == "AutoencoderKL":
            raw = model.encode(pixels).latent_dist.mean.numpy()
            expected, schedule = (raw - 0.1) * 0.3, "scaled-linear"
        else:
            expected, schedule = model.encode(pixels).latents.numpy(), "flow-matching"
        latents = autoencoder.encode(PICTURES)
        np.testing.assert_allclose(latents, expected, rtol=1e-3, atol=1e-4)
        back = latents.astype(np.float32)
        decoded = model.decode(torch.from_numpy(back / 0.3 + 0.1 if kind == "AutoencoderKL" else back)).sample.numpy()
    np.testing.assert_allclose(autoencoder.decode(latents), np.clip(decoded, -1, 1), atol=1e-4)
    assert (autoencoder.factor, autoencoder.schedule) == (4, schedule)
    recorded(autoencoder.record()).check_same(autoencoder, "a store")


def test_missing_weights_are_not_made_up(tmp_path):
    import diffusers

    blocks = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8)}
    model = diffusers.AutoencoderTiny(num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1), **blocks)
    model.save_pretrained(tmp_path)
    path = tmp_path / "diffusion_pytorch_model.safetensors"
    weights = load_file(path)
    del weights[next(name for name in weights if name.startswith("encoder"))]
    save_file(weights, path, metadata={"format": "pt"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(PatchtraceError, match="missing"):
            load_autoencoder(f"diffusers:{tmp_path}")


def test_functions_are_an_autoencoder():
    halved = Autoencoder.of(
        lambda p: p[:, :, ::2, ::2],
        lambda z: z.repeat(2, axis=2).repeat(2, axis=3),
        name="half",
        weights="v1",
        factor=2,
        channels=3,
        scaling=2.0,
        shift=0.5,
    )
    latents = halved.encode(PICTURES)
    np.testing.assert_allclose(latents, 2 * (PICTURES[:, :, ::2, ::2] - 0.5), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(halved.decode(latents)[:, :, ::2, ::2], PICTURES[:, :, ::2, ::2], atol=2e-3)
    with pytest.raises(PatchtraceError, match="give the same Autoencoder as latents="):
        recorded(halved.record()).encode(PICTURES)
    # what is sent to another process compares latents, and makes none
    assert pickle.loads(pickle.dumps(halved)).record() == halved.record()


def broken(**changes):
    settings = {"name": "x", "weights": "v1", "factor": 2, "channels": 3} | changes
    return Autoencoder.of(lambda p: p[:, :, ::2, ::2], **settings)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: load_autoencoder("vae"), "taef2:WEIGHTS"),
        (lambda: load_autoencoder("diffusers:"), "diffusers:DIRECTORY"),
        (lambda: load_autoencoder("taef2:/nowhere.safetensors"), "neither a file or directory here nor a name"),
        (lambda: load_autoencoder(3), "there is no autoencoder 3"),
        (lambda: broken(factor=0), "factor is 0"),
        (lambda: broken(scaling=0), "scaling is 0"),
        (lambda: broken(schedule="fast"), "there is no schedule"),
        (lambda: broken(factor=4).encode(PICTURES), "made latents of shape"),
        (lambda: broken(factor=5).encode(PICTURES), r"use size=\(15, 25\)"),
        (lambda: broken(scaling=1e30).encode(PICTURES), "not finite"),
        (lambda: broken().decode(PICTURES), "no decoder"),
        (lambda: broken().encode(PICTURES[0]), "takes"),
    ],
)
def test_what_is_wrong_is_refused_with_what_would_be_right(make, says):
    with pytest.raises(PatchtraceError, match=says):
        make()


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    for name, content in (("a_encoder.safetensors", b"no tensors"), ("b.safetensors", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PatchtraceError, match="not a file of safetensors"):
            load_autoencoder(f"taef2:{tmp_path / name}")
    save_file({"0.weight": torch.zeros(8, 3, 3, 3)}, tmp_path / "c_encoder.safetensors")
    with pytest.raises(PatchtraceError, match=r"weights of TAEF2: .14\.weight. is missing"):
        load_autoencoder(f"taef2:{tmp_path / 'c_encoder.safetensors'}")
    save_file({"decoder.0.weight": torch.zeros(1)}, tmp_path / "d.safetensors")
    with pytest.raises(PatchtraceError, match="holds no encoder"):
        load_autoencoder(f"taef2:{tmp_path / 'd.safetensors'}")


def test_the_hub_is_asked_and_its_silence_is_explained(monkeypatch, tmp_path):
    asked = []

    def snapshot(name, revision, allow_patterns, local_files_only=False):
        asked.append((name, revision, local_files_only))
        if local_files_only:
            raise FileNotFoundError
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert _from_hub("owner/name@main", ["*.safetensors"]) == tmp_path
    assert asked == [("owner/name", "main", True), ("owner/name", "main", False)]
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: 1 / 0)
    with pytest.raises(PatchtraceError, match="go online"):
        load_autoencoder("taef2")


@pytest.mark.slow
@pytest.mark.skipif(not (REAL / "taef2_encoder.safetensors").exists(), reason="the real weights are an extra")
def test_the_real_one_gives_pictures_back():
    autoencoder = load_autoencoder(f"taef2:{REAL / 'taef2_encoder.safetensors'}")
    from patchtrace.demo import postcards

    cards = postcards(2, size=128)
    pixels = cards.block(0, 2)
    latents = autoencoder.encode(pixels)
    assert (latents.shape, autoencoder.channels) == ((2, 32, 16, 16), 32)
    assert 0.5 < latents.astype(np.float32).std() < 1.2
    off = np.square(autoencoder.decode(latents) - pixels).mean() / 4  # colours from 0 to 1
    assert -10 * np.log10(off) > 22
