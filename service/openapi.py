"""The OpenAPI document: what FastAPI finds out by itself, plus figures, problems and the token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from service.figures import FIGURES, INFERENCE_WORKER, REGRET_TEXT, REGRETS, Figure
from service.problems import MEDIA_TYPE

PROBLEM_RESPONSE: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "A problem (RFC 9457): the cause and what to do.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}
STATS_SCHEMA = {"$ref": "#/components/schemas/Stats"}

_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "about:blank, or a URN that names the kind."},
        "title": {"type": "string", "description": "The status in words."},
        "status": {"type": "integer", "description": "The HTTP status."},
        "detail": {"type": "string", "description": "The cause and what to do, one sentence."},
        "errors": {
            "type": "array",
            "description": "The fields that were refused.",
            "items": {
                "type": "object",
                "properties": {
                    "field": {"type": "string", "description": "The field, dotted."},
                    "in": {"type": "string", "description": "body, query, header or path."},
                    "value": {"description": "The value that was refused."},
                    "reason": {"type": "string", "description": "Why."},
                },
            },
        },
    },
}
_REGRET = {
    "type": "object",
    "description": REGRET_TEXT,
    "properties": {
        "value": {"type": ["number", "null"], "description": "The regret; null: unknown."},
        "kind": {"type": ["string", "null"], "description": "measured, estimate or bound."},
        "unit": {"type": ["string", "null"], "description": "The value's unit."},
    },
}


def install(app: FastAPI) -> None:
    """Make `/openapi.json` complete."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {}).update(Problem=_PROBLEM, Stats=_stats())
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "The daemon's token."}
    }
    document["security"] = [{"token": []}]
    for path in ("/livez", "/readyz"):
        document["paths"][path]["get"]["security"] = []
    return document


def _stats() -> dict[str, Any]:
    schema = _tree(FIGURES)
    schema["description"] = "Every figure. One that is not known is null, never 0."
    inference = schema["properties"]["inference"]["properties"]
    inference["workers"] = {
        "type": "array", "description": "One entry per inference process.",
        "items": _tree(INFERENCE_WORKER),
    }
    schema["properties"]["learning"]["properties"]["workers"] = {
        "type": "array", "description": "One entry per learner.", "items": {"type": "object"},
    }
    schema["properties"]["regret"] = {
        "type": "object", "properties": dict.fromkeys(REGRETS, _REGRET),
    }
    return schema


def _tree(figures: Iterable[Figure]) -> dict[str, Any]:
    """Dotted paths as nested object schemas."""
    root: dict[str, Any] = {"type": "object", "properties": {}}
    for figure in figures:
        *parents, name = figure.path.split(".")
        place = root
        for parent in parents:
            place = place["properties"].setdefault(parent, {"type": "object", "properties": {}})
        kinds = ["number", "null"] if figure.metric else ["string", "number", "null"]
        place["properties"][name] = {"type": kinds, "description": figure.text}
    return root
