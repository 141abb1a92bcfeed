"""JSON responses that no cache keeps."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from service.daemon.encoding import json_bytes


def json_answer(value: Any, status: int = 200) -> Response:
    """A value as JSON; NaN and infinity become null."""
    return raw_json_answer(json_bytes(value), status)


def raw_json_answer(body: bytes, status: int = 200) -> Response:
    """A JSON document that is already encoded."""
    return Response(
        body, status, media_type="application/json", headers={"cache-control": "no-store"}
    )
