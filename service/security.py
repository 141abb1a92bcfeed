"""Who may talk to the service: one layer of plain ASGI in front of everything, WebSockets too.

* `Host` must name us, or a foreign web page could reach us through a DNS name of its own.
* `Origin`, where sent, must be ours, or a foreign page could use the visitor's cookie.
* The bearer token opens everything. A browser trades it at `GET /?token=` for a cookie whose value
  is derived from the token, so that the token itself stays out of the browser's store; the cookie
  of one daemon opens no other, and outlives a restart of the service.
* A body is read here, before anything else sees it, and no further than the limit.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.problems import Problem, refuse
from service.settings import WILDCARDS, Settings, bracketed

OPEN_PATHS = frozenset({"/livez", "/readyz"})
COOKIE_DAYS = 30
OWN_AGENT = "rtagent/"
"""How the User-Agent of our own commands begins."""
LOGIN_HINT = (
    "open the address that `rtagent serve` printed, or send the token of <state-dir>/token as "
    "`Authorization: Bearer`"
)
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def session_secret(token: str) -> str:
    """The cookie's value: whoever learns it cannot work out the token."""
    return hmac.new(token.encode(), b"rtagent session", hashlib.sha256).hexdigest()


def cookie_name(settings: Settings) -> str:
    """The cookie's name. Cookies know no ports, so the name keeps two daemons apart."""
    return f"rtagent_session_{settings.port}"


class SecurityHeaders:
    """Tells the browser, on every answer, to load and to reveal nothing beyond this service."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def wrapped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = CONTENT_SECURITY_POLICY
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "no-referrer"
                headers["cross-origin-resource-policy"] = "same-origin"
            await send(message)

        await self._app(scope, receive, wrapped)


class SecurityMiddleware:
    """Checks every request before the application sees it.

    Args:
        app: the application.
        settings: token, own address, limits.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._secret = session_secret(settings.token)
        self._cookie = cookie_name(settings)
        self._names = _own_authorities(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check_host(scope, headers)
            self._check_origin(headers)
            login = self._login(scope)
            if login is not None:
                await login(scope, receive, send)
                return
            cookie = self._check_credentials(scope, headers)
            scope.setdefault("state", {})["by"] = _asker(headers, scope, cookie=cookie)
            if scope["type"] == "http":
                receive = await _bounded(headers, receive, self._settings.max_body_bytes)
        except Problem as problem:
            if scope["type"] == "websocket":
                await receive()
            await refuse(problem, scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        hosts = headers.getlist("host")
        scheme = "https" if scope["scheme"] in ("https", "wss") else "http"
        if len(hosts) != 1 or not self._is_ours(hosts[0], scheme):
            raise Problem(421, "this service is not reached under that Host", kind="foreign-host")

    def _check_origin(self, headers: Headers) -> None:
        for origin in headers.getlist("origin"):
            scheme, separator, authority = origin.partition("://")
            if not separator or not self._is_ours(authority, scheme):
                raise Problem(403, "requests from other sites are refused", kind="foreign-origin")
        if headers.get("sec-fetch-site") == "cross-site" and "cookie" in headers:
            raise Problem(403, "requests from other sites are refused", kind="foreign-origin")

    def _is_ours(self, authority: str, scheme: str) -> bool:
        match = _AUTHORITY.fullmatch(authority)
        if match is None or scheme not in _DEFAULT_PORTS:
            return False
        host = match["host"].lower()
        port = int(match["port"] or _DEFAULT_PORTS[scheme])
        if f"{host}:{port}" in self._names:
            return True
        # Bound to every interface we do not know our addresses. An address, unlike a name, cannot
        # be pointed at us by somebody else's DNS.
        return (
            self._settings.host in WILDCARDS
            and port == self._settings.port
            and _is_address(host.strip("[]"))
        )

    def _login(self, scope: Scope) -> Response | None:
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token")
        if given is None:
            return None
        if not _same(given[0], self._settings.token):
            raise _unauthorized(f"that token is wrong: {LOGIN_HINT}")
        response = RedirectResponse("/", 303, {"cache-control": "no-store"})
        response.set_cookie(
            self._cookie,
            self._secret,
            max_age=COOKIE_DAYS * 86_400,
            httponly=True,
            samesite="strict",
            secure=scope["scheme"] == "https",
        )
        return response

    def _check_credentials(self, scope: Scope, headers: Headers) -> bool:
        """Whether it was the cookie that opened."""
        if scope["type"] == "http" and scope["path"] in OPEN_PATHS:
            return False
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() != "bearer" or not _same(token.strip(), self._settings.token):
                raise _unauthorized(f"that token is wrong: {LOGIN_HINT}")
            return False
        cookie = cookie_parser(headers.get("cookie", "")).get(self._cookie, "")
        if not _same(cookie, self._secret):
            raise _unauthorized(f"a token is needed: {LOGIN_HINT}")
        return True


def _own_authorities(settings: Settings) -> frozenset[str]:
    names = {"127.0.0.1", "localhost", "[::1]"}
    if settings.host in WILDCARDS:
        names.add(socket.gethostname().lower())
    else:
        names.add(bracketed(settings.host).lower())
    own = {f"{name}:{settings.port}" for name in names}
    for name in settings.allowed_hosts:
        match = _AUTHORITY.fullmatch(name)
        if match is not None:
            own.add(f"{match['host'].lower()}:{match['port'] or settings.port}")
    return frozenset(own)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    """Whether a client's address is this machine's; an IPv4 one may come written as IPv6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(), expected.encode())


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, kind="unauthorized", headers={"www-authenticate": "Bearer"})


async def _bounded(headers: Headers, receive: Receive, limit: int) -> Receive:
    """Read the body, at most `limit` bytes, and give back a `receive` that plays it again."""
    declared = headers.get("content-length")
    if declared is None and "transfer-encoding" not in headers:
        return receive
    too_large = Problem(413, f"the body is longer than {limit} bytes", kind="too-large")
    if declared is not None and declared.isdecimal() and int(declared) > limit:
        raise too_large
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            break
        body += message.get("body", b"")
        if len(body) > limit:
            raise too_large
        if not message.get("more_body", False):
            break
    played: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    if message["type"] != "http.request":
        played = [message]

    async def replay() -> Message:
        return played.pop() if played else await receive()

    return replay


def _asker(headers: Headers, scope: Scope, *, cookie: bool) -> str:
    """Who asks, for the events: the program, and its address if it is another machine's."""
    program = "http"
    if cookie:
        program = "dashboard"
    elif headers.get("user-agent", "").startswith(OWN_AGENT):
        program = "rtagent set"
    address = (scope.get("client") or ("",))[0]
    return f"{program} from {address}" if address and not _is_loopback(address) else program
