"""Commands on latents: index, attribute, refine, explain, generate, serve's work, the report."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from command import run as run_command
from PIL import Image

from patchtrace import NDA, ImageSet, Level, Recipe, Scale, ScoreMachine, Store, shrunken
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding
from patchtrace.images.shrunken import repeated
from patchtrace.latents import load_autoencoder
from patchtrace.progress import Watch
from patchtrace.server.jobs import Limits
from patchtrace.server.work import QueryWork
from patchtrace.viewer.data import look_closer
from patchtrace.viewer.report import render_report

RECIPE = Recipe((Level(250, (Scale(3),)),), schedule="flow-matching")


@pytest.fixture
def run(capsys):
    """Run a command that has to succeed, and return what it prints."""

    def command(*words, code=0):
        ended = run_command([str(word) for word in words])
        printed = capsys.readouterr()
        assert ended == code, printed.err
        return printed.out + printed.err

    return command


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


@pytest.fixture(scope="module")
def store(photos, weights, tmp_path_factory):
    place = tmp_path_factory.mktemp("stores") / "store"
    Store(place).update([photos], decoding=Decoding(size=(64, 64)), latents=f"taef2:{weights}")
    return place


def test_index_attribute_refine_explain(run, photos, saved, tmp_path):
    weights, out = saved(tmp_path / "weights"), tmp_path / "run"
    said = run("index", photos, "-o", tmp_path / "s", "--latents", f"taef2:{weights}", "--size", 64, "-q")
    assert "12 images, 8 x 8 latents of 4 channels" in said
    assert str(weights) in run("store", "info", tmp_path / "s")
    query = photos / "card-007.png"
    common = ("--train", tmp_path / "s", "--most-draws", 4, "-q")
    found = json.loads(run("attribute", query, *common, "-o", out, "--json"))
    assert found["queries"][0]["ranking"][0]["id"] == "card-007.png"
    assert found["facts"]["train"]["latents"]["weights"] == load_autoencoder(f"taef2:{weights}").weights
    run("refine", out, "--most-draws", 6, "-q")
    # the weights have moved: the run says so, and can be told where they are
    shutil.move(tmp_path / "weights", tmp_path / "moved")
    assert "--latents" in run("explain", out, "-o", tmp_path / "why", "-q", code=1)
    named = ("--latents", f"taef2:{tmp_path / 'moved' / weights.name}")
    run("explain", out, "-o", tmp_path / "why", *named, "-q")
    assert size_of(tmp_path / "why" / "overview.png")[0] > 300


def test_smaller_queries_are_encoded_anew(store, photos):
    """Latents of the smaller picture, not smaller latents; and the file is what it is made from."""
    train = ImageSet.open(store)
    made = shrunken(train.open_like(photos / "card-002.png"), [2])
    assert (made.shape, made.pixels.dtype, made.autoencoder) == (train.shape, np.float16, train.autoencoder)
    picture = Image.open(photos / "card-002.png").convert("RGB")
    by_hand = np.asarray(repeated(picture, 2)).transpose(2, 0, 1)
    expected = train.autoencoder.encode(by_hand[None])[0]
    np.testing.assert_allclose(made.pixels[1].astype(np.float32), expected.astype(np.float32), rtol=2e-3, atol=1e-4)
    assert made.frame(1).size == picture.size


def test_attribute_without_a_store(run, photos, weights, tmp_path):
    words = ("attribute", photos / "card-002.png", "--train", photos, "--latents", f"taef2:{weights}", "--size", 64)
    found = json.loads(run(*words, "--draws", 1, "--json", "-q", "--report", tmp_path / "report.html"))
    assert found["queries"][0]["ranking"][0]["id"] == "card-002.png"
    assert "8 x 8 latents" in (tmp_path / "report.html").read_text()


def test_generate_paints_latents_and_shows_pictures(run, store, tmp_path):
    run("generate", "--train", store, "-n", 1, "--steps", 3, "-o", tmp_path, "-q")
    assert size_of(tmp_path / "painted-000.png") == (64, 64)
    with np.load(tmp_path / "provenance.npz") as arrays:
        assert arrays["images"].shape == (1, 4, 8, 8)
        assert arrays["sources"].shape == (1, 8, 8, 4)


def test_the_machine_has_the_noise_of_the_models(store):
    train = ImageSet.open(store)
    flow, usual = ScoreMachine(train), ScoreMachine(train, schedule="ddpm-linear")
    assert flow.schedule.name == "flow-matching"
    for share in (0.01, 0.3, 0.6, 0.99):
        sides = [machine.patch_at(machine.schedule.nearest_t(share)) for machine in (flow, usual)]
        assert sides[0] == sides[1]
    assert flow.patch_at(10) < flow.patch_at(990)


def test_the_viewer_shows_squares_of_the_picture(store, photos):
    train = ImageSet.open(store)
    queries = train.open_like(photos / "card-003.png")
    result = NDA(RECIPE).fit(train).attribute(queries)
    answer = look_closer(result, queries, train)
    view, pictures = answer.view, answer.pictures
    assert view["latents"] == {"name": train.autoencoder.name, "factor": 8, "channels": 4}
    assert pictures[view["images"][0]["pixels"]].size == (8, 8)
    assert pictures[view["images"][0]["frame"]].size == (64, 64)
    # the query under its first noise, as the decoder sees it
    (level,) = view["levels"]
    noisy = np.asarray(pictures[level["picture"]], dtype=float).transpose(2, 0, 1) / 127.5 - 1
    version = next(iter(answer.look.explanation.noisy[0]))
    expected = train.autoencoder.decode(np.asarray(version.pixels)[None])[0]
    np.testing.assert_allclose(noisy, expected, atol=0.005)
    assert np.abs(expected - queries.block(0, 1)[0].mean()).max() > 0.05
    page = render_report(answer.inlined())
    assert "latents, 4 channels" in page
    assert train.autoencoder.weights in page


def test_the_decoder_may_be_missing(saved, photos, tmp_path):
    path = saved(tmp_path)
    path.with_name("tiny_decoder.safetensors").unlink()
    train = ImageSet.open(photos, size=64, latents=f"taef2:{path}")
    queries = train.open_like(photos / "card-003.png")
    answer = look_closer(NDA(RECIPE).fit(train).attribute(queries), queries, train)
    assert "picture" not in answer.view["levels"][0]
    assert len(answer.evidence) > 0


def test_uploads_are_encoded_once(store, photos, monkeypatch):
    train = ImageSet.open(store)
    work = QueryWork(NDA(RECIPE).fit(train))
    assert ("Compared at", f"8 x 8 latents of {train.autoencoder.name}") in work.facts()
    calls = []
    inner = type(train.autoencoder).encode
    monkeypatch.setattr(type(train.autoencoder), "encode", lambda self, p: calls.append(len(p)) or inner(self, p))
    upload = work.read("card", (photos / "card-009.png").read_bytes(), Limits())
    answer = work(upload, Watch())
    assert answer.view["images"][0]["id"] == "card-009.png"
    assert calls == [1]
    assert answer.pictures[answer.view["query"]["frame"]].size == upload.frame.size


def test_a_page_needs_the_autoencoder(saved, photos, tmp_path):
    path = saved(tmp_path / "w")
    Store(tmp_path / "s").update([photos], decoding=Decoding(size=(64, 64)), latents=f"taef2:{path}")
    shutil.rmtree(tmp_path / "w")
    with pytest.raises(PatchtraceError, match="it is not here"):
        QueryWork(NDA(RECIPE).fit(ImageSet.open(tmp_path / "s")))
    with pytest.raises(PatchtraceError, match="not float arrays"):
        QueryWork(NDA(RECIPE).fit(np.zeros((2, 4, 8, 8), np.float32)))
