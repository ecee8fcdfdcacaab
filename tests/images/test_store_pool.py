"""Images that crash a decoder, hang it or take all memory: each costs one image and never the run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchtrace.errors import PatchtraceError
from patchtrace.images import Decoding, ImageSet, Store, contained
from patchtrace.images.store import pool, worker

#: What a decoder does with a file that begins so.
HOSTILE = {
    b"abort": "os.abort()",
    b"leave": "os._exit(7)",
    b"sleep": "time.sleep(1000)",
    b"spin": "[0 for _ in iter(int, 1)]",
    b"eat": "bytearray(1 << 40)",
    b"chatter": "os.write(1, b'x' * 1000), print('x')",
}
DECODE = """
import os, time
from patchtrace.images.store import worker
decode = worker.decode_at
def hostile(content, rules, sizes):
    for start, action in {hostile!r}.items():
        if content.startswith(start):
            eval(action)
    return decode(content, rules, sizes)
worker.decode_at = hostile
main()
"""


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(12):
        Image.new("RGB", (9, 9), (i, 2 * i, 3 * i)).save(folder / f"{i:02d}.png")
    return folder


@pytest.fixture
def hostile(monkeypatch):
    """Decoders that obey the first word of a file."""
    program = contained.PROGRAM.replace("main()", DECODE.format(hostile=HOSTILE))
    monkeypatch.setattr(contained, "PROGRAM", program)


def test_the_rest_goes_on(tmp_path, photos, hostile, monkeypatch):
    for word in HOSTILE:
        (photos / f"05-{word.decode()}.png").write_bytes(word)
    started = []
    popen = subprocess.Popen

    def watched(*arguments, **options):
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(contained.subprocess, "Popen", watched)
    done = Store(tmp_path / "store").update([photos], decoding=Decoding(size=(8, 8)), jobs=2, timeout=3)
    reasons = {lost.id.removesuffix(".png").removeprefix("05-"): lost.reason for lost in done.skipped}
    assert reasons["abort"] == "the decoder crashed (SIGABRT)"
    assert reasons["leave"] == "the decoder ended with code 7"
    assert reasons["sleep"] == reasons["spin"] == "decoding took more than 3 seconds"
    assert "memory" in reasons["eat"]
    assert "not an image" in reasons["chatter"]
    assert len(reasons) == len(HOSTILE)
    assert ImageSet.open(tmp_path / "store").ids == tuple(f"{i:02d}.png" for i in range(12))
    assert all(process.poll() is not None for process in started), "no decoder is left behind"


def test_a_decoder_may_not_take_all_memory(photos):
    """The limit itself: the same picture is read with enough of it and refused with too little."""
    Image.new("RGB", (5000, 5000)).save(photos / "large.png")
    rules = Decoding(size=(8, 8))
    for memory, readable in ((16 << 20, False), (512 << 20, True)):
        with pool.Pool(rules, 1, memory=memory) as decoders:
            (task,) = decoders.run(iter([pool.Task("large", photos / "large.png")]))
        assert task.answer is not None
        assert ("pixels" in task.answer) is readable
        assert readable or "memory" in task.answer["reason"]


def test_answers_come_in_order(photos):
    files = sorted(photos.iterdir()) * 20
    with pool.Pool(Decoding(), 2) as decoders:
        done = list(decoders.run(pool.Task(file.stem, file) for file in files))
    assert [task.payload for task in done] == files
    assert all(np.frombuffer(task.pixels, np.uint8)[0] == int(task.id) for task in done)


def test_long_payloads_and_long_answers_do_not_block_each_other(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "large.png")
    content = (tmp_path / "large.png").read_bytes()
    payloads: list[Path | bytes] = [tmp_path / "large.png", content] * 6
    with pool.Pool(Decoding(), 2) as decoders:
        done = list(decoders.run(pool.Task("large", payload) for payload in payloads))
    assert {task.pixels for task in done} == {noise.transpose(2, 0, 1).tobytes()}


def test_a_decoder_that_does_not_start_is_no_fault_of_the_images(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(contained, "PROGRAM", "import no_such_module")
    with pytest.raises(PatchtraceError, match=r"did not start.*no_such_module"):
        Store(tmp_path / "store").update([photos], decoding=Decoding(size=(8, 8)))


def test_a_decoder_that_never_gets_ready_is_not_waited_for(photos, tmp_path, monkeypatch):
    monkeypatch.setattr(contained, "PROGRAM", "import time; time.sleep(1000)")
    monkeypatch.setattr(contained, "START", 0.5)
    with pytest.raises(PatchtraceError, match=r"did not start \(its start took more than 0.5 seconds\)"):
        Store(tmp_path / "store").update([photos], decoding=Decoding(size=(8, 8)))


def test_a_pipe_among_the_files_is_not_waited_for(photos, tmp_path):
    os.mkfifo(photos / "pipe.png")
    done = Store(tmp_path / "store").update([photos], decoding=Decoding(size=(8, 8)), jobs=1)
    assert [(lost.id, lost.reason) for lost in done.skipped] == [("pipe.png", "not a regular file")]


def test_a_decoder_ends_by_itself_when_its_parent_is_gone(photos, hostile, monkeypatch):
    """A parent that was killed cannot end a decoder that hangs; an alarm does."""
    monkeypatch.setattr(
        contained, "PROGRAM", contained.PROGRAM.replace("\ndecode =", "\nworker.contained.GRACE = 0\ndecode =")
    )
    (photos / "00.png").write_bytes(b"spin")
    decoders = pool.Pool(Decoding(), 1, timeout=1)
    worker = decoders._start()
    decoders._waiting.append(pool.Task("00", photos / "00.png"))
    decoders._hand_out()
    try:
        assert worker.contained.process.wait(30) == -14  # SIGALRM
    finally:
        decoders.__exit__()


def test_a_file_that_grows_while_it_is_read_is_named(photos, monkeypatch):
    """What would be kept is neither the file of before nor that of after."""
    look = os.fstat

    def then_grow(handle):
        info = look(handle)
        with (photos / "00.png").open("ab") as stream:
            stream.write(b"more")
        return info

    monkeypatch.setattr(os, "fstat", then_grow)
    found, pixels = worker.answer({"known": (), "path": str(photos / "00.png")}, b"", Decoding())
    assert found["reason"] == "changed while it was read"
    assert not pixels
