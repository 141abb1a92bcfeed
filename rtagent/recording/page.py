"""The page for play by keyboard, served to this machine's browser alone.

Why nobody else can play or watch. The socket is bound to 127.0.0.1. `Host` must name it, or a
foreign web page could reach us through a DNS name of its own; `Origin`, where sent, must be ours.
The game is behind a WebSocket that wants a token, made anew each time: it stands in the fragment
of the address that is printed, which browsers send nowhere, and comes as a subprotocol, the one
thing that a page may say at a handshake.
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

from rtagent.errors import UserError
from rtagent.recording.session import Session

HOST = "127.0.0.1"
STATIC = Path(__file__).parent / "static"
PROTOCOL = "rtagent-play"
LONGEST_MESSAGE = 1024
GRACE_SECONDS = 2
NOT_UNDERSTOOD, TAKEN_OVER = 1008, 4001
"""Why a WebSocket is closed."""

_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; object-src 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


def listen(port: int) -> socket.socket:
    """Take a port of the loopback interface; 0 takes a free one.

    Raises:
        UserError: it cannot be had.
    """
    try:
        return socket.create_server((HOST, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on port {port}: {reason}; choose another --port") from None


def address(port: int, token: str) -> str:
    """What a browser opens."""
    return f"http://{HOST}:{port}/#{token}"


class Guard:
    """Lets in who asks for this machine and our port, from a page of ours or from none."""

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
    """The game's WebSocket; who has the token may play."""

    def __init__(self, session: Session, token: str) -> None:
        self._session = session
        self._token = token
        self._news = asyncio.Event()

    def tell(self) -> None:
        """There is something new to show."""
        self._news.set()

    async def play(self, websocket: WebSocket) -> None:
        """Play with one page until it is gone, another one takes over, or the game is over."""
        given = websocket.scope["subprotocols"]
        if len(given) != 2 or not hmac.compare_digest(given[1].encode(), self._token.encode()):
            await websocket.close()
            return
        await websocket.accept(PROTOCOL)
        page = self._session.arrive()
        tasks = [asyncio.create_task(each(websocket, page)) for each in (self._receive, self._show)]
        self.tell()
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
        """Listen to the page; returns the code to close with."""
        while True:
            try:
                message = json.loads(await websocket.receive_text())
                if self._session.page != page:
                    return TAKEN_OVER
                self._session.hear(message)
            except WebSocketDisconnect:
                return 1000
            except (KeyError, TypeError, ValueError, RecursionError):
                return NOT_UNDERSTOOD
            self.tell()

    async def _show(self, websocket: WebSocket, page: int) -> int:
        """Show each news to the page; what comes while it is slow is left out."""
        with contextlib.suppress(WebSocketDisconnect):
            while self._session.page == page:
                await self._news.wait()
                if self._session.page == page:
                    self._news.clear()
                    await websocket.send_bytes(self._session.picture())
                    await websocket.send_json(self._session.shown())
                    if self._session.finished:
                        return 1000
            return TAKEN_OVER
        return 1000


def create_app(session: Session, port: int, token: str) -> tuple[ASGIApp, Stage]:
    """The page and its WebSocket, on our port."""
    stage = Stage(session, token)
    page = StaticFiles(directory=STATIC, html=True)
    app = Starlette(routes=[WebSocketRoute("/play", stage.play), Mount("/", page)])
    return Guard(app, port), stage


def serve(sock: socket.socket, session: Session, token: str, wish: Callable[[], bool]) -> None:
    """Serve the page on a socket from `listen` and run the game, until it is finished.

    `wish` is asked now and then whether to finish. The socket is closed at the end.

    Raises:
        UserError: what was recorded cannot be written.
    """
    # What uvicorn has to say beside defects is of no use to the user.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    asyncio.run(_serve(sock, session, token, wish))


class _Server(uvicorn.Server):
    """A server that leaves the signals to the program that it is part of."""

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
                stage.tell()
            await asyncio.sleep(wait_s)
        session.finish()
    finally:
        stage.tell()
        server.should_exit = True
        await serving
