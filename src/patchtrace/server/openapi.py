"""The API, described for programs (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any, get_args

from patchtrace.server.jobs import Limits, State

Schema = dict[str, Any]

#: What can go wrong, by status.
ERRORS = {
    400: "The request is damaged.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another origin.",
    404: "There is no such thing, or no longer.",
    408: "The picture did not arrive in time.",
    409: "The query has no answer yet; evidence is there when it is done.",
    411: "The length of the picture is not said.",
    413: "The picture is too large.",
    415: "The body is not sent as a picture.",
    421: "The server does not answer to the name in the Host header.",
    422: "The picture cannot be read; the message says why.",
    429: "No room now; Retry-After says when to try again.",
    503: "The server is being stopped, or has too many requests at once.",
}

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}


def _object(**properties: Schema) -> Schema:
    """An object that has all of these properties."""
    return {"type": "object", "required": list(properties), "properties": properties}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


SCHEMAS: Schema = {
    "Error": _object(error=_ref("Reason")),
    "Reason": _object(code=TEXT, message=TEXT),
    "Query": _object(
        id=TEXT,
        name=TEXT | {"description": "The name that was given, as a label."},
        state={"enum": list(get_args(State))},
        position={"type": ["integer", "null"], "minimum": 1, "description": "Place in the queue, of one that waits."},
        done=COUNT,
        total=COUNT | {"description": "0 where it is not known; it may grow."},
        remark=TEXT | {"description": "How settled the list is, in words."},
        stopping={"type": "boolean", "description": "Whether it was cancelled and has not ended yet."},
        seconds={"type": "number", "minimum": 0, "description": "Time that it has been running."},
        created={"type": "number", "description": "Seconds since 1970."},
        answers=COUNT | {"description": "Answers so far; each takes the place of the one before."},
        error={"oneOf": [_ref("Reason"), {"type": "null"}]},
        thumbnail=TEXT | {"description": "Path of a small picture of the query."},
    ),
}


def _parameter(name: str, place: str, schema: Schema, **more: Any) -> Schema:
    return {"name": name, "in": place, "required": place == "path", "schema": schema, **more}


def _answer(description: str, *kinds: str, schema: Schema | None = None) -> Schema:
    """An answer of these media types; without a schema it is binary."""
    content = {kind: {"schema": TEXT | {"contentMediaType": kind} if schema is None else schema} for kind in kinds}
    return {"description": description, "content": content}


def _json(description: str, schema: Schema) -> Schema:
    return _answer(description, "application/json", schema=schema)


def _operation(name: str, summary: str, answers: dict[int, Schema], *errors: int, **more: Any) -> Schema:
    """One operation; every one can be refused at the door."""
    wrong = {str(status): _json(ERRORS[status], _ref("Error")) for status in sorted({401, 403, 421, 503, *errors})}
    good = {str(status): answer for status, answer in answers.items()}
    return {"operationId": name, "summary": summary, "responses": good | wrong, **more}


def describe(limits: Limits) -> Schema:
    """The description, with the limits of this server in it."""
    state = _json("The state of the query.", _ref("Query"))
    listed = _json("", _object(queries={"type": "array", "items": _ref("Query")}))
    found, parts = (
        _json(description, {"type": "object"})
        for description in (
            "The data of the viewer; pending is null in the end.",
            "The evidence of one image.",
        )
    )
    picture = _answer("The picture.", "image/png", "image/jpeg")
    stream = _answer("The stream.", "text/event-stream", schema={})
    named = "What to call it. A label only: control characters are removed, long names are cut."
    binary: Schema = {"schema": TEXT | {"contentMediaType": "application/octet-stream"}}
    posted = _operation(
        "submit",
        "Submit a picture. It lies in memory only, and waits for its turn.",
        {202: {**state, "headers": {"Location": {"schema": TEXT}}}},
        *(400, 408, 411, 413, 415, 422, 429),
        parameters=[_parameter("name", "query", TEXT, description=named)],
        requestBody={
            "required": True,
            "description": f"The image file itself: at most {limits.upload} bytes and {limits.pixels} pixels.",
            "content": dict.fromkeys(("application/octet-stream", "image/png", "image/jpeg"), binary),
        },
    )
    watched = "Server-sent events named state, each with the query as data, until its state is final."
    removed = "Cancel a query that waits or runs; remove one that is finished."
    ended = {"description": "It was finished, and is removed."}
    one = [_parameter("id", "path", TEXT | {"minLength": 1})]
    paths: Schema = {
        "/api/queries": {
            "get": _operation("list", "All queries that are kept, the newest first.", {200: listed}),
            "post": posted,
        },
        "/api/queries/{id}": {
            "parameters": one,
            "get": _operation("get", "The state of a query.", {200: state}, 404),
            "delete": _operation("remove", removed, {200: state, 204: ended}, 404),
        },
        "/api/queries/{id}/events": {"parameters": one, "get": _operation("watch", watched, {200: stream}, 404, 429)},
        "/api/queries/{id}/view": {
            "parameters": one,
            "get": _operation("view", "What was found, or what is known so far.", {200: found}, 404, 409),
        },
        "/api/queries/{id}/evidence/{n}": {
            "parameters": [*one, _parameter("n", "path", COUNT)],
            "get": _operation("evidence", "The evidence of image n of the view.", {200: parts}, 404, 409),
        },
        "/api/pictures/{id}": {
            "parameters": one,
            "get": _operation("picture", "A picture that a view or a query names.", {200: picture}, 404),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "patchtrace", "version": "1", "description": "Which images does a picture resemble?"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}, "schemas": SCHEMAS},
    }
