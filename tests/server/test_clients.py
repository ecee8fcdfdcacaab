"""Hostile clients against a real server: too many, too slow, too loud, gone; and its end in the middle of all that."""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx2 as httpx
import pytest
from hostile import slow_jpeg
from server.fakes import Work, answer, client_of, picture, running, submit, wait_for
from server.process import folder_of_pictures, serving

from patchtrace.server import connections
from patchtrace.server.connections import IDLE, SPARE

pytestmark = pytest.mark.slow


def connect(server, count: int, host: str = "127.0.0.1") -> list[socket.socket]:
    port = server.port if hasattr(server, "port") else httpx.URL(server.access.url).port
    return [socket.create_connection((host, port), timeout=20) for _ in range(count)]


def head(server, length: int) -> bytes:
    """The head of an upload that claims so many bytes."""
    token = server.token if hasattr(server, "token") else server.access.token
    port = server.port if hasattr(server, "port") else httpx.URL(server.access.url).port
    lines = ["POST /api/queries HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {token}"]
    return "\r\n".join([*lines, "Content-Type: image/png", f"Content-Length: {length}", "", ""]).encode()


def everything(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionError:
        pass
    return received


def closed(connection: socket.socket) -> bool:
    connection.settimeout(10)
    return not everything(connection)


@contextmanager
def held(sockets: list[socket.socket]):
    with ExitStack() as stack:
        for each in sockets:
            stack.enter_context(closing(each))
        yield sockets


# -- connections ----------------------------------------------------------------------------------------


def test_idle_connections_do_not_keep_others_out(tmp_path):
    """More of them than the process may have files, and nobody waits; the log stays short."""
    few_files = ("sh", "-c", 'ulimit -n 200; exec "$@"', "sh")
    with (
        serving(folder_of_pictures(tmp_path / "photos"), "--method", "pixel", prefix=few_files) as served,
        held(connect(served, 300)),
    ):
        for _ in range(3):
            # while a burst of new ones is not idle yet, the answer is 503: try again, as it says
            begin, answered = time.monotonic(), False
            while not answered and time.monotonic() - begin < 20:
                with suppress(AssertionError, httpx.HTTPError):
                    answered = served.status_seconds() < 5
                time.sleep(IDLE)
            assert answered
        assert len(served.complaints()) < 1000


def test_a_connection_without_a_whole_head_is_closed(monkeypatch):
    monkeypatch.setattr(connections, "HEAD", 0.5)
    with running(Work()) as server, held(connect(server, 3)) as (silent, trickling, kept):
        kept.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{kept.getpeername()[1]}\r\n\r\n".encode())
        begin = time.monotonic()
        with suppress(ConnectionError):
            while time.monotonic() - begin < 10:
                trickling.sendall(b"G")
                time.sleep(0.05)
        assert time.monotonic() - begin < 9
        assert closed(silent)
        assert everything(kept).startswith(b"HTTP/1.1 401 ")


def test_requests_beyond_the_limit_are_answered_with_503():
    work = Work(held=True)
    with running(work, connections_of_client=SPARE + 2) as server, client_of(server) as site:
        path = f"/api/queries/{submit(site).json()['id']}/events"
        with site.stream("GET", path) as first, site.stream("GET", path) as second:
            lines = first.iter_lines(), second.iter_lines()
            assert all(next(each) for each in lines)
            refused = site.get("/api/queries")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "too_many_requests"
            assert refused.headers["retry-after"] == "5"
            assert refused.headers["x-content-type-options"] == "nosniff"
        until = time.monotonic() + 10
        while site.get("/api/queries").status_code == 503:
            assert time.monotonic() < until
            time.sleep(0.05)
        work.go.set()


def test_a_client_that_takes_nothing_is_dropped(monkeypatch):
    monkeypatch.setattr(connections, "TAKING", 0.5)

    class Large(Work):
        def __call__(self, upload, watch):
            found = answer(upload.name)
            found.view["padding"] = "x" * 30_000_000
            return found

    with running(Large()) as server, client_of(server) as site:
        identity = submit(site).json()["id"]
        wait_for(site, identity, "done")
        with held(connect(server, 1)) as (greedy,):
            lines = f"GET /api/queries/{identity}/view HTTP/1.1\r\nHost: 127.0.0.1:{greedy.getpeername()[1]}\r\n"
            greedy.sendall(f"{lines}Authorization: Bearer {server.access.token}\r\n\r\n".encode())
            time.sleep(2)
            greedy.settimeout(10)
            assert len(everything(greedy)) < 30_000_000


def test_garbage_does_not_fill_the_log(tmp_path):
    with serving(folder_of_pictures(tmp_path / "photos"), "--method", "pixel") as served:
        for _ in range(300):
            with held(connect(served, 1)) as (loud,):
                loud.sendall(b"\x16\x03\x01 nonsense\r\n\r\n")
                assert everything(loud).startswith(b"HTTP/1.1 400 ")
        assert len(served.complaints().splitlines()) < 40
        assert "messages are left out" in served.complaints()


# -- slow uploads ---------------------------------------------------------------------------------------


def test_an_upload_counts_for_what_has_arrived_and_not_for_what_it_claims():
    with (
        running(Work(), upload=1_000_000, held=1_000_000) as server,
        client_of(server) as site,
        held(connect(server, 5)) as slow,
    ):
        for each in slow:
            each.sendall(head(server, 900_000) + b"abc")
        time.sleep(0.3)
        assert [submit(site).status_code for _ in range(3)] == [202] * 3


def test_where_too_many_arrive_the_slowest_gives_way():
    with running(Work(), arriving=2) as server, client_of(server) as site, held(connect(server, 2)) as slow:
        for each in slow:
            each.sendall(head(server, 900_000) + b"abc")
        time.sleep(0.3)
        assert submit(site).status_code == 429  # they have just begun, and may yet hurry
        time.sleep(1.2)
        assert submit(site).status_code == 202
        slow[0].settimeout(0.5)
        slow[1].settimeout(0.5)
        answers = []
        for each in slow:
            try:
                answers.append(each.recv(100)[:12])
            except TimeoutError:
                answers.append(b"still here")
        assert sorted(answers) == [b"HTTP/1.1 408", b"still here"]


def test_uploads_that_wait_to_be_decoded_are_bounded_too():
    class Busy(Work):
        def read(self, name, data, limits):
            self.go.wait(30)
            return super().read(name, data, limits)

    work = Busy(held=True)
    with running(work, arriving=2) as server, client_of(server) as site, ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(submit, site) for _ in range(2)]
        time.sleep(1.5)  # they have arrived, however slow they might be
        assert submit(site).status_code == 429
        work.go.set()
        assert [each.result().status_code for each in sent] == [202, 202]


def test_a_byte_now_and_then_is_not_enough(monkeypatch):
    monkeypatch.setattr("patchtrace.server.arrivals.PATIENCE", 0.5)
    with running(Work()) as server, held(connect(server, 1)) as (slow,):
        slow.sendall(head(server, 900_000))
        begin = time.monotonic()
        slow.settimeout(0.1)
        while time.monotonic() - begin < 10:
            slow.sendall(b"x")
            try:
                assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
                break
            except TimeoutError:
                continue
        else:
            pytest.fail("it was waited for")
        assert server.jobs._held == 0


# -- names ----------------------------------------------------------------------------------------------


def test_a_server_on_all_addresses_answers_on_each_and_to_no_other_name():
    with running(Work(), "0.0.0.0") as server:
        port = server._socket.getsockname()[1]
        site = httpx.Client(headers={"Authorization": f"Bearer {server.access.token}"}, trust_env=False, timeout=20)
        with site:
            assert site.get(f"http://127.0.0.2:{port}/api/queries").status_code == 200
            assert site.get(server.access.url + "api/queries").status_code == 200  # that of the link
            for other in (f"127.0.0.3:{port}", f"evil.example:{port}"):
                refused = site.get(f"http://127.0.0.2:{port}/api/queries", headers={"Host": other})
                assert refused.status_code == 421


# -- the end --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_while_uploads_are_blocked_and_streams_are_open(tmp_path, how):
    with serving(folder_of_pictures(tmp_path / "photos"), "--preset", "quick") as served:
        identity = submit(served.site).json()["id"]
        with held(connect(served, 3)) as (blocked, watching, decoding):
            data = slow_jpeg()
            decoding.sendall(head(served, len(data)) + data)
            blocked.sendall(head(served, 900_000) + b"abc")
            request = f"GET /api/queries/{identity}/events HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
            watching.sendall(f"{request}Authorization: Bearer {served.token}\r\n\r\n".encode())
            time.sleep(0.5)
            served.process.send_signal(how)
            assert served.process.wait(20) == 0
            assert everything(blocked).startswith(b"HTTP/1.1 503 ")
            assert everything(decoding).startswith(b"HTTP/1.1 503 ")
        assert "Traceback" not in served.complaints()


#: A method that is in native code nearly all the time, and never notices that it was stopped. Written to a file for the
#: server alone: a module here would be a method of all other tests too.
STUBBORN = """
from patchtrace import NDA, Recipe
from patchtrace.methods import Method


class Stubborn(Method):
    name = "stubborn"

    def settings(self):
        return {}

    def attribute(self, queries, *, progress=None):
        train, opened = self._opened(queries)
        method = NDA(Recipe.preset("quick")).fit(train)
        progress(1, 2)
        while True:
            method.attribute(opened)
"""


def test_it_ends_cleanly_while_a_thread_is_in_native_code(tmp_path):
    plugin = tmp_path / "stubborn.py"
    plugin.write_text(STUBBORN)
    with serving(
        folder_of_pictures(tmp_path / "photos"), "--method", "stubborn", prefix_options=("--plugin", str(plugin))
    ) as served:
        identity = submit(served.site, picture((16, 16))).json()["id"]
        wait_for(served.site, identity, "running")
        time.sleep(1)
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(20) == 0
        assert served.complaints().count("\n") <= 1  # how to stop it
