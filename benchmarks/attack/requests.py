"""Requests to the page that are wrong in one way each, and clients that send as fast as they can. Two minutes.

.venv/bin/python -m benchmarks.attack.requests           # everything
.venv/bin/python -m benchmarks.attack.requests floods    # some of it; the rows of the others stay
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from benchmarks.attack.rows import campaign, row
from benchmarks.attack.server import Probe, connections, head, server, still_works
from server.fakes import picture, submit, wait_for
from server.process import Served

#: Paths, numbers and headers that are wrong.
ODD_PATHS = (
    *(
        "/static/../../etc/passwd",
        "/static/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/api/pictures/%00",
        "/api/pictures/%ff%zz",
    ),
    *("//evil.example/", "/%0d%0aX:%20y", "/api/queries/..", "/?token=" + "a&token=" * 5000, "/" + "a/" * 20_000),
)
ODD_NUMBERS = ("9" * 6000, "-1", "%D9%A3", "%C2%B2", "1e3", "0x1", "")
ODD_LENGTHS = ("-1", "9" * 20, "9" * 5000, "1, 1", "x")
ODD_HEADERS = (
    *("Content-Length: 4", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Expect: 100-continue"),
    *("Upgrade: websocket", "Range: bytes=" + ",".join(f"{n}-{n}" for n in range(8000)), "Cookie: " + "a=b;" * 15_000),
    *("Host: evil.example", "Authorization: Bearer \xff", "a:b\r\n" * 10_000 + "c:d", "X:\0", " folded"),
)


def flooded(served: Served, begin: bytes, more: bytes, seconds: float = 10) -> None:
    """Ten clients that send as fast as they can."""

    def flood() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with suppress(OSError), socket.create_connection((served.host, served.port), timeout=5) as one:
                one.sendall(begin)
                while time.monotonic() < until:
                    one.sendall(more)

    with ThreadPoolExecutor(10) as pool:
        for _ in range(10):
            pool.submit(flood)


def floods(_: Path) -> None:
    with server() as (served, _):
        chunked = "Transfer-Encoding: chunked", "Content-Type: image/png"
        key = head(served, "POST /api/queries", *chunked)
        lines = (line for line in key.split(b"\r\n") if not line.startswith(b"Authorization"))
        for what, begin, more in (
            ("clients that upload in chunks of a byte, with the token", key, b"1\r\nx\r\n" * 20_000),
            ("clients that upload in chunks of a byte, without it", b"\r\n".join(lines), b"1\r\nx\r\n" * 20_000),
            ("clients that send requests without waiting for answers", b"", head(served, "GET /api/queries") * 1000),
        ):
            with Probe(served) as probe:
                flooded(served, begin, more)
            row(what, 10, probe.outcome, probe.awake)
        good = still_works(served)
    row("queries after that", 1, f"{'' if good else 'NOT '}answered", good)


def odd(_: Path) -> None:
    """Requests that are wrong in one way each."""
    upload = "POST /api/queries", "Content-Type: image/png"
    with server() as (served, _), Probe(served) as probe:
        identity = submit(served.site, picture((64, 64))).json()["id"]
        wait_for(served.site, identity, "done", seconds=900)
        requests = [
            *(head(served, f"GET {path}") for path in ODD_PATHS),
            *(head(served, f"GET /api/queries/{identity}/evidence/{number}") for number in ODD_NUMBERS),
            *(
                head(served, *upload, f"Content-Length: {length}")
                for length in ("-1", "9" * 20, "9" * 5000, "1, 1", "x")
            ),
            *(head(served, *upload, "Content-Length: 3", line) + b"abc" for line in ODD_HEADERS),
            *(head(served, method) for method in ("OPTIONS *", "CONNECT a:80", "TRACE /", "get /", "GET http://evil/")),
            *(line.encode() + b"\r\n\r\n" for line in ("GET /", "PRI * HTTP/2.0", "GET / HTTP/1.1", "\0 / HTTP/1.1")),
        ]
        answers = Counter[str]()
        for request in requests * 5:
            with connections(served, 1) as (one,):
                one.sendall(request)
                said = b""
                with suppress(OSError):
                    said = one.recv(100)
            answers[said[9:12].decode("latin-1") or "closed"] += 1
        good, logged = still_works(served), served.complaints()
    told = ", ".join(f"{count} times {status}" for status, count in sorted(answers.items()))
    held = good and probe.awake and "500" not in answers and "Traceback" not in logged
    row("requests that are wrong in one way each", len(requests) * 5, f"{told}; {probe.outcome}", held)


if __name__ == "__main__":
    campaign("requests", floods, odd)
