"""kill -9 while a store is written: it holds the old state or the new one, and the next run ends where this one would.

The moments are of two kinds. Moments of the clock fall anywhere, mostly into decoding. Moments of the file system are
just before a file of the store is opened, renamed or removed: there something could be half done.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import patchtrace
from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store

pytestmark = pytest.mark.slow

#: How many moments are tried; benchmarks may try more.
CLOCK_MOMENTS, FILE_MOMENTS = 4, 12
LIMIT, LONG_AGO = 4, 1_000_000_000
RULES = Decoding(size=(8, 8))

#: A run of the writer: arguments are the store, the source and the number of the event that kills it, or -1.
WRITER = f"""
import os, signal, sys, types
sys.modules["patchtrace"] = types.ModuleType("patchtrace")  # or its import would be most of the run
sys.modules["patchtrace"].__path__ = [{str(Path(patchtrace.__file__).parent)!r}]
from patchtrace.images import Decoding, Store
store, source, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
events = 0
def count(event, arguments):
    global events
    if event in ("open", "os.rename", "os.remove", "os.mkdir") and str(arguments[0]).startswith(store):
        if events == last:
            os.kill(os.getpid(), signal.SIGKILL)
        events += 1
sys.addaudithook(count)
print("begin", flush=True)
Store(store).update([source], decoding=Decoding(size=(8, 8)), shard_images={LIMIT}, jobs=1)
print(events, flush=True)
"""


def write(store: Path, source: Path, last: int = -1) -> subprocess.Popen[str]:
    """A writer that has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(store), str(source), str(last)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    return process


def state(store: Path) -> str | None:
    """The fingerprint of what the store holds, from its pixels and not from what it says of itself."""
    if not store.exists() or not any(store.iterdir()):
        return None  # killed before it had begun
    try:
        images = ImageSet.open(store)
    except PatchtraceError as error:
        return None if "is not finished" in str(error) else str(error)
    assert Store(store).verify() == []
    held = ImageSet(images.pixels[:], images.ids).fingerprint()
    assert held == images.fingerprint()
    return held


@pytest.fixture
def array(tmp_path):
    """A source that needs no decoder, in two versions: its images are added, changed and removed."""
    pixels = np.random.default_rng(0).integers(0, 256, (14, 3, 8, 8), dtype=np.uint8)
    later = np.concatenate([pixels[:3], 255 - pixels[3:6], pixels[6:], pixels[:5] // 2])
    for number, version in enumerate((pixels, later)):
        np.save(tmp_path / f"{number}.npy", version)
        os.utime(tmp_path / f"{number}.npy", (LONG_AGO, LONG_AGO + number))
    shutil.copy2(tmp_path / "0.npy", tmp_path / "source.npy")
    return tmp_path / "source.npy"


@pytest.mark.parametrize("updating", [False, True], ids=["first run", "update"])
def test_killed_between_two_files(tmp_path, array, updating):
    right, start = tmp_path / "right", tmp_path / "start"
    if updating:
        Store(start).update([array], decoding=RULES, shard_images=LIMIT)
        shutil.copy2(tmp_path / "1.npy", array)
        shutil.copytree(start, right)
    undisturbed = write(right, array)
    events = int(undisturbed.communicate()[0])
    before, after = state(start) if updating else None, state(right)
    assert before != after
    rng = np.random.default_rng(1 + updating)
    for moment in [*rng.choice(events - 1, FILE_MOMENTS // 2 - 1, replace=False).tolist(), events - 1]:
        store = tmp_path / f"killed-{moment}"
        if updating:
            shutil.copytree(start, store)
        killed = write(store, array, moment)
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        assert state(store) in (before, after)
        Store(store).update([array], decoding=RULES, shard_images=LIMIT)
        assert (store / "patchtrace-store.json").read_bytes() == (right / "patchtrace-store.json").read_bytes()
        Store(store).gc()
        assert state(store) == after
        assert not list(store.rglob(".*")), "nothing half-written is left"


def test_killed_at_any_time(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(40):
        pixels = np.random.default_rng(i).integers(0, 256, (150, 150, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
        os.utime(folder / f"{i:02d}.png", (LONG_AGO, LONG_AGO + i))
    (folder / "17.png").write_bytes(b"broken")
    os.utime(folder / "17.png", (LONG_AGO, LONG_AGO))
    began = time.monotonic()
    write(tmp_path / "right", folder).communicate()
    lasts = time.monotonic() - began
    after = state(tmp_path / "right")
    rng = np.random.default_rng(0)
    store = tmp_path / "killed"
    for _ in range(CLOCK_MOMENTS):
        writer = write(store, folder)
        time.sleep(rng.uniform(0, lasts))
        writer.kill()
        writer.communicate()
        assert state(store) in (None, after)
    Store(store).update([folder], decoding=RULES, shard_images=LIMIT, jobs=1)
    assert (store / "patchtrace-store.json").read_bytes() == (tmp_path / "right/patchtrace-store.json").read_bytes()
    assert state(store) == after


def test_what_was_decoded_before_a_kill_is_not_decoded_again(tmp_path, array):
    store = tmp_path / "store"
    undisturbed = write(tmp_path / "right", array)
    events = int(undisturbed.communicate()[0])
    write(store, array, events - 4).communicate()  # just before the manifest takes its name
    assert not (store / "patchtrace-store.json").exists()
    written = {path: path.stat().st_mtime_ns for path in (store / "shards").glob("*.npy")}
    assert len(written) >= 3
    Store(store).gc()  # has a use for them
    Store(store).update([array], decoding=RULES, shard_images=LIMIT)
    again = {path: path.stat().st_mtime_ns for path in (store / "shards").glob("*.npy")}
    assert again == written
