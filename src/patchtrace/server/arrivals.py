"""Uploads on their way in.

Each has a pace to keep, and memory is reserved for what has arrived of it, not for what it claims: else a few that send
a byte now and then would keep out all others.
"""

from __future__ import annotations

import asyncio
import math
import time

from starlette.requests import Request

from patchtrace.server.jobs import Full, Jobs
from patchtrace.server.security import Refused

#: An upload may be slow for some seconds, and must then have had this many bytes for each second since.
PATIENCE, PACE = 10.0, 50_000
#: Seconds between looks at the clock while nothing arrives.
LOOK = 0.25


class Arrival:
    """One upload on its way. ``size`` is what has arrived and is reserved."""

    def __init__(self, jobs: Jobs) -> None:
        self.size, self.displaced = 0, False
        self._jobs, self._begin = jobs, time.monotonic()

    def behind(self, patience: float) -> float:
        """Bytes that are missing for the pace after so many seconds of patience; not positive if none are."""
        return PACE * (time.monotonic() - self._begin - patience) - self.size

    async def body(self, request: Request, limit: int) -> bytes:
        """The body, of which no more is read than the limit."""
        data = bytearray()
        while True:
            if self._jobs.closing:
                raise Full
            if self.displaced or self.behind(PATIENCE) > 0:
                raise Refused(408, "too_slow", "the picture did not arrive in time", Connection="close")
            try:
                async with asyncio.timeout(LOOK):
                    message = await request.receive()
            except TimeoutError:
                continue
            if message["type"] == "http.disconnect":
                raise gone()
            part = message.get("body", b"")
            if len(data) + len(part) > limit:
                raise too_large(limit)
            self._jobs.reserve(len(part))
            self.size += len(part)
            data += part
            if not message.get("more_body"):
                self._begin = math.inf  # it has kept the pace, however long it is waited for from here on
                return bytes(data)


class Arrivals:
    """All uploads that are on their way or being decoded. Of too many, the slowest gives way to a new one."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._arriving: list[Arrival] = []

    def begin(self) -> Arrival:
        """A new one; raises Full if there is no room."""
        self._jobs.reserve(0)
        if len(self._arriving) >= self._jobs.limits.arriving:
            slowest = max(self._arriving, key=lambda one: one.behind(1))
            if slowest.behind(1) <= 0:
                raise Full
            slowest.displaced = True
            self.end(slowest)
        self._arriving.append(Arrival(self._jobs))
        return self._arriving[-1]

    def end(self, arrival: Arrival) -> None:
        """It has arrived, or is given up."""
        if arrival in self._arriving:
            self._arriving.remove(arrival)


def gone() -> Refused:
    """The client has left."""
    return Refused(400, "gone", "the picture did not arrive", Connection="close")


def too_large(limit: int) -> Refused:
    """The file is larger than the limit."""
    # the connection is closed, else the rest of the body would have to be read before the next request
    message = f"this picture is too large: a file may have {limit / 1e6:g} MB"
    return Refused(413, "too_large", message, Connection="close")
