"""Tables that appear at once and become more certain: on a terminal, in a pipe, and when somebody stops them."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from patchtrace.cli import common

#: Rules that need several rounds, and some that never end by themselves.
ROUNDS = ["--size", "12", "--top", "2", "--tolerance", "0", "--precision", "0.02", "--most-draws", "40"]
ENDLESS = [*ROUNDS[:-3], "1e-9", "--most-draws", "1000000"]


@pytest.fixture
def mixed(photos):
    """A query that several images share."""
    left, right, *_ = (np.asarray(Image.open(path)) for path in sorted(photos.glob("*.png")))
    path = photos.parent / "mixed.png"
    Image.fromarray(np.concatenate([left[:, :6], right[:, 6:]], axis=1)).save(path)
    return path


def on_a_terminal(arguments, stop_at=None):
    """What a terminal gets, and the exit code; with ``stop_at``, Ctrl-C as soon as that text appears."""
    terminal, other_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "patchtrace", *map(str, arguments)],
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"},
    )
    os.close(other_end)
    shown, stopped = b"", False
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:  # how a terminal ends on Linux
            break
        if not more:
            break
        shown += more
        if stop_at and not stopped and stop_at in shown:
            process.send_signal(signal.SIGINT)
            stopped = True
    os.close(terminal)
    return shown.decode(), process.wait()


@pytest.mark.slow
def test_on_a_terminal_the_table_is_drawn_again_in_its_place(photos, mixed):
    shown, code = on_a_terminal(["attribute", mixed, "--train", photos, *ROUNDS])
    assert code == 0
    tables = shown.split("effective sources")
    assert len(tables) > 2
    # before each table but the first the lines of the one before are erased
    erased = [f"\x1b[{lines}A\x1b[J" in shown for lines in range(3, 9)]
    assert sum(erased) >= 1
    assert "provisional" in tables[1]
    assert "provisional" not in tables[-1]


@pytest.mark.slow
def test_ctrl_c_leaves_the_answer_so_far(photos, mixed, tmp_path):
    arguments = ["attribute", mixed, "--train", photos, *ENDLESS, "-o", tmp_path / "run"]
    shown, code = on_a_terminal(arguments, stop_at=b"provisional")
    assert code == 130
    assert "provisional" in shown.split("effective sources")[-1]
    assert "interrupted: the same command resumes" in shown


def test_a_pipe_gets_the_last_table_only(call, photos, mixed):
    code, out, _ = call("attribute", mixed, "--train", photos, *ROUNDS)
    assert code == 0
    assert out.count("effective sources") == 1
    assert "provisional" not in out
    assert "\x1b" not in out


def test_json_lines_grow_more_certain(call, photos, mixed):
    code, out, _ = call("attribute", mixed, "--train", photos, *ROUNDS, "--json-lines")
    assert code == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert [line["ended"] for line in lines[:-1]] == ["provisional"] * (len(lines) - 1)
    assert len(lines) > 2
    assert lines[-1]["ended"] in ("settled", "draws")
    assert lines[-1]["id"] == "mixed.png"
    assert lines[-1]["ranking"][0]["error"] < lines[0]["ranking"][0]["error"]


def test_there_is_a_sign_of_life_where_there_is_no_terminal(call, photos, mixed, monkeypatch):
    monkeypatch.setattr(common, "SECONDS_BETWEEN_LINES", 0)
    _, _, err = call("attribute", mixed, "--train", photos, *ROUNDS)
    assert "comparing: " in err
    assert " % after 0 s" in err
    assert call("attribute", mixed, "--train", photos, *ROUNDS, "--quiet")[2] == ""


def test_without_a_limit_all_images_are_compared(call, photos, mixed):
    for words in (["--exact"], ["--seconds", 0]):
        code, out, _ = call("attribute", mixed, "--train", photos, *ROUNDS, *words)
        assert code == 0
        assert "approximate" not in out
