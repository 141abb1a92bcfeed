"""The OpenAPI document: what FastAPI finds out itself, with figures, problems and the token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import Field

from rtagent.telemetry.figures.declaration import Entry, entries, example, fields_of, text_of
from rtagent.telemetry.figures.document import Answer
from service.http.problems import MEDIA_TYPE

PROBLEM = {"$ref": "#/components/schemas/Problem"}
STATS_SCHEMA = {"$ref": "#/components/schemas/Stats"}
REASONS = {
    400: "The body is not valid JSON.",
    401: "The token is missing or wrong.",
    403: "The request comes from a foreign site.",
    404: "It does not exist.",
    408: "The body did not come in time.",
    409: "The daemon refuses this, or fails to do it; no setting has changed. The detail says why.",
    412: "The settings are no longer those of `If-Match`; nothing has changed.",
    413: "The body is too long.",
    415: "The body does not call itself JSON.",
    421: "The Host header does not name this service.",
    422: "A value is out of its bounds, or unknown; the errors name each.",
    426: "This is a WebSocket.",
    429: "Too many logins have failed from this address.",
    500: "The service failed; its log says why.",
    503: "The daemon cannot do this at present; if it ended meanwhile (`supervisor-gone`), it is "
    "not known whether this was done.",
    504: "Sent to the daemon, but not in force in time; it may still come into force "
    "(`not-in-force`). Or another change is still under way, or the daemon does not answer, and "
    "nothing was sent (`no-answer`).",
}
TAGS = {
    "status": "The state of the daemon and of its processes.",
    "figures": "What is measured, and what the agent sees.",
    "settings": "What can be changed while it runs. A merge patch is answered when it is in force.",
    "checkpoints": "Checkpoints that there are, and writing one.",
    "events": "What happened in this run.",
    "logins": "Sessions of browsers.",
    "health": "For programs that watch over the service.",
}


def _schema(description: str, *examples: Any, **schema: Any) -> dict[str, Any]:
    return {"description": description, **({"examples": [*examples]} if examples else {}), **schema}


_PROBLEM = _schema(
    "What is wrong (RFC 9457): the cause, and what to do.", type="object",
    required=["type", "title", "status", "detail"],
    properties={
        "type": _schema("about:blank, or a URN that names the kind.", "urn:rtagent:problem:refused",
                       type="string", pattern="^(about:blank|urn:rtagent:problem:[a-z-]+)$"),
        "title": _schema("The status in words.", "Conflict", type="string"),
        "status": _schema("The HTTP status.", 409, type="integer", minimum=400, maximum=599),
        "detail": _schema("The cause and what to do, one sentence.",
                         "no learner runs that could write a checkpoint",
                         type="string", minLength=1),
        "errors": _schema("The fields that were refused.", type="array", items={
            "type": "object",
            "required": ["field", "in", "reason"],
            "properties": {
                "field": _schema("The field, dotted.", "processes", type="string"),
                "in": _schema("Where it stands: body, query, header or path.", "body",
                             type="string", enum=["body", "query", "header", "path"]),
                "value": _schema("The value that was refused; absent if none was sent.", 0),
                "reason": _schema("Why.", "must be greater than or equal to 1", type="string"),
            },
        }),
    },
)
_JSON_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def described(text: str, example: Any, default: Any = ..., **bounds: Any) -> Any:
    """A field of a body: its meaning, an example, and its default if it may be left out."""
    return Field(default, description=text, examples=[example], **bounds)


def content(media_type: str, description: str, schema: dict[str, Any]) -> dict[int | str, Any]:
    """The answer of a call that has no model."""
    return {200: {"description": description, "content": {media_type: {"schema": schema}}}}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of a call for the problems that it may answer with."""
    return {status: _problem_response(REASONS[status]) for status in statuses}


def _problem_response(reason: str) -> dict[str, Any]:
    return {"description": reason, "content": {MEDIA_TYPE: {"schema": PROBLEM}}}


PROBLEM_RESPONSE: dict[int | str, dict[str, Any]] = {
    **problems(401, 403, 421, 422, 500),
    "default": _problem_response("Any other problem (RFC 9457): the cause and what to do."),
}
"""Responses of every call that needs the token."""


def install(app: FastAPI) -> None:
    """Make `/openapi.json` complete."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes,
        tags=[{"name": name, "description": text} for name, text in TAGS.items()],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for schema in schemas.values():
        # A field of the configuration has no example, but a default, which serves as one.
        for name, field in schema.get("properties", {}).items():
            if "$ref" not in field and name not in schema.get("required", ()):
                field.setdefault("examples", [field.get("default")])
    schemas.update(Problem=_PROBLEM, Stats=_stats())
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "The daemon's token."}
    }
    document["security"] = [{"token": []}]
    for path in ("/livez", "/readyz"):
        document["paths"][path]["get"]["security"] = []
    return document


def _stats() -> dict[str, Any]:
    known = {each.path: each for each in entries(Answer)}
    return {**_section(Answer, known), "examples": [example(Answer)]}


def _section(section: type[Any], known: Mapping[str, Entry], path: str = "") -> dict[str, Any]:
    """The object schema of a section; `known` has its figures by path, `path` ends with a dot."""
    properties = {}
    for each in fields_of(section):
        place = f"{path}{each.name}"
        if each.section is None:
            properties[each.name] = _figure(known[place])
        elif each.many or place in known:
            inner = _section(each.section, {found.path: found for found in entries(each.section)})
            if each.many:
                inner = {"type": "array", "description": inner["description"], "items": inner}
            if place in known:
                inner["description"] = known[place].figure.meaning
            properties[each.name] = inner
        else:
            inner = _section(each.section, known, f"{place}.")
            if each.optional and not each.absent:
                inner["type"] = ["object", "null"]
            properties[each.name] = inner
    return {"type": "object", "description": text_of(section), "properties": properties}


def _figure(entry: Entry) -> dict[str, Any]:
    """The schema of a figure."""
    figure, kind = entry.figure, _JSON_TYPES[entry.field.type]
    schema: dict[str, Any] = {
        "type": [kind, "null"] if entry.field.optional else kind,
        "description": f"{figure.meaning} Null: {figure.none}." if figure.none else figure.meaning,
        "examples": [figure.example],
        "x-kind": figure.kind,
    }
    if figure.unit:
        schema["x-unit"] = figure.unit
    if figure.kind == "counter":
        schema["minimum"] = 0
    return schema
