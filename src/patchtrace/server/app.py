"""The pages and the API. Everything here is behind the guard of security.py."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import jinja2
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from patchtrace.errors import PatchtraceError
from patchtrace.images.decode import Unreadable
from patchtrace.server.arrivals import Arrivals, gone, too_large
from patchtrace.server.jobs import LONGEST_REASON, Full, Job, Jobs, label
from patchtrace.server.openapi import describe
from patchtrace.server.security import Access, Guard, Refused, error
from patchtrace.server.upload import Upload
from patchtrace.viewer.data import media_type
from patchtrace.viewer.report import asset, joined_script

#: Files that a page may load, by how their names end.
STATIC = {".js": "text/javascript", ".css": "text/css"}
#: Seconds: between looks at a job that is watched, between signs of life.
LOOK, HEARTBEAT = 0.1, 10.0

NOT_FOUND = "there is no such query: it was removed, or is too old to be kept"


def create_app(jobs: Jobs, access: Access, facts: Sequence[tuple[str, str]] = ()) -> Guard:
    """The application for a queue of queries; ``facts`` about the collection are shown on the page."""
    site = _Site(jobs, facts)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        jobs.start()
        try:
            yield
        finally:
            await run_in_threadpool(jobs.close)

    site_itself = Starlette(
        routes=[
            Route("/", site.page),
            Route("/static/{name}", site.static),
            Route("/openapi.json", site.openapi),
            _route("/api/queries", GET=site.queries, POST=site.submit),
            _route("/api/queries/{id}", GET=site.query, DELETE=site.remove),
            Route("/api/queries/{id}/events", site.events),
            Route("/api/queries/{id}/view", site.view),
            Route("/api/queries/{id}/evidence/{number}", site.evidence),
            Route("/api/pictures/{id}", site.picture),
        ],
        exception_handlers={Full: site.full, Unreadable: _unreadable, HTTPException: _refused, Exception: _fault},
        lifespan=lifespan,
    )
    # around all of it, not as a middleware: those do not see the answer to a fault
    return Guard(site_itself, access)


def _route(path: str, **endpoints: Callable[[Request], Awaitable[Response]]) -> Route:
    """One route for all methods of a path. With a route for each, a 405 would name the methods of the first only."""

    async def endpoint(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, endpoint, methods=list(endpoints))


class _Site:
    def __init__(self, jobs: Jobs, facts: Sequence[tuple[str, str]]) -> None:
        self.jobs = jobs
        self._streams = 0
        self._arrivals = Arrivals(jobs)
        self._decoding = asyncio.Semaphore(1)  # decoded pictures are large: one at a time
        # read once, so that no name from a request ever becomes a path
        self._static = _static_files()
        template = resources.files("patchtrace.server").joinpath("page.html.j2").read_text(encoding="utf-8")
        page = jinja2.Environment(autoescape=True).from_string(template)
        shown = page.render(facts=facts, viewer="viewer.js" in self._static, limit=jobs.limits.upload)
        self._page = shown.encode("utf-8", "backslashreplace")  # names of files need not be text

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._page)

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._static:
            raise Refused(404, "not_found", "there is no such file")
        content, kind = self._static[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    async def openapi(self, _: Request) -> Response:
        return JSONResponse(describe(self.jobs.limits))

    # -- queries ----------------------------------------------------------------------------------------

    async def submit(self, request: Request) -> Response:
        """Accept a picture: not more of it than the limit, and only if the queue has room."""
        limit = self.jobs.limits.upload
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/octet-stream" and not kind.startswith("image/"):
            message = "send the picture itself, as application/octet-stream or image/..."
            raise Refused(415, "wrong_type", message, Connection="close")
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and (len(declared) > 20 or int(declared) > limit):
            raise too_large(limit)
        arrival = self._arrivals.begin()
        try:
            data = await arrival.body(request, limit)
            name = label(request.query_params.get("name", "")) or "picture"
            async with self._decoding:
                self.jobs.reserve(0)  # raises if others have taken the last place in the meantime
                if await request.is_disconnected():
                    raise gone()
                upload = await run_in_threadpool(self._read, name, data)
            job = self.jobs.submit(upload, request.state.client, arrival.size)
        except BaseException:
            self.jobs.release(arrival.size)
            raise
        finally:
            self._arrivals.end(arrival)
        return JSONResponse(self.jobs.status(job), 202, {"Location": f"/api/queries/{job.id}"})

    def _read(self, name: str, data: bytes) -> Upload:
        try:
            return self.jobs.work.read(name, data, self.jobs.limits)
        except (Unreadable, PatchtraceError):
            if self.jobs.closing:  # it was interrupted, and says nothing of the picture
                raise Full from None
            raise

    async def full(self, _: Request, __: Exception) -> Response:
        if self.jobs.closing:
            return error(503, "closing", "the server is being stopped", {"Connection": "close"})
        headers = {"Retry-After": "5", "Connection": "close"}
        return error(429, "queue_full", "the queue is full: try again in a moment", headers)

    async def queries(self, _: Request) -> Response:
        return JSONResponse({"queries": self.jobs.statuses()})

    async def query(self, request: Request) -> Response:
        return JSONResponse(self.jobs.status(self._job(request)))

    async def remove(self, request: Request) -> Response:
        job = self._job(request)
        if self.jobs.cancel(job):
            return Response(status_code=204)
        return JSONResponse(self.jobs.status(job))

    async def events(self, request: Request) -> Response:
        job = self._job(request)
        if self._streams >= self.jobs.limits.streams:
            raise Refused(429, "too_many_watchers", "too many pages watch already: close one", Retry_After="5")
        return StreamingResponse(self._watch(job), media_type="text/event-stream")

    async def _watch(self, job: Job) -> AsyncIterator[str]:
        """The state whenever it changes, until it is final. A client that reconnects gets the state again."""
        self._streams += 1
        try:
            last: dict[str, Any] = {}
            quiet = 0.0
            while not self.jobs.closing:
                status = self.jobs.status(job)
                if {**status, "seconds": 0} != last:
                    last, quiet = {**status, "seconds": 0}, 0.0
                    yield f"event: state\ndata: {json.dumps(status)}\n\n"
                elif quiet >= HEARTBEAT:
                    quiet = 0.0
                    yield ": still here\n\n"
                if job.finished:
                    return
                await asyncio.sleep(LOOK)
                quiet += LOOK
        finally:
            self._streams -= 1

    async def view(self, request: Request) -> Response:
        job = self._job(request)
        if not job.view:
            raise _too_early(job)
        return Response(job.view, media_type="application/json")

    async def evidence(self, request: Request) -> Response:
        parts, number = self._done(request).evidence, request.path_params["number"]
        # isdecimal alone would let other scripts' digits and numbers of any length through
        if not (number.isascii() and number.isdecimal() and len(number) < 6 and int(number) < len(parts)):
            raise Refused(404, "not_found", "there is no such evidence")
        return Response(parts[int(number)], media_type="application/json")

    async def picture(self, request: Request) -> Response:
        data = self.jobs.picture(request.path_params["id"])
        if data is None:
            raise Refused(404, "not_found", "there is no such picture")
        return Response(data, media_type=media_type(data))

    def _job(self, request: Request) -> Job:
        job = self.jobs.get(request.path_params["id"])
        if job is None:
            raise Refused(404, "not_found", NOT_FOUND)
        return job

    def _done(self, request: Request) -> Job:
        job = self._job(request)
        if job.state != "done":
            raise _too_early(job)
        return job


def _too_early(job: Job) -> Refused:
    return Refused(409, "not_done", f"this query is {job.state}: its first answer has no evidence, the last one has")


def _static_files() -> dict[str, tuple[bytes, str]]:
    """Scripts and styles of the viewer and of the page, which shares the viewer's words."""
    own = resources.files("patchtrace.server")
    texts = {
        "viewer.js": asset("viewer.js"),
        "viewer.css": asset("viewer.css"),
        "page.js": joined_script(asset("js/text.js"), own.joinpath("page.js").read_text("utf-8")),
        "page.css": own.joinpath("page.css").read_text("utf-8"),
    }
    return {name: (text.encode(), STATIC[name[name.rfind(".") :]]) for name, text in texts.items()}


def _unreadable(_: Request, reason: Exception) -> Response:
    return error(422, "unreadable", label(f"this picture cannot be read: {reason}", LONGEST_REASON))


def _refused(_: Request, reason: Exception) -> Response:
    assert isinstance(reason, HTTPException)
    known = {404: "not_found", 405: "wrong_method"}.get(reason.status_code, "bad_request")
    return error(reason.status_code, getattr(reason, "code", known), reason.detail, reason.headers)


def _fault(_: Request, __: Exception) -> Response:
    return error(500, "internal", "something went wrong inside; the terminal says more")
