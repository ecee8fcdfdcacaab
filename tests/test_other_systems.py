"""What other systems lack is taken away here: the same images, or a sentence that says what does not work there."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import patchtrace as pt
from patchtrace.images import contained

posix = pytest.mark.skipif(os.name != "posix", reason="Windows lacks these anyway")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (4, 20, 20, 3), dtype=np.uint8)
    for number, picture in enumerate(pixels):
        Image.fromarray(picture).save(folder / f"{number}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def pixels_of(images):
    return images.block(0, len(images))


def test_without_processes_with_limits_a_folder_has_the_same_images(photos, monkeypatch):
    usual = pt.ImageSet.open(photos, size=8)  # on Windows this is the same way
    monkeypatch.setattr(contained, "CONTAINED", False)
    monkeypatch.setattr(contained.subprocess, "Popen", None)  # to start one fails
    here = pt.ImageSet.open(photos, size=8)
    np.testing.assert_array_equal(pixels_of(here), pixels_of(usual))
    assert here.ids == usual.ids
    assert [each.id for each in here.skipped] == ["broken.png"]


def test_a_store_needs_locks_to_be_written(photos, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(pt.PatchtraceError, match="can be written on Linux and macOS only"):
        pt.Store(tmp_path / "s").update([photos], decoding=pt.Decoding(size=(8, 8)))


@posix
def test_a_store_is_read_without_preadv_too_and_refused_without_pread(photos, tmp_path, monkeypatch):
    pt.Store(tmp_path / "s").update([photos], decoding=pt.Decoding(size=(8, 8)))
    usual = pixels_of(pt.ImageSet.open(tmp_path / "s"))
    monkeypatch.delattr(os, "preadv", raising=False)
    np.testing.assert_array_equal(pixels_of(pt.ImageSet.open(tmp_path / "s")), usual)
    monkeypatch.delattr(os, "pread")
    with pytest.raises(pt.PatchtraceError, match="can be read on Linux and macOS only"):
        pt.ImageSet.open(tmp_path / "s")


@pytest.mark.slow
def test_the_package_and_every_command_are_imported_without_what_windows_lacks():
    missing = ["fcntl", "resource", "termios", "pwd", "grp", "tty"]
    code = (
        f"import sys; sys.modules |= dict.fromkeys({missing})\n"
        "import os; [vars(os).pop(name, 0) for name in ('fork', 'pread', 'preadv', 'sched_getaffinity', 'sysconf')]\n"
        "import signal; [vars(signal).pop(name, 0) for name in ('alarm', 'SIGKILL', 'SIGALRM')]\n"
        "from patchtrace.cli import main\n"
        "main(['doctor'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "engines" in done.stdout or "works" in done.stdout
