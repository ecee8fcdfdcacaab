"""A real server on a real port."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2 as httpx
import pytest
from server.fakes import Work, client_of, picture, running, submit, wait_for
from uvicorn.protocols.http.h11_impl import H11Protocol

from patchtrace import Compute, Stopping
from patchtrace.demo import postcards
from patchtrace.errors import PatchtraceError
from patchtrace.nda import NDA
from patchtrace.recipe import Recipe
from patchtrace.server import LocalServer, QueryWork

pytestmark = pytest.mark.slow


def test_events_follow_a_query_to_its_end():
    work = Work(held=True)
    with running(work) as server, client_of(server) as site:
        first = submit(site).json()["id"]
        assert work.began.wait(10)
        second = submit(site, name="b").json()["id"]
        told = []
        with site.stream("GET", f"/api/queries/{second}/events") as stream:
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: ")))
                    work.go.set()
        states = [one["state"] for one in told]
        assert states[0] == "waiting"
        assert told[0]["position"] == 1
        assert states[-1] == "done"
        assert [*dict.fromkeys(states)] in (["waiting", "running", "done"], ["waiting", "done"])
        assert site.get(f"/api/queries/{first}").json()["state"] == "done"


def test_a_silent_stream_gives_signs_of_life(monkeypatch):
    monkeypatch.setattr("patchtrace.server.app.HEARTBEAT", 0.2)
    work = Work(held=True)
    with running(work) as server, client_of(server) as site:
        submit(site)
        second = submit(site).json()["id"]
        with site.stream("GET", f"/api/queries/{second}/events") as stream:
            assert next(line for line in stream.iter_lines() if line.startswith(":"))
        work.go.set()


def test_streams_are_bounded_and_given_back():
    work = Work(held=True)
    with running(work, streams=1) as server, client_of(server) as site:
        path = f"/api/queries/{submit(site).json()['id']}/events"
        with site.stream("GET", path) as stream:
            lines = stream.iter_lines()  # a stream whose lines nobody holds is closed
            next(lines)
            assert site.get(path).status_code == 429
        work.go.set()
        until = time.monotonic() + 10
        while site.get(path).status_code == 429:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_cancel_a_running_query_is_seen_by_those_who_watch():
    work = Work(held=True)
    with running(work) as server, client_of(server) as site:
        identity = submit(site).json()["id"]
        assert work.began.wait(10)
        with site.stream("GET", f"/api/queries/{identity}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            assert site.delete(f"/api/queries/{identity}").status_code == 200
            last = [line for line in lines if line.startswith("data: ")][-1]
        assert json.loads(last.removeprefix("data: "))["state"] == "cancelled"


def test_ten_uploads_at_once_are_all_answered_and_the_page_stays_awake():
    work = Work(held=True)
    with running(work) as server, client_of(server) as site, ThreadPoolExecutor(10) as pool:
        uploads = [pool.submit(submit, site, picture((600, 400), seed=n), f"{n}.png") for n in range(10)]
        answers = [one.result() for one in uploads]
        assert [one.status_code for one in answers] == [202] * 10
        assert work.began.wait(10)
        assert site.get("/").status_code == 200  # while the first is worked on, which goes on until it is let go
        queries = site.get("/api/queries").json()["queries"]
        assert sorted(query["state"] for query in queries) == ["running"] + ["waiting"] * 9
        assert sorted(query["position"] for query in queries if query["position"]) == [*range(1, 10)]
        work.go.set()
        ids = [one.json()["id"] for one in answers]
        assert {wait_for(site, identity, "done")["name"] for identity in ids} == {f"{n}.png" for n in range(10)}


def raw(server: LocalServer, head: str, body: bytes = b"") -> tuple[bytes, int]:
    """Send a request without caring for the answer before it comes; returns the answer, and how much was taken."""
    address = httpx.URL(server.access.url)
    with socket.create_connection((address.host, address.port), timeout=20) as connection:
        lines = f"{head}\r\nHost: 127.0.0.1:{address.port}\r\nAuthorization: Bearer {server.access.token}\r\n\r\n"
        connection.sendall(lines.encode())
        connection.settimeout(2)
        taken = 0
        try:
            while taken < len(body):
                taken += connection.send(body[taken : taken + (1 << 16)])
        except OSError:
            pass  # the server closed, or takes no more
        connection.settimeout(20)
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except ConnectionError:
            pass
        return answer, taken


HUGE = 100_000_000


def test_a_body_of_100_mb_is_refused_before_any_of_it_is_sent():
    with running(Work()) as server:
        head = f"POST /api/queries HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: {HUGE}"
        answer, _ = raw(server, head)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"too_large" in answer


def test_a_body_without_a_length_is_refused_and_its_chunks_are_not_looked_at(monkeypatch):
    """To read chunks of a byte each would take all of the server's time: here, an hour."""
    fed = []
    receive = H11Protocol.data_received
    monkeypatch.setattr(H11Protocol, "data_received", lambda self, data: (fed.append(len(data)), receive(self, data)))
    with running(Work()) as server:
        head = "POST /api/queries HTTP/1.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked"
        answer, _ = raw(server, head, b"1\r\nx\r\n" * 1_000_000)
        assert answer.startswith(b"HTTP/1.1 411 ")
        assert b"length_required" in answer
    assert sum(fed) < 1000


@pytest.mark.parametrize("length", [f"Content-Length: {HUGE}", "Transfer-Encoding: chunked"])
def test_a_body_of_100_mb_is_not_read_to_its_end(length):
    with running(Work(), upload=1_000_000) as server, client_of(server) as site:
        chunks = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        body = chunks * (HUGE // len(chunks))
        _, taken = raw(server, f"POST /api/queries HTTP/1.1\r\nContent-Type: image/png\r\n{length}", body)
        assert taken < HUGE / 4  # what was taken lies in the buffers of the system, mostly
        assert site.get("/api/queries").json() == {"queries": []}
        assert server.jobs._held == 0


def test_a_client_that_goes_away_while_it_sends_leaves_nothing_behind():
    with running(Work()) as server, client_of(server) as site:
        address = httpx.URL(server.access.url)
        with socket.create_connection((address.host, address.port)) as connection:
            head = f"POST /api/queries HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nContent-Type: image/png\r\n"
            connection.sendall(
                f"{head}Authorization: Bearer {server.access.token}\r\nContent-Length: 9999\r\n\r\nabc".encode()
            )
            until = time.monotonic() + 10
            while server.jobs._held == 0 and time.monotonic() < until:
                time.sleep(0.01)
        while server.jobs._held and time.monotonic() < until:
            time.sleep(0.01)
        assert server.jobs._held == 0
        assert site.get("/api/queries").json() == {"queries": []}


def test_a_client_that_stops_sending_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("patchtrace.server.arrivals.PATIENCE", 0.2)
    with running(Work()) as server:
        head = "POST /api/queries HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: 9999"
        answer, _ = raw(server, head, b"abc")
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert server.jobs._held == 0


def test_it_listens_on_this_machine_only():
    server = LocalServer(Work())
    with server._socket as listening:
        assert listening.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_is_told_plainly():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PatchtraceError, match="cannot listen on"):
        LocalServer(Work(), port=taken.getsockname()[1])


def test_stopping_ends_streams_and_work_soon():
    work = Work(held=True)
    server = LocalServer(work)
    thread = threading.Thread(target=server.run)
    thread.start()
    with client_of(server) as site:
        identity = submit(site).json()["id"]
        with site.stream("GET", f"/api/queries/{identity}/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            begin = time.monotonic()
            server.stop()
            thread.join(20)
            assert time.monotonic() - begin < 10  # and not for as long as the work or the stream would take
    assert not thread.is_alive()
    assert server.jobs.get(identity).state == "cancelled"


# -- the method itself, and the command -----------------------------------------------------------------


def png(images, index: int, path: Path) -> bytes:
    images.picture(index).save(path)
    return path.read_bytes()


def test_the_method_finds_a_picture_of_the_collection(tmp_path):
    cards = postcards(12, size=16)
    work = QueryWork(NDA(Recipe.preset("quick")).fit(cards))
    with running(work) as server, client_of(server) as site:
        identity = submit(site, png(cards, 5, tmp_path / "q.png")).json()["id"]
        assert wait_for(site, identity, "done", "failed")["state"] == "done"
        images = site.get(f"/api/queries/{identity}/view").json()["images"]
        assert [image["rank"] for image in images] == list(range(1, 13))
        assert images[0]["id"] == "card-005"


def test_a_running_method_can_be_cancelled(tmp_path):
    cards = postcards(300)
    work = QueryWork(
        NDA(Recipe.preset("cifar-stable"), stopping=Stopping(confidence=0.999), compute=Compute(engine="blocked")).fit(
            cards
        )
    )
    with running(work) as server, client_of(server) as site:
        identity = submit(site, png(cards, 5, tmp_path / "q.png")).json()["id"]
        until = time.monotonic() + 60
        while not site.get(f"/api/queries/{identity}").json()["total"]:  # it reports something
            assert time.monotonic() < until
            time.sleep(0.02)
        site.delete(f"/api/queries/{identity}")
        assert wait_for(site, identity, "cancelled", "done")["state"] == "cancelled"


AUDITED = Path(__file__).with_name("audited.py")


def test_the_ear_on_the_sockets_hears():
    done = subprocess.run([sys.executable, str(AUDITED), "check"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 77
    assert "left the machine" in done.stderr


def test_the_command_serves_ends_on_ctrl_c_and_no_socket_leaves_the_machine(tmp_path):
    cards = postcards(40, size=16)
    folder = tmp_path / "cards"
    folder.mkdir()
    for index, name in enumerate(cards.ids):
        cards.picture(index).save(folder / f"{name}.png")
    command = [sys.executable, str(AUDITED), str(folder), "--size", "16", "--most-draws", "16"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            link = httpx.URL(process.stdout.readline().strip())
            with httpx.Client(base_url=link.join("/"), timeout=30, follow_redirects=True, trust_env=False) as site:
                page = site.get(link)
                assert page.status_code == 200
                assert "token" not in str(page.url)
                assert "40" in page.text
                data = (folder / "card-007.png").read_bytes()
                identity = submit(site, data).json()["id"]
                assert wait_for(site, identity, "done", "failed", seconds=60)["state"] == "done"
                view = site.get(f"/api/queries/{identity}/view").json()
                assert view["images"][0]["id"] == "card-007.png"
                for _ in range(5):
                    submit(site, data)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
