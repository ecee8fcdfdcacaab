"""patchtrace serve: what it refuses before the work, and what it says."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from click.testing import CliRunner, Result

from patchtrace.cli.serve import serve
from patchtrace.errors import PatchtraceError
from patchtrace.server import LocalServer

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Links that a browser was started with; nothing is served."""
    links: list[str] = []

    def run(server: LocalServer) -> None:
        server._socket.close()

    monkeypatch.setattr(LocalServer, "run", run)
    monkeypatch.setattr("webbrowser.open", links.append)
    return links


@pytest.fixture
def train(tmp_path) -> str:
    path = tmp_path / "train.npy"
    np.save(path, np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8))
    return str(path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(serve, ["--preset", "quick", *arguments])


def test_the_link_is_printed_and_the_browser_gets_another(opened, train):
    done = call("--train", train)
    assert done.exit_code == 0
    link = done.stdout.strip()
    assert link.startswith("http://127.0.0.1:")
    assert [one.partition("=")[0] for one in opened] == [link.partition("=")[0]]
    assert opened != [link]  # other users can see what a browser is started with: that link works once


def test_a_small_collection_has_a_null_by_default(opened, tmp_path):
    np.save(tmp_path / "train.npy", np.random.default_rng(0).integers(0, 256, (25, 16, 16, 3), dtype=np.uint8))
    asked = ("--train", str(tmp_path / "train.npy"), "--no-open", "--seconds", "1000")
    assert "leave-one-out over 19 members" in call(*asked).stderr
    assert "leave-one-out" not in call(*asked, "--no-leave-one-out").stderr
    assert call(*asked, "--controls", str(tmp_path / "train.npy"), "--null", str(tmp_path)).exit_code == 2


def test_no_browser_is_opened_where_none_is_wanted(opened, train):
    assert call("--train", train, "--no-open").exit_code == 0
    assert opened == []


def test_a_wider_address_is_warned_of_and_the_link_is_for_others_too(opened, train, monkeypatch):
    monkeypatch.setattr("patchtrace.server.security.own_address", lambda _: "192.0.2.7")
    done = call("--train", train, "--no-open", "--host", "0.0.0.0")
    assert "other machines can reach this address" in done.stderr
    assert done.stdout.startswith("http://192.0.2.7:")


def test_missing_packages_are_named_with_the_cure(monkeypatch, train):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = call("--train", train)
    assert done.exit_code == 2
    assert "pip install 'patchtrace[web]'" in done.stderr


def test_wrong_usage_is_refused(train, tmp_path):
    recipe = tmp_path / "recipe.toml"
    recipe.write_text("")
    assert call("--train", train, "--recipe", str(recipe)).exit_code == 2
    assert call("--train", train, "--memory", "much").exit_code == 2
    assert call("--train", train, "--confidence", "0.9").exit_code == 2  # the preset has one draw
    assert call("--train", train, "--port", "70000").exit_code == 2


@pytest.mark.parametrize("method", ["pixel", "pixel-dot", "random", "machine-influence"])
def test_other_methods_are_served(opened, train, method):
    done = CliRunner().invoke(serve, ["--method", method, "--train", train, "--no-open"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("http://127.0.0.1:")


def test_what_a_method_requires_is_named(opened, train):
    done = CliRunner().invoke(serve, ["--method", "trak", "--train", train, "--no-open"])
    assert isinstance(done.exception, PatchtraceError)
    assert "--model" in str(done.exception)


@pytest.mark.parametrize(
    "option",
    [
        ("--draws", "4"),
        ("--preset", "quick"),
        ("--seconds", "3"),
        ("--lam", "2"),
        ("--encoder", "x"),
        ("--threads", "1"),
    ],
)
def test_an_option_that_the_method_does_not_use_is_refused(train, option):
    done = CliRunner().invoke(serve, ["--method", "pixel", "--train", train, *option])
    assert done.exit_code == 2
    assert f"{option[0]} has no meaning for --method pixel" in done.stderr


def test_a_collection_that_is_no_pictures_is_refused(tmp_path):
    path = tmp_path / "latents.npy"
    np.save(path, np.zeros((4, 4, 32, 32), np.float32))
    assert isinstance(call("--train", str(path), "--layout", "NCHW").exception, PatchtraceError)


@pytest.mark.parametrize(
    ("options", "whole", "attribution"),
    [
        (["--draws", "auto"], 60, 48),
        (["--draws", "auto", "--seconds", "10"], 10, 8),
        (["--draws", "auto", "--seconds", "0"], None, None),
        (["--draws", "auto", "--exact"], None, None),
        (["--draws", "2"], None, None),
        (["--draws", "2", "--seconds", "10"], 10, 8),
    ],
)
def test_the_time_limit_leaves_some_for_the_closer_look(opened, train, monkeypatch, options, whole, attribution):
    served = []
    monkeypatch.setattr(LocalServer, "run", lambda server: served.append(server.jobs.work) or server._socket.close())
    assert call("--train", train, "--no-open", *options).exit_code == 0
    (work,) = served
    assert work.seconds == whole
    assert work.method.stopping.seconds == attribution


def test_where_no_process_can_be_limited_the_page_takes_no_uploads(monkeypatch):
    from patchtrace.images import contained

    monkeypatch.setattr(contained, "CONTAINED", False)
    with pytest.raises(PatchtraceError, match="Linux and macOS only: use `patchtrace attribute --report`"):
        LocalServer(None)  # type: ignore[arg-type]  # it does not come to that
