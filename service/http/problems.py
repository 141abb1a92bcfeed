"""Every error as RFC 9457 `application/problem+json`.

The details of an internal error are logged here and never sent to the client.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from rtagent.config_sources import plain
from rtagent.errors import UserError
from rtagent.logs.printable import printable
from service.daemon.commands import BackendBusy, BackendGone, BackendLate
from service.daemon.encoding import json_bytes

MEDIA_TYPE = "application/problem+json"
_PHRASES = {int(status): status.phrase for status in HTTPStatus}
_LONGEST_VALUE = 80
_LARGEST_NUMBER = 1e15
"""Larger numbers, infinity and NaN are repeated as text: JSON or its reader may not take them."""
TRY_AGAIN_LATER, POLICY_VIOLATION = 1013, 1008
"""Codes (RFC 6455) for closing a socket where the server cannot answer the upgrade."""
STOPPING = "the daemon is stopping; it is not known whether this was done"
_log = logging.getLogger(__name__)


class Problem(Exception):
    """An answer that says what is wrong.

    Args:
        status: HTTP status.
        detail: one sentence for a person: the cause, and what to do.
        kind: last part of the problem's type. If None, the type is `about:blank`: the status says
            everything.
        headers: further response headers.
        members: further members of the problem document.
    """

    def __init__(
        self, status: int, detail: str, *, kind: str | None = None,
        headers: Mapping[str, str] | None = None, **members: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.kind = kind
        self.headers = dict(headers or {})
        self.members = members

    def response(self) -> Response:
        """The response to send."""
        document = {
            "type": f"urn:rtagent:problem:{self.kind}" if self.kind else "about:blank",
            "title": _PHRASES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }
        headers = {"cache-control": "no-store", **self.headers}
        return Response(json_bytes(document), self.status, headers, MEDIA_TYPE)


EXPECTED = (Problem, UserError, BackendBusy)
"""Exceptions of a call that are answered with a problem of their own."""


@dataclass(frozen=True)
class ProblemMiddleware:
    """Outside everything that can fail: an unexpected exception becomes a bare 500.

    A request that the service no longer waits for when it stops is answered, too.
    """

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except asyncio.CancelledError:
            if not started:
                await refuse(as_problem(BackendGone(STOPPING)), scope, receive, send)
            raise
        except Exception:
            path = printable(scope["path"])
            _log.exception("%s %s failed", scope.get("method", "socket"), path)
            if started:
                # The answer has begun, so its status is sent; the server cuts the connection.
                raise
            problem = Problem(500, "the service failed on this request; its log says why")
            await refuse(problem, scope, receive, send)


def install(app: FastAPI) -> None:
    """Make the application answer every error as a problem, and refuse sockets with one."""
    for kind in (*EXPECTED, RequestValidationError, WebSocketRequestValidationError):
        app.add_exception_handler(kind, _answer)
    app.add_exception_handler(HTTPException, _from_http)

    @app.websocket("/{path:path}")
    async def nothing(websocket: WebSocket, path: str) -> None:
        raise Problem(404, f"there is no socket at {websocket.url.path}")


def as_problem(error: Exception) -> Problem:
    """The problem that the client is sent for an exception that a call is expected to raise."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError | WebSocketRequestValidationError):
        return _from_validation(error.errors())
    if isinstance(error, UserError):
        return Problem(409, str(error), kind="refused")
    if isinstance(error, BackendGone):
        return Problem(503, str(error), kind="supervisor-gone", headers={"retry-after": "3"})
    if isinstance(error, BackendLate):
        return Problem(504, str(error), kind="not-in-force")
    assert isinstance(error, BackendBusy)
    return Problem(504, str(error), kind="no-answer")


async def refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a socket that has not been accepted, with a problem."""
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await problem.response()(scope, receive, send)
    else:
        code = TRY_AGAIN_LATER if problem.status == 503 else POLICY_VIOLATION
        await send({"type": "websocket.close", "code": code, "reason": problem.detail})


async def _answer(connection: Any, error: Exception) -> Any:
    """Answer the error of a request or of a socket: Starlette has one handler for both."""
    problem = as_problem(error)
    if isinstance(connection, WebSocket):
        await refuse(problem, connection.scope, connection.receive, connection.send)
        return None
    return problem.response()


def _from_validation(found: Sequence[Any]) -> Problem:
    if any(item["type"] == "json_invalid" for item in found):
        return _malformed()
    errors = [_describe(item) for item in found]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem(422, _sentence(errors[0]) + more, kind="invalid-value", errors=errors)


def _malformed() -> Problem:
    return Problem(400, "the body is not valid JSON", kind="malformed")


async def _from_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        # FastAPI raises it for a body that json.loads refuses with another error than JSON's own.
        return _malformed().response()
    path = request.url.path
    if error.status_code == 405:
        # The router names the methods of only the first handler of a path.
        known = request.app.openapi()["paths"].get(path, ("get",))
        return not_possible(request.method, path, known).response()
    detail = f"there is nothing at {path}" if error.status_code == 404 else str(error.detail)
    return Problem(error.status_code, detail, headers=error.headers).response()


def not_possible(method: str, path: str, possible: Iterable[str]) -> Problem:
    """The problem of a method that a path does not have. Where GET is possible, HEAD is, too."""
    names = {name.upper() for name in possible}
    allow = ", ".join(sorted(names | {"HEAD"} if "GET" in names else names))
    return Problem(
        405, f"{method} is not possible on {path}, but {allow}", headers={"allow": allow}
    )


def _describe(item: Mapping[str, Any]) -> dict[str, Any]:
    """One validation error as field, value and reason."""
    location: Sequence[Any] = item["loc"]
    field = ".".join(str(part) for part in location[1:]) or str(location[0])
    reason = "unknown field" if item["type"] == "extra_forbidden" else plain(item["msg"])
    described: dict[str, Any] = {"field": field, "in": str(location[0]), "reason": reason}
    if item["type"] != "missing":
        described["value"] = _shown(item.get("input"))
    return described


def _sentence(error: Mapping[str, Any]) -> str:
    if "value" not in error:
        return f"{error['field']}: {error['reason']}"
    text = json.dumps(error["value"], ensure_ascii=False)
    return f"{error['field']} = {text}: {error['reason']}"


def _shown(value: Any) -> Any:
    """A refused value, shortened if it is long, to be repeated to the client."""
    if isinstance(value, int | float | None) and abs(value or 0) < _LARGEST_NUMBER:
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
