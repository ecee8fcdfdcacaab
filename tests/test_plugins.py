"""A method, an engine and an image source of somebody else's, in one file each, used through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import run
from PIL import Image

from patchtrace.engines.contract import ENGINES
from patchtrace.images.sources.base import SOURCES
from patchtrace.methods import METHODS

TOYS = Path(__file__).parent / "toys"


@pytest.fixture(autouse=True)
def _registries_as_before(monkeypatch, tmp_path):
    kept = dict(METHODS), dict(ENGINES), list(SOURCES)
    monkeypatch.chdir(tmp_path)
    yield
    for registry, before in zip((METHODS, ENGINES), kept[:2], strict=True):
        registry.clear()
        registry.update(before)
    SOURCES[:] = kept[2]


def plugin(name):
    return ["--plugin", str(TOYS / f"{name}.py")]


def attribute(capsys, plugins, *arguments):
    words = [word for name in plugins for word in plugin(name)]
    assert run([*words, "attribute", *arguments, "--json", "-q"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_method_in_one_file_is_offered_everywhere(capsys):
    found = attribute(capsys, ["source", "method"], "lines://3", "--train", "lines://9", "--method", "mean-colour")
    assert found["method"] == "mean-colour"
    assert [query["ranking"][0]["id"] for query in found["queries"]] == ["0", "1", "2"]
    for command in ("attribute", "serve", "lds", "counterfactual", "compare"):
        assert run([*plugin("method"), command, "--help"]) == 0
        assert "mean-colour" in capsys.readouterr().out, command


def test_an_engine_in_one_file_does_the_work(capsys):
    words = ("lines://1", "--train", "lines://9", "--preset", "quick")
    ours = attribute(capsys, ["source", "engine"], *words, "--engine", "counting")
    assert ours["settings"]["engine"] == "counting"
    assert int(Path("calls.txt").read_text()) > 0
    oracle = attribute(capsys, ["source"], *words, "--engine", "reference")
    assert ours["queries"][0]["ranking"] == oracle["queries"][0]["ranking"]
    assert run([*plugin("engine"), "doctor"]) == 0
    assert "the oracle, counted" in capsys.readouterr().out


def test_a_source_in_one_file_opens_wherever_a_path_does(capsys):
    Image.new("RGB", (16, 16), "red").save("query.png")
    found = attribute(capsys, ["source"], "query.png", "--train", "lines://6", "--method", "pixel")
    assert len(found["queries"][0]["ranking"]) == 6
    assert run([*plugin("source"), "index", "lines://6", "-o", "kept.store", "-q"]) == 0
    assert run(["store", "info", "kept.store"]) == 0
    assert "6" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["nowhere.py", "no.such.module"])
def test_a_plugin_that_cannot_be_loaded_is_named(capsys, name):
    assert run(["--plugin", name, "doctor"]) == 2
    assert name in capsys.readouterr().err
