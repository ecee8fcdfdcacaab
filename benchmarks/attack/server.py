"""Attacks on `patchtrace serve`, each so many times, on loopback; 10 minutes or so.

    .venv/bin/python -m benchmarks.attack.server             # everything
    .venv/bin/python -m benchmarks.attack.server idle slow   # some of it; the rows of the others stay

The attacks are those of tests/server, only more of them. While they last, a status request is sent every fifth of a
second, each with a connection of its own. Rows go to results/attack/server.json.
"""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2 as httpx
from benchmarks.attack.rows import campaign, row
from hostile import black_png, empty_webp, jpeg_that_claims, many_strips, slow_jpeg
from server.fakes import picture, submit, wait_for
from server.process import Served, serving

from patchtrace.demo import postcards
from patchtrace.server.upload import SECONDS

RANDOM = random.Random(7)
#: Bytes that an upload claims which never arrives in full.
CLAIMED = 20_000_000
FEW_FILES = ("sh", "-c", 'ulimit -n 1024; exec "$@"', "sh")


class Probe:
    """Sends status requests while an attack lasts."""

    def __init__(self, served: Served) -> None:
        command = [
            sys.executable,
            str(Path(__file__).with_name("probe.py")),
            served.host,
            str(served.port),
            served.token,
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.times, self.failed = list[float](), 0

    def __enter__(self) -> Probe:
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        found = json.loads(self._process.communicate(timeout=60)[0])
        self.times = [seconds for seconds in found if seconds is not None]
        self.failed = len(found) - len(self.times)

    @property
    def outcome(self) -> str:
        if not self.times and not self.failed:
            return "over before the first status request"
        worst = max(self.times, default=float("inf"))
        return f"{len(self.times)} status requests meanwhile, {self.failed} failed, the slowest took {worst:.2f} s"

    @property
    def awake(self) -> bool:
        return self.awake_within(1)

    def awake_within(self, seconds: float) -> bool:
        return self.failed == 0 and max(self.times, default=float("inf")) < seconds


def folder(root: Path, images: int = 60) -> Path:
    cards = postcards(images)
    (root / "cards").mkdir()
    for index, name in enumerate(cards.ids):
        cards.picture(index).resize((128, 128)).save(root / "cards" / f"{name}.png")
    return root / "cards"


@contextmanager
def server(*options: str, images: int = 60, prefix: tuple[str, ...] = ()) -> Iterator[tuple[Served, Path]]:
    """A fresh server on a fresh folder."""
    with tempfile.TemporaryDirectory() as root:
        cards = folder(Path(root), images)
        with serving(cards, *(options or ("--preset", "quick")), prefix=prefix) as served:
            yield served, cards


@contextmanager
def connections(served: Served, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        address = served.host, served.port
        yield [stack.enter_context(socket.create_connection(address, timeout=20)) for _ in range(count)]


def head(served: Served, request: str, *lines: str) -> bytes:
    known = (f"Host: {served.host}:{served.port}", f"Authorization: Bearer {served.token}")
    return "\r\n".join([f"{request} HTTP/1.1", *known, *lines, "", ""]).encode()


def upload_head(served: Served, length: int = CLAIMED) -> bytes:
    return head(served, "POST /api/queries", "Content-Type: image/png", f"Content-Length: {length}")


def trickle(sockets: list[socket.socket], seconds: float, pause: float) -> int:
    """Send a byte on each every so often; returns how many the server has answered or closed."""
    alive, until = list(sockets), time.monotonic() + seconds
    while alive and time.monotonic() < until:
        for each in list(alive):
            try:
                each.setblocking(False)
                each.send(b"x")
                each.recv(1000)
                alive.remove(each)
            except BlockingIOError:  # nothing has come
                continue
            except OSError:
                alive.remove(each)
        time.sleep(pause)
    return len(sockets) - len(alive)


def still_works(served: Served) -> bool:
    """Whether a good picture is taken, and answered."""
    until = time.monotonic() + 60
    while (taken := submit(served.site, picture((64, 64)))).status_code == 429 and time.monotonic() < until:
        time.sleep(0.5)
    return (
        taken.status_code == 202 and wait_for(served.site, taken.json()["id"], "done", seconds=900)["state"] == "done"
    )


# -- attacks --------------------------------------------------------------------------------------------


def idle(_: Path) -> None:
    with server(prefix=FEW_FILES) as (served, _), Probe(served) as probe:
        with connections(served, 1030):
            time.sleep(8)
        good, logged = still_works(served), len(served.complaints())
    outcome = f"{probe.outcome}; {logged} bytes logged; a query afterwards {'is' if good else 'is NOT'} answered"
    # of a burst the system keeps 64; a client beyond them tries again after a second
    row("idle connections, at 1,024 files", 1030, outcome, probe.awake_within(2) and good and logged < 10_000)


def slow_heads(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe, connections(served, 50) as slow:
        closed = trickle(slow, 30, 1)
    row(
        "clients that send a byte of a head a second",
        50,
        f"{closed} closed; {probe.outcome}",
        probe.awake and closed == 50,
    )


def slow_uploads(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe, connections(served, 50) as slow:
        for each in slow:
            each.sendall(upload_head(served))
        closed = trickle(slow, 30, 1)
        good = still_works(served)
    held = probe.awake and good and closed == 50
    row("uploads that send a byte a second", 50, f"{closed} refused; {probe.outcome}", held)


def starved(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe, connections(served, 15) as slow:
        for each in slow:
            each.sendall(upload_head(served))
        sending = threading.Thread(target=trickle, args=(slow, 30, 3))
        sending.start()
        states = Counter(submit(served.site, picture((64, 64), seed=n)).status_code for n in range(32))
        sending.join()
    outcome = f"{states[202]} of 32 good uploads beside them accepted; {probe.outcome}"
    row("uploads of 20 MB that send a byte every 3 seconds", 15, outcome, states[202] == 32 and probe.awake)


def crowd(_: Path) -> None:
    def one(data: bytes) -> int:
        with httpx.Client(
            base_url=served.site.base_url, headers=served.site.headers, timeout=120, trust_env=False
        ) as site:
            try:
                return submit(site, data).status_code
            except httpx.HTTPError:
                return 0

    files = [picture((300, 200), seed=number) for number in range(200)]
    with server() as (served, _), Probe(served) as probe:
        with ThreadPoolExecutor(200) as pool:
            states = Counter(pool.map(one, files))
        good = still_works(served)
    told = ", ".join(f"{count} times {state or 'no answer'}" for state, count in sorted(states.items()))
    row("uploads at once", 200, f"{told}; {probe.outcome}", set(states) <= {202, 429, 503} and states[202] > 0 and good)
    row("status requests while 200 uploads come at once", len(probe.times), probe.outcome, probe.awake)


def cancelled(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe:
        ended = Counter[str]()
        for number in range(100):
            taken = submit(served.site, picture((64, 64), seed=number))
            if taken.status_code == 202:
                path = f"/api/queries/{taken.json()['id']}"
                for _ in range(RANDOM.randint(1, 4)):
                    served.site.delete(path)
                ended["cancelled"] += 1
            else:
                ended["refused"] += 1
        with connections(served, 100) as leaving:
            for each in leaving:
                each.sendall(upload_head(served) + RANDOM.randbytes(RANDOM.randint(0, 50_000)))
        good = still_works(served)
        states = {query["state"] for query in served.site.get("/api/queries").json()["queries"]}
    outcome = (
        f"{ended['cancelled']} cancelled, {ended['refused']} refused for now, 100 left in the middle; {probe.outcome}"
    )
    row(
        "queries cancelled, and uploads left in the middle",
        200,
        outcome,
        good and probe.awake and "failed" not in states,
    )


def streams(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe:
        waiting = [submit(served.site, picture((64, 64), seed=n)).json()["id"] for n in range(20)]
        with connections(served, 100) as watching:
            for number, each in enumerate(watching):
                name = waiting[number % len(waiting)]
                each.sendall(head(served, f"GET /api/queries/{name}/events"))
            time.sleep(5)
        good = still_works(served)
    row(
        "event streams left open",
        100,
        f"{probe.outcome}; a query afterwards is {'' if good else 'NOT '}answered",
        good and probe.awake,
    )


def unread(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe:
        identity = submit(served.site, picture((64, 64))).json()["id"]
        wait_for(served.site, identity, "done", seconds=900)
        before = served.memory("VmRSS")
        with connections(served, 60) as greedy:
            for each in greedy:
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                each.sendall(head(served, f"GET /api/queries/{identity}/view") * 20)
            time.sleep(5)
            grown = served.memory("VmRSS") - before
        good = still_works(served)
    outcome = f"the server grew by {grown:.0f} MB; {probe.outcome}"
    row("clients that ask and do not read the answer", 60, outcome, good and probe.awake and grown < 300)


def headers(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe:
        answers = Counter[bytes]()
        for _ in range(1000):
            with connections(served, 1) as (one,):
                with suppress(OSError):
                    one.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000)
                with suppress(OSError):
                    answers[one.recv(12)] += 1
        logged = len(served.complaints())
    told = ", ".join(f"{count} times {line.decode() or 'closed'}" for line, count in answers.items())
    row("headers of 1 MB", 1000, f"{told}; {logged} bytes logged; {probe.outcome}", probe.awake and logged < 10_000)


def garbage(_: Path) -> None:
    with server() as (served, _), Probe(served) as probe:
        for _ in range(2000):
            with connections(served, 1) as (one,), suppress(OSError):
                one.sendall(RANDOM.randbytes(RANDOM.randint(1, 200)) + b"\r\n\r\n")
                one.recv(100)
        good, logged = still_works(served), len(served.complaints())
    row("random bytes in place of a request", 2000, f"{logged} bytes logged; {probe.outcome}", good and logged < 10_000)


def doors(_: Path) -> None:
    with server("--preset", "quick", "--host", "0.0.0.0") as (served, _):
        url = f"http://127.0.0.1:{served.port}/api/queries"
        with httpx.Client(trust_env=False, timeout=20) as stranger:
            guesses = [served.token[: RANDOM.randrange(43)] + RANDOM.choice("aZ9_-") for _ in range(1000)]
            states = Counter(
                stranger.get(url, headers={"Authorization": f"Bearer {one}"}).status_code for one in guesses
            )
            key = {"Authorization": f"Bearer {served.token}"}
            names = [
                f"{name}:{served.port}" for name in ("evil.example", "127.0.0.9", "192.0.2.1", "localhost.evil", "")
            ]
            wrong = Counter(stranger.get(url, headers={**key, "Host": name}).status_code for name in names * 20)
            foreign = Counter(
                stranger.get(url, headers={**key, "Origin": origin}).status_code
                for origin in ["http://evil.example", "null", "https://127.0.0.1"] * 20
            )
            own = stranger.get(f"http://127.0.0.2:{served.port}/api/queries", headers=key).status_code
    row("guesses at the token", 1000, f"{states[401]} refused", states == {401: 1000})
    outcome = (
        f"{wrong[421] + wrong[400]} wrong names and {foreign[403]} foreign pages refused; an address of its own: {own}"
    )
    row(
        "foreign names and pages, on 0.0.0.0",
        160,
        outcome,
        set(wrong) <= {421, 400} and foreign == {403: 60} and own == 200,
    )


def pictures(_: Path) -> None:
    hostile: dict[str, Callable[[], bytes]] = {
        "a progressive JPEG with 2,000 scans": slow_jpeg,
        "a progressive JPEG of 20 MB with 300,000 scans": lambda: slow_jpeg(2000, 300_000)[: CLAIMED - 10],
        "a TIFF of 9.9 million strips": lambda: many_strips(9_900_000),
        "a PNG of 1 x 49,999,999": lambda: black_png(1, 49_999_999),
        "a WebP of 40 bytes that claims 49 million pixels": empty_webp,
        "a JPEG of 633 bytes that claims 7000 x 7000": lambda: jpeg_that_claims(7000),
    }
    with server() as (served, _):
        still_works(served)
        for what, make in hostile.items():
            before, data, begin = served.memory(), make(), time.monotonic()
            with Probe(served) as probe:
                refused = submit(served.site, data)
                took = time.monotonic() - begin
            grown = served.memory() - before
            outcome = f"{refused.status_code} after {took:.1f} s; the server grew by {grown:.0f} MB; {probe.outcome}"
            # on a fast machine the first of them is decoded within its time, and is a picture like any other
            answered = took < 40 if refused.status_code == 422 else refused.status_code == 202 and took < SECONDS + 1
            row(what, 1, outcome, answered and grown < 200 and (probe.awake or took < 1))
        before = served.memory()
        taken = Counter(submit(served.site, black_png(7000, 7000)).status_code for _ in range(6))
        grown = served.memory() - before
        row("pictures of 7000 x 7000", 6, f"{taken[202]} accepted; the server grew by {grown:.0f} MB", grown < 200)


def files(_: Path) -> None:
    with server(images=20) as (served, cards):
        wrong, told = 0, 0
        for number in range(10):
            victim = cards / f"card-{number:03d}.png"
            data = victim.read_bytes()
            if number % 2:
                victim.unlink()
            else:
                victim.write_bytes(picture((128, 128), seed=number))
            identity = submit(served.site, data).json()["id"]
            wait_for(served.site, identity, "done", seconds=900)
            view = served.site.get(f"/api/queries/{identity}/view").json()
            shown = next(image for image in view["images"] if image["id"] == victim.name)
            wrong += shown["frame"] != shown["pixels"]  # a large picture could only come from the file
            told += victim.name in view["file_note"]
    row(
        "files replaced or deleted while they are served",
        10,
        f"{wrong} shown wrongly, {told} named",
        not wrong and told == 10,
    )


def ends(_: Path) -> None:
    for how in (signal.SIGTERM, signal.SIGINT):
        codes, loud, slowest = Counter[int](), 0, 0.0
        for _ in range(10):
            with server("--draws", "auto", "--exact", images=100) as (served, _), connections(served, 3) as (a, b, c):
                identity = submit(served.site, picture((64, 64))).json()["id"]
                a.sendall(upload_head(served) + b"abc")
                b.sendall(head(served, f"GET /api/queries/{identity}/events"))
                c.sendall(upload_head(served, len(data := slow_jpeg())) + data)  # is being decoded
                time.sleep(RANDOM.uniform(0.5, 2.5))
                begin = time.monotonic()
                served.process.send_signal(how)
                codes[served.process.wait(30)] += 1
                slowest = max(slowest, time.monotonic() - begin)
                loud += "Traceback" in served.complaints() or "terminate" in served.complaints()
        outcome = f"exit code 0 {codes[0]} times, {loud} tracebacks or aborts, at most {slowest:.1f} s"
        row(
            f"{how.name} in the middle of work, an upload, a stream and a decoding",
            10,
            outcome,
            codes == {0: 10} and not loud,
        )


def taken_port(_: Path) -> None:
    codes, said = Counter[int](), 0
    with tempfile.TemporaryDirectory() as root, socket.create_server(("127.0.0.1", 0)) as taken:
        cards = folder(Path(root), 5)
        for _ in range(3):
            command = [sys.executable, "-m", "patchtrace", "serve", "--train", str(cards), "--no-open", "--port"]
            done = subprocess.run([*command, str(taken.getsockname()[1])], capture_output=True, text=True, timeout=60)
            codes[done.returncode] += 1
            said += "cannot listen on" in done.stderr and "Traceback" not in done.stderr
    row(
        "a port that is taken",
        3,
        f"exit code 1 {codes[1]} times, said plainly {said} times",
        codes == {1: 3} and said == 3,
    )


if __name__ == "__main__":
    campaign(
        "server",
        *(idle, slow_heads, slow_uploads, starved, crowd, cancelled, streams, unread, headers, garbage, doors),
        *(pictures, files, ends, taken_port),
    )
