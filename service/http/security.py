"""Who may use the service: one layer of plain ASGI in front of everything, WebSockets too.

* `Host` must name this service, or a foreign web page could reach it through its own DNS name.
* `Origin`, where sent, must be ours, or a foreign page could use the visitor's cookie.
* The bearer token opens everything; a browser has a session instead (`login.py`).
* A body is read here, up to the limit, before anything else sees it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.authorities import Authorities, address_of
from service.http.login import (
    BEARER_WANTED,
    HINT,
    LOGIN,
    Login,
    client_host,
    login_page,
    secrets_equal,
    wants_page,
)
from service.http.problems import Problem, refuse
from service.http.settings import Settings

OPEN_PATHS = frozenset({"/livez", "/readyz"})
LOGIN_ASSETS = frozenset({f"/static/{name}" for name in ("style.css", "login.css", "icon.svg")})
"""The files that the login page loads."""
OWN_AGENT = "rtagent/"
"""Beginning of the User-Agent of our own commands."""
SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; "
     b"frame-ancestors 'none'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    # With "no-referrer" a browser would send the login form from an origin of "null".
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


@dataclass(frozen=True)
class SecurityHeaders:
    """Adds headers to every answer that forbid the browser to load or to embed anything foreign."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *SECURITY_HEADERS]
            await send(message)

        await self.app(scope, receive, wrapped)


class SecurityMiddleware:
    """Checks every request before the application sees it."""

    def __init__(self, app: ASGIApp, settings: Settings, login: Login) -> None:
        self._app = app
        self._settings = settings
        self._login = login
        self._authorities = Authorities(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(headers)
            self._check_origin(headers)
            if scope["path"] == LOGIN:
                receive = await _with_body_read(headers, receive, self._settings)
            answer = await self._login.answer(scope, headers, receive)
            if answer is not None:
                await answer(scope, receive, send)
                return
            state = scope.setdefault("state", {})
            session_is_open = self._check_credentials(scope, headers)
            state["by_session"] = session_is_open is not None
            state["admitted"] = session_is_open or _always
            if scope["type"] == "http":
                receive = await _with_body_read(headers, receive, self._settings)
        except Problem as problem:
            if problem.status in (401, 429) and wants_page(scope, headers):
                await login_page(problem)(scope, receive, send)
                return
            if scope["type"] == "websocket":
                await receive()
            await refuse(problem, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, headers: Headers) -> None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._authorities.host_is_ours(hosts[0]):
            raise Problem(
                421, "the Host header does not name this service; service.allowed_hosts in the "
                "configuration allows further names", kind="foreign-host",
            )

    def _check_origin(self, headers: Headers) -> None:
        foreign = any(
            not self._authorities.origin_is_ours(origin) for origin in headers.getlist("origin")
        )
        cross_site = headers.get("sec-fetch-site") == "cross-site"
        if foreign or (cross_site and self._login.names_a_session(headers)):
            raise Problem(403, "requests from other sites are refused", kind="foreign-origin")

    def _check_credentials(self, scope: Scope, headers: Headers) -> Callable[[], bool] | None:
        """Refuse a request that needs the token or a session, and has neither.

        Returns:
            Tells whether the session of the request is still open. None if it does not use one.
        """
        if scope["type"] == "http" and scope["path"] in OPEN_PATHS | LOGIN_ASSETS:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        # Another scheme's credentials are for a proxy before us.
        if scheme.lower() == "bearer":
            if not secrets_equal(token.strip(), self._settings.token):
                raise self._login.failure(scope, "that token is wrong")
            return None
        session_is_open = self._login.session_check(headers)
        if not session_is_open():
            raise Problem(
                401, f"a token is needed: {HINT}", kind="unauthorized", headers=BEARER_WANTED
            )
        return session_is_open


def _always() -> bool:
    """The token is valid as long as the daemon runs."""
    return True


async def _with_body_read(headers: Headers, receive: Receive, settings: Settings) -> Receive:
    """Read the body, which must be short and come soon; returns a `receive` that repeats it."""
    limit, patience_s = settings.max_body_bytes, settings.patience_s
    declared = headers.get("content-length")
    if declared is None and "transfer-encoding" not in headers:
        return receive
    if declared is not None and declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(patience_s):
            messages = [await _whole_body(receive, limit)]
    except TimeoutError:
        raise Problem(
            408, f"the body was not complete after {patience_s:g} s", kind="too-slow",
            headers={"connection": "close"},
        ) from None

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


async def _whole_body(receive: Receive, limit: int) -> Message:
    """The whole body as one message; or the message that the client has disconnected."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return message
        body += message.get("body", b"")
        if len(body) > limit:
            raise _too_large(limit)
        if not message.get("more_body", False):
            return {"type": "http.request", "body": body, "more_body": False}


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is longer than {limit} bytes", kind="too-large")


async def asker(connection: HTTPConnection) -> str:
    """The program that sent a request, for the events; with its address if that is not ours."""
    program = "http"
    if connection.state.by_session:
        program = "dashboard"
    elif connection.headers.get("user-agent", "").startswith(OWN_AGENT):
        program = "rtagent set"
    host = client_host(connection.scope)
    address = address_of(host)
    ours = not host or (address is not None and address.is_loopback)
    return program if ours else f"{program} from {host}"
