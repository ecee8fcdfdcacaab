"""Connections: not too many, and none that takes for ever.

Whoever can reach the port can open connections, with or without the secret. Where there are too many, one that has been
without a request for a while gives way to a newer one; if there is none, the newer one is answered with 503.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from patchtrace.server.jobs import Limits
from patchtrace.server.security import HEADERS, error, unknown_length

#: Seconds: for the head of a request to arrive, and for a client to take what it has asked for.
HEAD, TAKING = 20.0, 60.0
#: Seconds without a request after which a connection may be closed for another one.
IDLE = 0.5
#: Connections of the limit that are kept for short requests: those beyond are answered with 503.
SPARE = 16
#: What ends the head of a request; some clients send no returns, and are looked at in so many bytes at once.
BLANK, SLICE = b"\r\n\r\n", 1024
#: Most messages in the log for each so many seconds.
MESSAGES, PERIOD = 20, 60.0

FULL = error(
    503,
    "too_many_requests",
    "the server is busy with too many requests at once: try again in a moment",
    {**HEADERS, "Retry-After": "5", "Connection": "close"},
)


class Connection(H11Protocol):
    """A connection with limits. Its parameters are those of uvicorn, and the limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: Limits,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._since = self.loop.time()  # when it was opened, or had its last answer
        self._timer: asyncio.TimerHandle | None = None  # for the next head
        self._stalled: asyncio.TimerHandle | None = None
        self._refused = False  # whether the request in hand is refused for its head: then what follows is not read

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        for crowd, most in self._crowds():
            if len(crowd) > most:
                idle = [other for other in crowd if not other.busy and self._since - other._since > IDLE]
                if not idle:
                    self._refuse()
                    return
                min(idle, key=lambda other: other._since).drop()

    def data_received(self, data: bytes) -> None:
        if not self.busy:  # what comes now is a request
            crowded = any(sum(other.busy for other in crowd) >= most - SPARE for crowd, most in self._crowds())
            self.app = FULL if crowded else self.config.loaded_app
        while data and not self._refused and not self.transport.is_closing():
            end = data.find(BLANK)
            some = len(data) if self.busy else end + len(BLANK) if end >= 0 else SLICE
            super().data_received(data[:some])
            data = data[some:]
            self._refused = self.busy and unknown_length(self.headers)
        if self.busy:
            self._cancel_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        if not self.busy:
            self._await_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(TAKING, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._cancel_timer()
        if self._stalled is not None:
            self._stalled.cancel()

    def shutdown(self) -> None:
        if self.flow.write_paused:  # the client takes nothing: there is no use in waiting for it
            self.drop()
        else:
            super().shutdown()

    def drop(self) -> None:
        """End it at once."""
        self.connections.discard(self)
        self.transport.abort()

    def _crowds(self) -> list[tuple[list[Connection], int]]:
        """The connections of this client and of all, each with the limit."""
        everyone = [other for other in self.connections if isinstance(other, Connection)]
        own = [other for other in everyone if other.client and self.client and other.client[0] == self.client[0]]
        return [(own, self._limits.connections_of_client), (everyone, self._limits.connections)]

    def _refuse(self) -> None:
        """Answer before anything was asked."""
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in FULL.raw_headers)
        self.connections.discard(self)
        self.transport.write(b"HTTP/1.1 503 Service Unavailable\r\n" + lines + b"\r\n" + bytes(FULL.body))
        self._give_up()

    def _await_head(self) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(HEAD, self._give_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if not self.busy:
            self.transport.close()  # what of the last answer is still under way may arrive
            self._timer = self.loop.call_later(TAKING, self.drop)


class Bounded(logging.Filter):
    """Lets only so many messages through in each period, so that no client can fill a disk with them."""

    def __init__(self) -> None:
        super().__init__()
        self._begin, self._count = time.monotonic(), 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError):
            return False  # a request that was cut off because the server is being stopped
        if time.monotonic() - self._begin > PERIOD:
            self._begin, self._count = time.monotonic(), 0
        self._count += 1
        if self._count == MESSAGES:
            print(f"more messages are left out for {PERIOD:g} seconds", file=sys.stderr)
        return self._count < MESSAGES


def bound_logs() -> None:
    """Bound what the server and the libraries under it log."""
    bounded = Bounded()
    for name in ("uvicorn.error", "asyncio", "patchtrace.server"):
        log = logging.getLogger(name)
        for old in [each for each in log.filters if isinstance(each, Bounded)]:  # of a server before this one
            log.removeFilter(old)
        log.addFilter(bounded)
