"""The API, described for programs (OpenAPI 3.1)."""

from __future__ import annotations

from typing import Any

from patchtrace.server.jobs import Limits

Schema = dict[str, Any]

#: What can go wrong, by status.
ERRORS = {
    400: "The request is damaged.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another origin.",
    404: "There is no such thing, or no longer.",
    408: "The picture did not arrive in time.",
    409: "The query is not done.",
    413: "The picture is too large.",
    415: "The body is not sent as a picture.",
    421: "The server does not answer to the name in the Host header.",
    422: "The picture cannot be read; the message says why.",
    429: "No room now; Retry-After says when to try again.",
    503: "The server is being stopped.",
}

ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"$ref": "#/components/schemas/Reason"}},
}
REASON: Schema = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
}
QUERY: Schema = {
    "type": "object",
    "required": [
        *("id", "name", "state", "position", "done", "total"),
        *("remark", "stopping", "seconds", "created", "error", "thumbnail"),
    ],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string", "description": "The name that was given, as a label."},
        "state": {"enum": ["waiting", "running", "done", "failed", "cancelled"]},
        "position": {
            "type": ["integer", "null"],
            "minimum": 1,
            "description": "Place in the queue, of one that waits.",
        },
        "done": {"type": "integer", "minimum": 0},
        "total": {"type": "integer", "minimum": 0, "description": "0 where it is not known; it may grow."},
        "remark": {"type": "string", "description": "How settled the list is, in words."},
        "stopping": {"type": "boolean", "description": "Whether it was cancelled and has not ended yet."},
        "seconds": {"type": "number", "minimum": 0, "description": "Time that it has been running."},
        "created": {"type": "number", "description": "Seconds since 1970."},
        "error": {"oneOf": [{"$ref": "#/components/schemas/Reason"}, {"type": "null"}]},
        "thumbnail": {"type": "string", "description": "Path of a small picture of the query."},
    },
}

OF_QUERY: Schema = {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
NUMBER: Schema = {"name": "n", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 0}}


def _answer(description: str, kind: str, schema: Schema) -> Schema:
    return {"description": description, "content": {kind: {"schema": schema}}}


def _operation(name: str, summary: str, answers: dict[int, Schema], *errors: int, **more: Any) -> Schema:
    """One operation; every one can be refused at the door."""
    wrong = {
        str(status): _answer(ERRORS[status], "application/json", {"$ref": "#/components/schemas/Error"})
        for status in sorted({401, 403, 421, *errors})
    }
    good = {str(status): answer for status, answer in answers.items()}
    return {"operationId": name, "summary": summary, "responses": good | wrong, **more}


def describe(limits: Limits) -> Schema:
    """The description, with the limits of this server in it."""
    one = {"$ref": "#/components/schemas/Query"}
    state = _answer("The state of the query.", "application/json", one)
    listed = {"type": "object", "required": ["queries"], "properties": {"queries": {"type": "array", "items": one}}}
    anything: Schema = {"type": "object"}
    binary: Schema = {"schema": {"type": "string", "contentMediaType": "application/octet-stream"}}
    posted = _operation(
        "submit",
        "Submit a picture. It lies in memory only, and waits for its turn.",
        {202: {**state, "headers": {"Location": {"schema": {"type": "string"}}}}},
        *(400, 408, 413, 415, 422, 429, 503),
        parameters=[
            {
                "name": "name",
                "in": "query",
                "required": False,
                "schema": {"type": "string"},
                "description": "What to call it. A label only: control characters are removed, long names are cut.",
            }
        ],
        requestBody={
            "required": True,
            "description": f"The image file itself: at most {limits.upload} bytes and {limits.pixels} pixels.",
            "content": dict.fromkeys(("application/octet-stream", "image/png", "image/jpeg"), binary),
        },
    )
    watched = _operation(
        "watch",
        "Server-sent events named state, each with the query as data, until its state is final.",
        {200: _answer("The stream.", "text/event-stream", {})},
        *(404, 429),
    )
    removed = _operation(
        "remove",
        "Cancel a query that waits or runs; remove one that is finished.",
        {200: state, 204: {"description": "It was finished, and is removed."}},
        404,
    )
    found = _answer("The data of the viewer.", "application/json", anything)
    parts = _answer("The evidence of one image.", "application/json", anything)
    picture = _answer("The picture.", "image/png", {"type": "string", "contentMediaType": "image/png"})
    picture["content"]["image/jpeg"] = {"schema": {"type": "string", "contentMediaType": "image/jpeg"}}
    paths: Schema = {
        "/api/queries": {
            "get": _operation(
                "list", "All queries that are kept, the newest first.", {200: _answer("", "application/json", listed)}
            ),
            "post": posted,
        },
        "/api/queries/{id}": {
            "parameters": [OF_QUERY],
            "get": _operation("get", "The state of a query.", {200: state}, 404),
            "delete": removed,
        },
        "/api/queries/{id}/events": {"parameters": [OF_QUERY], "get": watched},
        "/api/queries/{id}/view": {
            "parameters": [OF_QUERY],
            "get": _operation("view", "What was found.", {200: found}, 404, 409),
        },
        "/api/queries/{id}/evidence/{n}": {
            "parameters": [OF_QUERY, NUMBER],
            "get": _operation("evidence", "The evidence of image n of the view.", {200: parts}, 404, 409),
        },
        "/api/pictures/{id}": {
            "parameters": [OF_QUERY],
            "get": _operation("picture", "A picture that a view or a query names.", {200: picture}, 404),
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "patchtrace", "version": "1", "description": "Which images does a picture resemble?"},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Query": QUERY, "Reason": REASON, "Error": ERROR},
        },
    }
