"""Access to the server: only with its link, and only from its own pages.

A server on one's own machine is within reach of every web page that is open there. Four things keep those out: the name
that was asked for must be ours (a foreign name that points to this machine is not), a request must not come from a page
of somebody else, it must carry the secret, and no answer may be used or framed elsewhere.
"""

from __future__ import annotations

import hmac
import secrets
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: On every answer.
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
#: Name in the queue of all clients that use the secret itself.
SCRIPTS = "scripts"
#: Names of this machine for itself.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Addresses that stand for all of a machine's own: nobody asks for them by that name.
WILDCARDS = ("0.0.0.0", "::", "")  # noqa: S104

NO_ENTRY = """<!doctype html><html lang="en"><meta charset="utf-8"><title>patchtrace</title>
<h1>This page needs its link</h1><p>Open the address that <code>patchtrace serve</code> printed in the terminal:
it carries the key to this page.</p></html>"""


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error response of the API."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, dict(headers or {}))


class Refused(HTTPException):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(status, message, {name.replace("_", "-"): value for name, value in headers.items()})
        self.code = code


class Access:
    """The secret of one server, and what may be asked for under which name.

    The secret is in the link. A browser that opens the link gets a cookie instead, which the secret has signed and
    which tells browsers apart; a script sends the secret with each request.
    """

    def __init__(self, host: str, port: int) -> None:
        self.token = secrets.token_urlsafe(32)
        # cookies do not know ports: two servers on one machine must not take each other's
        self.cookie = f"patchtrace-{port}"
        self._tickets: set[str] = set()
        self._wildcard, self._port = host in WILDCARDS, port
        own = own_address(host) if self._wildcard else host.lower()
        self._hosts = {name for each in (*LOOPBACK, own) for name in self._names(each)}
        self.url = f"http://{self._names(own)[0]}/"

    def answers_to(self, name: str, local: str) -> bool:
        """Whether a request may ask for this name (a Host header) on a connection to this local address.

        Only a server on all addresses of the machine looks at the latter: the address that the client has connected to
        is ours. A foreign name that points to it is not.
        """
        return name in self._hosts or (self._wildcard and name in self._names(local))

    def _names(self, address: str) -> list[str]:
        """An address as a Host header has it."""
        shown = f"[{address}]" if ":" in address else address
        return [f"{shown}:{self._port}", *([shown] if self._port == 80 else [])]

    @property
    def link(self) -> str:
        """The address to print, with the secret."""
        return f"{self.url}?token={self.token}"

    def one_time_link(self) -> str:
        """An address that works once. To start a browser with: other users can see what programs are started with."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return f"{self.url}?token={ticket}"

    def admits(self, given: str) -> bool:
        """Whether this is the secret, or a ticket that was not used yet."""
        if _same(given, self.token):
            return True
        used = next((ticket for ticket in self._tickets if _same(given, ticket)), None)
        self._tickets.discard(used or "")
        return used is not None

    def new_cookie(self) -> str:
        client = secrets.token_urlsafe(9)
        return f"{client}.{self._signature(client)}"

    def client(self, headers: Headers) -> str | None:
        """The client that sends this request; None if it has no access."""
        authorization = headers.get("authorization")
        if authorization is not None:
            kind, _, given = authorization.partition(" ")
            return SCRIPTS if kind.lower() == "bearer" and _same(given.strip(), self.token) else None
        # not http.cookies, which gives up at the first odd cookie: other servers on this machine may have set some
        cookies = cookie_parser("; ".join(headers.getlist("cookie")))
        client, _, signature = cookies.get(self.cookie, "").partition(".")
        return client if _same(signature, self._signature(client)) else None

    def _signature(self, client: str) -> str:
        return hmac.new(self.token.encode(), client.encode(), "sha256").hexdigest()


def own_address(wildcard: str) -> str:
    """The address of this machine by which others reach it, for a server that listens on all; or localhost.

    Nothing is sent: a datagram socket that is connected only chooses its route.
    """
    family, far = (socket.AF_INET6, "2001:db8::1") if ":" in wildcard else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))  # an address that is reserved for examples
            return str(probe.getsockname()[0])
    except OSError:  # there is no network
        return "localhost"


def _same(one: str, other: str) -> bool:
    """Whether two texts are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def unknown_length(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a body comes in chunks. It is not taken: to read chunks of a byte each keeps the server busy for seconds.

    >>> unknown_length([(b"transfer-encoding", b"chunked")])
    True
    """
    return any(name == b"transfer-encoding" for name, _ in headers)


class Guard:
    """Checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self.app, self.access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._check(scope, Headers(scope=scope))
        await (self.app if refused is None else refused)(scope, receive, with_headers)

    def _check(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is refused, or that has the secret in its address; None for all others."""
        if unknown_length(scope["headers"]):
            message = "say with Content-Length how long the picture is: a body in chunks is not taken"
            return error(411, "length_required", message, {"Connection": "close"})
        asked = [host.lower() for host in headers.getlist("host")]
        local = (scope.get("server") or ("",))[0]
        if len(asked) != 1 or not self.access.answers_to(asked[0], local):
            return error(421, "wrong_host", "this server does not answer to that name", {"Connection": "close"})
        front_door = scope["path"] == "/" and scope["method"] in ("GET", "HEAD")
        if _foreign(headers, asked[0], front_door):
            return error(403, "foreign_origin", "this request comes from another page", {"Connection": "close"})
        if front_door and (given := parse_qs(scope["query_string"].decode("latin-1")).get("token")):
            return self._let_in(given[0])
        client = self.access.client(headers)
        if client is None:
            if front_door:
                return HTMLResponse(NO_ENTRY, 401)
            wanted = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            return error(401, "no_token", "the token is missing or wrong: use the link that was printed", wanted)
        scope.setdefault("state", {})["client"] = client
        return None

    def _let_in(self, given: str) -> Response:
        """Change the secret in the address for a cookie, so that it stays in no address bar and no history."""
        if not self.access.admits(given):
            return HTMLResponse(NO_ENTRY, 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.access.cookie, self.access.new_cookie(), path="/", httponly=True, samesite="strict")
        return answer


def _foreign(headers: Headers, host: str, front_door: bool) -> bool:
    """Whether a page of another origin sends this, by the headers that browsers set; scripts set none."""
    if any(origin.lower() != f"http://{host}" for origin in headers.getlist("origin")):
        return True
    # a link on another page may lead to the front door (the cookie is strict), and nothing else may come from there
    return not front_door and headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
