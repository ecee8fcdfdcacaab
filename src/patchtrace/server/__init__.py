"""A page on this machine: drop a picture, see what of the collection it resembles.

The work on a query is one object (``work.py``); everything else knows uploads, queues and browsers, and no method.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import FrameType

import uvicorn

from patchtrace.errors import PatchtraceError
from patchtrace.images import contained
from patchtrace.server.app import create_app
from patchtrace.server.connections import HEAD, Connection, bound_logs
from patchtrace.server.jobs import Jobs, Limits, Work
from patchtrace.server.security import Access
from patchtrace.server.work import QueryWork
from patchtrace.viewer.data import Answer

__all__ = ["Access", "Answer", "Jobs", "Limits", "LocalServer", "QueryWork", "Work", "create_app"]


class LocalServer:
    """The page and its API on an address of this machine. The port is taken at once, ``run`` then serves.

    Parameters
    ----------
    work : Work
        What is done with a picture: a :class:`QueryWork`, or anything with the same two methods.
    host, port : str and int, default "127.0.0.1" and 0
        Where to listen; port 0 is any free port.
    facts : list of (str, str), default none
        About the collection, shown on the page.
    limits : Limits, optional
        How much is taken in and kept.

    Raises
    ------
    PatchtraceError
        If the port is taken.
    """

    def __init__(
        self,
        work: Work,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        facts: Sequence[tuple[str, str]] = (),
        limits: Limits | None = None,
    ) -> None:
        if not contained.CONTAINED:
            raise PatchtraceError(
                "the page decodes uploads in processes with limits of time and memory, which works on Linux and macOS "
                "only: use `patchtrace attribute --report`"
            )
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=64)
        except OSError as error:
            raise PatchtraceError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
        self.access = Access(host, self._socket.getsockname()[1])
        limits = limits or Limits()
        self.jobs = Jobs(work, replace(limits, connections=min(limits.connections, _most_files() // 2)))
        config = uvicorn.Config(
            create_app(self.jobs, self.access, facts),
            http=partial(Connection, limits=self.jobs.limits),  # type: ignore[arg-type]  # called as a class would be
            backlog=64,
            ws="none",
            loop="asyncio",
            lifespan="on",
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(HEAD),
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(config, self.jobs)

    @property
    def link(self) -> str:
        """The address with the secret that lets a browser in."""
        return self.access.link

    def open_browser(self) -> None:
        """Show the page, if there is a browser. The port is open already, so the order does not matter."""
        link = self.access.one_time_link()
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()

    def run(self) -> None:
        """Serve until Ctrl-C, a signal to terminate, or until ``stop`` is called."""
        bound_logs()
        with contextlib.suppress(KeyboardInterrupt), self._socket:
            self._server.run(sockets=[self._socket])

    @property
    def working(self) -> bool:
        """Whether a query is still being worked on: work that takes long to notice that it was stopped."""
        return self.jobs.working

    def stop(self) -> None:
        self._server.should_exit = True


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, jobs: Jobs) -> None:
        super().__init__(config)
        self._jobs = jobs

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # streams and uploads end when the queue closes; uvicorn would wait for them first and close the queue after
        self._jobs.close(timeout=0)
        self._jobs.work.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # uvicorn would raise the signal again at the end, and the process would die of it
        self.force_exit = self.should_exit
        self.should_exit = True


def _most_files() -> int:
    """How many files, and so connections, this process may have open."""
    try:
        import resource
    except ImportError:  # Windows
        return 512
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return soft if soft != resource.RLIM_INFINITY else 65_536
