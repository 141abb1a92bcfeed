"""How a browser logs in and out: by the address that is printed, or by a form.

The address carries a one-time code (`sessions.py`), the form takes the token or a code. Either buys
a session, whose name is a cookie: the token itself never reaches the browser's store. The cookie
goes to every port of the host, for browsers know no better, so what it says is of use for a week at
most, here alone, and until somebody ends it.
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
from service.http.problems import Problem
from service.http.sessions import SESSION_S, Sessions
from service.http.settings import Settings

LOGIN, LOGOUT = "/login", "/logout"
HINT = (
    "open an address that `rtagent login` prints, or send the token of <state-dir>/token as "
    "`Authorization: Bearer`"
)
DISK_S = 2.0
"""How long a login waits for the disk; after that it is good until the service ends."""
NO_STORE = {"cache-control": "no-store"}
SAID = {
    "wrong-token": "That opens nothing, or nothing any more.",
    "too-many": "Too many logins have failed. Try again in a minute.",
}
PAGE = page("Log in", "login.css", "login", """\
<main class="panel">
<h1>rtagent</h1>
$said
<p>On the machine that the daemon runs on,</p>
<pre>rtagent login</pre>
<p>prints an address that opens the dashboard once, within ten minutes (with
<code>--state-dir</code>, if the daemon has one of its own).</p>
<p>Or enter the token, which is in the file <code>token</code> of the state directory:</p>
<form method="post" action="/login">
<label for="secret">Token, or the code of an address</label>
<input id="secret" name="secret" type="password" autocomplete="off" required autofocus>
<button>Log in</button>
</form>
</main>""")


def cookie_name(settings: Settings) -> str:
    """The cookie's name. Cookies know no ports, so the name keeps two daemons apart."""
    return f"rtagent_session_{settings.port}"


def wrong(detail: str, wait_s: float) -> Problem:
    """What a failed login is answered; the client should wait for `wait_s` seconds, if not 0."""
    if wait_s:
        return Problem(
            429, "too many logins have failed; come back later", kind="too-many",
            headers={"retry-after": str(int(wait_s) + 1)},
        )
    return Problem(401, detail, kind="wrong-token", headers={"www-authenticate": "Bearer"})


def login_page(problem: Problem | None = None) -> Response:
    """The page that says how to log in, because of a problem or because it was asked for."""
    if problem is None:
        return HTMLResponse(PAGE.substitute(said=""), headers=NO_STORE)
    said = SAID.get(problem.kind or "", "")
    alert = f'<p class="wrong" role="alert">{said}</p>' if said else ""
    return HTMLResponse(PAGE.substitute(said=alert), problem.status, NO_STORE | problem.headers)


def wants_page(scope: Scope, headers: Headers) -> bool:
    """Whether a person looks at the answer."""
    asked = scope["type"] == "http" and scope["method"] in ("GET", "POST")
    return asked and "text/html" in headers.get("accept", "")


class Login:
    """Opens and ends sessions of this daemon."""

    def __init__(self, settings: Settings, sessions: Sessions, attempts: Attempts) -> None:
        self._settings = settings
        self._sessions = sessions
        self._attempts = attempts
        self._cookie = cookie_name(settings)
        self._unsaved = False
        self._saving: asyncio.Task[None] | None = None

    def has_session(self, headers: Headers) -> bool:
        """Whether the request comes from a session."""
        return self._sessions.knows(self._session_of(headers))

    def watch(self, headers: Headers) -> Callable[[], bool]:
        """Tells whether the session that a request comes from has not ended."""
        return partial(self._sessions.knows, self._session_of(headers))

    async def answer(self, scope: Scope, headers: Headers, receive: Receive) -> Response | None:
        """The answer to a request, of a short body, that logs in or out; None if it is another.

        Raises:
            Problem: what was shown opens nothing.
        """
        if scope["type"] != "http":
            return None
        call = scope["method"], scope["path"]
        if call == ("GET", "/"):
            codes = parse_qs(scope["query_string"].decode("latin-1")).get("code")
            return None if codes is None else await self._enter(codes[0], scope, headers)
        if call == ("GET", LOGIN):
            return login_page()
        if call == ("POST", LOGIN):
            return await self._enter(_secret(await receive()), scope, headers)
        if call == ("POST", LOGOUT):
            if self._sessions.end(self._session_of(headers)):
                await self._save()
            response = RedirectResponse(LOGIN, 303, NO_STORE)
            response.delete_cookie(self._cookie, httponly=True, samesite="strict")
            return response
        return None

    async def new_address(self) -> str:
        """An address that opens a session once."""
        code = self._sessions.new_code()
        await self._save()
        return self._settings.login_url(code)

    async def end_all(self) -> int:
        """End every session; how many there were."""
        ended = self._sessions.end_all()
        await self._save()
        return ended

    async def _save(self) -> None:
        """Have the sessions outlive the service; the disk may make us wait, but not for long."""
        self._unsaved = True
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._write())
        await asyncio.wait({self._saving}, timeout=DISK_S)

    async def _write(self) -> None:
        """Write one content after the other, so that none replaces a newer one."""
        while self._unsaved:
            self._unsaved = False
            # If they cannot be written, they are good as long as this process is.
            with suppress(OSError):
                await to_thread.run_sync(
                    self._sessions.write, self._sessions.content(), abandon_on_cancel=True
                )

    async def _enter(self, secret: str, scope: Scope, headers: Headers) -> Response:
        if not (same(secret, self._settings.token) or self._sessions.redeem(secret)):
            wait_s = self._attempts.failed((scope.get("client") or ("",))[0])
            raise wrong(f"that opens nothing, or nothing any more: {HINT}", wait_s)
        session = self._sessions.new_session()
        await self._save()
        response = RedirectResponse("/", 303, NO_STORE)
        # A proxy that speaks TLS for us says so; who makes it up keeps the cookie from himself.
        proxied = headers.get("x-forwarded-proto", "").strip().lower() == "https"
        response.set_cookie(
            self._cookie, session, max_age=int(SESSION_S), httponly=True, samesite="strict",
            secure=proxied or scope["scheme"] == "https",
        )
        return response

    def _session_of(self, headers: Headers) -> str:
        return cookie_parser(headers.get("cookie", "")).get(self._cookie, "")


def same(given: str, expected: str) -> bool:
    """Whether two secrets are the same; takes as long if they are not."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _secret(body: Message) -> str:
    """What the form holds; of a whole address its code."""
    fields = parse_qs(bytes(body.get("body", b"")).decode("latin-1"))
    return fields.get("secret", [""])[0].strip().rpartition("code=")[2]
