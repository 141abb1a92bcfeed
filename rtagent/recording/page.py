"""The page for play by keyboard, served to this machine's browser alone.

Why nobody else can play or watch. The socket is bound to 127.0.0.1. `Host` must name this address,
or a foreign web page could reach the server through a DNS name of its own; `Origin`, where sent,
must be this page's. The game is behind a WebSocket that requires a token, which is new each time.
The token is the fragment of the printed address, which browsers send nowhere; the page sends it as
a subprotocol, the only thing that a page can add to the handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import socket
from collections.abc import Callable, Generator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from rtagent.errors import UserError, reason_of
from rtagent.recording.session import IDLE_S, Session

HOST = "127.0.0.1"
STATIC = Path(__file__).parent / "static"
PROTOCOL = "rtagent-play"
LONGEST_MESSAGE = 1024
GRACE_SECONDS = 2
NOT_UNDERSTOOD, TAKEN_OVER = 1008, 4001
"""Codes with which a WebSocket is closed."""

_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def listen(port: int) -> socket.socket:
    """Listen on a port of the loopback interface; 0 stands for a free one.

    Raises:
        UserError: the port cannot be used.
    """
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        reason = reason_of(error)
        raise UserError(f"cannot listen on port {port}: {reason}; choose another --port") from None


def address(port: int, token: str) -> str:
    """The address that the user opens in a browser."""
    return f"http://{HOST}:{port}/#{token}"


class Guard:
    """Refuses requests for another host or port, or from another site's pages."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._authorities = {f"{name}:{port}" for name in (HOST, "localhost")}
        self._origins = {f"http://{authority}" for authority in self._authorities}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        app = self._app
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) != 1 or hosts[0] not in self._authorities:
            app = PlainTextResponse("this page is not reached under that Host\n", 421)
        elif not self._origins.issuperset(headers.getlist("origin")):
            app = PlainTextResponse("requests from other sites are refused\n", 403)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        await app(scope, receive, with_headers)


class Stage:
    """The game's WebSocket, for pages that have the token."""

    def __init__(self, session: Session, token: str) -> None:
        self._session = session
        self._token = token
        self._changed = asyncio.Event()

    def refresh(self) -> None:
        """Have the page show what has changed."""
        self._changed.set()

    async def play(self, websocket: WebSocket) -> None:
        """Play with one page until it is gone, another one takes over, or the game is over."""
        given = websocket.scope["subprotocols"]
        if len(given) != 2 or not hmac.compare_digest(given[1].encode(), self._token.encode()):
            await websocket.close()
            return
        await websocket.accept(PROTOCOL)
        page = self._session.arrive()
        tasks = [asyncio.create_task(each(websocket, page)) for each in (self._receive, self._show)]
        self.refresh()
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._session.leave(page)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        codes = [task.result() for task in done]
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.close(max(codes))

    async def _receive(self, websocket: WebSocket, page: int) -> int:
        """Receive the page's messages until the end; the code to close with."""
        while True:
            try:
                message = json.loads(await websocket.receive_text())
                if self._session.page != page:
                    return TAKEN_OVER
                self._session.handle(message)
            except WebSocketDisconnect:
                return 1000
            except (KeyError, TypeError, ValueError, RecursionError):
                return NOT_UNDERSTOOD
            self.refresh()

    async def _show(self, websocket: WebSocket, page: int) -> int:
        """Send the page what has changed until the end; the code to close with.

        Changes while the page is slow are sent together.
        """
        with contextlib.suppress(WebSocketDisconnect):
            while self._session.page == page:
                await self._changed.wait()
                if self._session.page == page:
                    self._changed.clear()
                    await websocket.send_bytes(self._session.picture())
                    # In ASCII, for the name of a file may be no UTF-8.
                    await websocket.send_text(json.dumps(self._session.shown()))
                    if self._session.finished:
                        return 1000
            return TAKEN_OVER
        return 1000


def create_app(session: Session, port: int, token: str) -> tuple[ASGIApp, Stage]:
    """The application, for a server on this port, and the WebSocket in it."""
    stage = Stage(session, token)
    page = StaticFiles(directory=STATIC, html=True)
    app = Starlette(routes=[WebSocketRoute("/play", stage.play), Mount("/", page)])
    return Guard(app, port), stage


def serve(sock: socket.socket, session: Session, token: str, wish: Callable[[], bool]) -> None:
    """Serve the page and run the game until it is finished; then close the socket.

    Args:
        sock: a socket from `listen`.
        session: the game.
        token: what a page must send to play.
        wish: asked now and then; true finishes the game.

    Raises:
        UserError: what was recorded cannot be written.
    """
    # Only uvicorn's errors are of use to the user.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    asyncio.run(_serve(sock, session, token, wish))


class _Server(uvicorn.Server):
    """A server that leaves signals to the program around it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(
    sock: socket.socket, session: Session, token: str, wish: Callable[[], bool]
) -> None:
    app, stage = create_app(session, int(sock.getsockname()[1]), token)
    server = _Server(
        uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", server_header=False,
            proxy_headers=False, ws_max_size=LONGEST_MESSAGE, ws_per_message_deflate=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        while not (session.finished or wish() or serving.done()):
            wait_s = session.run_due()
            if session.running:
                stage.refresh()
            await asyncio.sleep(wait_s)
        session.finish()
    finally:
        stage.refresh()
        # A page that is slow shows the end, too, before the server closes its connection.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while session.page and session.finished:
                    await asyncio.sleep(IDLE_S)
        server.should_exit = True
        await serving
