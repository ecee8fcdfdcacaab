"""Hostile pictures and clients against a real server: it stays awake, bounded and silent."""

from __future__ import annotations

import threading
import time

import pytest
from hostile import black_png, empty_webp, many_strips, slow_jpeg
from server.fakes import client_of, picture, running, submit
from server.process import folder_of_pictures, serving

from patchtrace import PixelSimilarity
from patchtrace.demo import postcards
from patchtrace.images import Decoding
from patchtrace.images.decode import Unreadable
from patchtrace.server import QueryWork
from patchtrace.server.upload import Reader

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """One server for tests that leave it as it was."""
    with serving(folder_of_pictures(tmp_path_factory.mktemp("served") / "photos"), "--method", "pixel") as server:
        yield server


# -- pictures -------------------------------------------------------------------------------------------


def test_a_picture_that_takes_long_to_decode_is_given_up_and_the_next_is_taken():
    work = QueryWork(PixelSimilarity().fit(postcards(6, size=16)))
    work.reader.seconds = 2
    with running(work) as server, client_of(server) as site:
        answers = []
        sending = threading.Thread(target=lambda: answers.append(submit(site, slow_jpeg())))
        sending.start()
        time.sleep(1)  # it is being decoded
        assert site.get("/api/queries").json() == {"queries": []}
        assert submit(site).status_code == 202
        sending.join()
        assert answers[0].status_code == 422
        assert "took more than 2 seconds" in answers[0].json()["error"]["message"]


def test_a_small_file_cannot_take_much_memory():
    """With a smaller limit and a smaller attack, for speed."""
    reader = Reader(memory=100 << 20)
    # on a busy machine the limit of time is first; without memory for its own answer a decoder ends
    with pytest.raises(Unreadable, match=r"memory|seconds|ended with code"):
        reader.read("a", many_strips(1_000_000), Decoding((8, 8)))
    with pytest.raises(Unreadable):
        reader.read("a", empty_webp(), Decoding((8, 8)))


def test_large_pictures_leave_no_memory_in_use(served):
    submit(served.site)
    before = served.memory()
    for _ in range(2):
        assert submit(served.site, black_png(7000, 7000)).status_code == 202
    assert served.memory() - before < 100  # the picture has 49 million pixels


def test_stopping_does_not_wait_for_a_decoder():
    reader = Reader(seconds=30)
    reasons = []

    def read() -> None:
        try:
            reader.read("a", slow_jpeg(), Decoding((8, 8)))
        except Unreadable as reason:
            reasons.append(str(reason))

    reading = threading.Thread(target=read)
    reading.start()
    time.sleep(1.5)  # it is being decoded
    reader.close()
    reading.join(10)
    assert not reading.is_alive()
    assert reasons == ["the decoder crashed (SIGKILL)"]
    with pytest.raises(Unreadable, match="stopped"):
        reader.read("a", picture(), Decoding((8, 8)))
