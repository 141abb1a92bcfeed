"""How a browser logs in and out: with the address that is printed, or with a form.

The address contains a one-time code (`sessions.py`); the form takes the token or a code. Either
opens a session, whose name is stored in a cookie: the token itself is never stored in the browser.
Browsers send a cookie to every port of the host, so this one is of use only to this daemon, for a
week at most, and until the session is ended.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import Message, Receive, Scope

from service.http.attempts import Attempts
from service.http.html import page
from service.http.problems import Problem, not_possible
from service.http.sessions import SESSION_S, Sessions
from service.http.settings import Settings

LOGIN, LOGOUT = "/login", "/logout"
METHODS = {LOGIN: ("GET", "HEAD", "POST"), LOGOUT: ("POST",)}
HINT = (
    "open an address that `rtagent login` prints, or send the token of <state-dir>/token as "
    "`Authorization: Bearer`"
)
DISK_S = 2.0
"""How long a login waits for the disk; a session that is not written ends with the service."""
NO_STORE = {"cache-control": "no-store"}
BEARER_WANTED = {"www-authenticate": "Bearer"}
MESSAGES = {
    "wrong-token": "This token or code is wrong, or the code has been used or has expired.",
    "too-many": "Too many logins have failed. Try again in a minute.",
}
PAGE = page("Log in", "login.css", "login", """\
<main class="panel">
<h1>rtagent</h1>
$message
<p>Run this command on the machine of the daemon:</p>
<pre>rtagent login</pre>
<p>It prints an address that opens the dashboard once, within ten minutes. If the daemon was started
with <code>--state-dir</code>, add the same option.</p>
<p>Or enter the token, which is in the file <code>token</code> of the state directory:</p>
<form method="post" action="/login">
<label for="secret">Token, or the address that was printed</label>
<input id="secret" name="secret" type="password" autocomplete="off" required autofocus>
<button>Log in</button>
</form>
</main>""")

OPENED = page("Logged in", "login.css", "login", """\
<main class="panel">
<p><a href="/">Open the dashboard</a></p>
</main>""").substitute()


def cookie_name(host: str) -> str:
    """The cookie's name at a `Host`.

    Ports share cookies. The port in the name tells two daemons apart: that of the browser, for
    behind a proxy or ssh both may have the same.
    """
    return f"rtagent_session_{host.rpartition(']')[2].partition(':')[2]}"


def login_page(problem: Problem | None = None) -> Response:
    """The page that says how to log in, with the message of a problem if there is one."""
    if problem is None:
        return HTMLResponse(PAGE.substitute(message=""), headers=NO_STORE)
    said = MESSAGES.get(problem.kind or "", "")
    alert = f'<p class="wrong" role="alert">{said}</p>' if said else ""
    return HTMLResponse(PAGE.substitute(message=alert), problem.status, NO_STORE | problem.headers)


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether a browser will show the answer as a page."""
    asked = scope["type"] == "http" and scope["method"] in ("GET", "HEAD", "POST")
    return asked and "text/html" in headers.get("accept", "")


class Login:
    """Opens and ends sessions of this daemon."""

    def __init__(self, settings: Settings, sessions: Sessions, attempts: Attempts) -> None:
        self._settings = settings
        self._sessions = sessions
        self._attempts = attempts
        self._unsaved = False
        self._saving: asyncio.Task[None] | None = None

    def names_a_session(self, headers: Headers) -> bool:
        """Whether a request has our cookie. Other servers of this host have cookies, too."""
        return bool(self._session_of(headers))

    def session_check(self, headers: Headers) -> Callable[[], bool]:
        """A function that tells whether the session of a request is still open."""
        return partial(self._sessions.knows, self._session_of(headers))

    def failure(self, scope: Scope, reason: str) -> Problem:
        """Count a failed login of the request's client; the problem to answer it with."""
        wait_s = self._attempts.failed(client_host(scope))
        if wait_s:
            return Problem(
                429, "too many logins have failed; come back later", kind="too-many",
                headers={"retry-after": str(int(wait_s) + 1)},
            )
        return Problem(401, f"{reason}: {HINT}", kind="wrong-token", headers=BEARER_WANTED)

    async def answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """The answer to a request that logs in or out; None if the request is another one.

        Args:
            receive: gives the whole body in one message.

        Raises:
            Problem: the token or the code is wrong, or the method is.
        """
        if scope["type"] != "http":
            return None
        method, path = scope["method"], scope["path"]
        if (method, path) == ("GET", "/"):
            codes = parse_qs(scope["query_string"].decode("latin-1")).get("code")
            return None if codes is None else await self._enter(codes[0], scope, headers)
        if method not in METHODS.get(path, (method,)):
            raise not_possible(method, path, METHODS[path])
        if path == LOGIN:
            if method != "POST":
                return login_page()
            return await self._enter(_secret(await receive()), scope, headers)
        if path == LOGOUT:
            if self._sessions.end(self._session_of(headers)):
                await self._save()
            response = RedirectResponse(LOGIN, 303, NO_STORE)
            response.delete_cookie(cookie_name(headers["host"]), httponly=True, samesite="strict")
            return response
        return None

    async def new_address(self) -> str:
        """A new address that opens a session once."""
        code = self._sessions.new_code()
        await self._save()
        return self._settings.login_url(code)

    async def end_all(self) -> int:
        """End every session; returns how many there were."""
        ended = self._sessions.end_all()
        await self._save()
        return ended

    async def _save(self) -> None:
        """Have the sessions written; waits for the disk for `DISK_S` at most."""
        self._unsaved = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._write())
        await asyncio.wait({self._saving}, timeout=DISK_S)

    async def _write(self) -> None:
        """Write until the file is up to date; one write at a time, so the newest comes last."""
        while self._unsaved:
            self._unsaved = False
            # Sessions that cannot be written end with this process.
            with suppress(OSError):
                await to_thread.run_sync(
                    self._sessions.write, self._sessions.content(), abandon_on_cancel=True
                )

    async def _enter(self, secret: str, scope: Scope, headers: Headers) -> Response:
        if not (secrets_equal(secret, self._settings.token) or self._sessions.redeem(secret)):
            if scope["method"] == "GET" and self.session_check(headers)():
                # An address is printed, so it is opened again out of a terminal or a history.
                return RedirectResponse("/", 303, NO_STORE)
            raise self.failure(scope, "a wrong token or code, or the code was used or has expired")
        session = self._sessions.new_session()
        await self._save()
        response = _to_dashboard(scope, headers)
        response.set_cookie(
            cookie_name(headers["host"]), session, max_age=int(SESSION_S), httponly=True,
            samesite="strict", secure=by_tls(scope),
        )
        return response

    def _session_of(self, headers: Headers) -> str:
        return cookie_parser(headers.get("cookie", "")).get(cookie_name(headers["host"]), "")


def _to_dashboard(scope: Scope, headers: Headers) -> Response:
    """The answer to a login: it leads to the dashboard."""
    # Browsers name the site of the link that was followed only to servers that they trust.
    foreign = headers.get("sec-fetch-site", "cross-site") == "cross-site"
    if foreign and scope["method"] == "GET" and wants_page(scope, headers):
        # After a link on another site, a browser sends no strict cookie to where it is redirected,
        # but does to where a page of ours leads.
        return HTMLResponse(OPENED, headers=NO_STORE | {"refresh": "0; url=/"})
    return RedirectResponse("/", 303, NO_STORE)


def by_tls(scope: Scope) -> bool:
    """Whether a request came by TLS, to us or to a proxy."""
    # Set by a proxy that terminates TLS. A client that forges it only loses its own cookie.
    proxied = Headers(scope=scope).get("x-forwarded-proto", "").strip().lower() == "https"
    return proxied or scope["scheme"] == "https"


def client_host(scope: Scope) -> str:
    """The address of a request's client; empty if the server does not know it."""
    return str((scope.get("client") or ("",))[0])


def secrets_equal(given: str, expected: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _secret(body: Message) -> str:
    """The token or code in a form; of a whole address its code."""
    fields = parse_qs(bytes(body.get("body", b"")).decode("latin-1"))
    return fields.get("secret", [""])[0].strip().rpartition("code=")[2]
