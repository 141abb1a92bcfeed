"""The service process: one uvicorn server on a socket that the supervisor has bound.

Why it is correct. `http/binding.py` listens before anything is started, so a port in use is
noticed at once, and a service that is restarted takes the same socket over: clients that connect
meanwhile wait in its backlog. The heartbeat is stamped from inside the event loop: a loop that
hangs stops beating. On a stop the open streams are ended first, since the server waits for them.
Connections that send nothing do not keep others out: see `http/connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from rtagent.clock import NANO, Clock, MonotonicClock
from rtagent.files.certificate import tls_context
from rtagent.logs.printable import printable
from rtagent.memory.world import World, WorldHandles
from rtagent.processes.pipe import Pipe
from rtagent.processes.scheduling import prefer_service
from rtagent.processes.worker import OUT_OF_MEMORY, say_last, start_life
from service.app import create_app
from service.daemon.backend import Backend
from service.http.connections import (
    RESERVED_DESCRIPTORS,
    Connections,
    RequestTracking,
    descriptor_limit,
)
from service.http.listening import Listener
from service.http.protocol import Protocol
from service.http.rate_limited_log import RateLimitedLog
from service.http.settings import Settings
from service.routes.context import Context

BEAT_SECONDS = 0.1
GRACE_SECONDS = 2


def run(handles: WorldHandles, pipe: Pipe, settings: Settings, sock: socket.socket) -> None:
    """The whole life of the service process, on a socket of `http/binding.py`."""
    start_life("service", OUT_OF_MEMORY["service"])
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: terminated.append(number))
    try:
        world = World(handles)
        if world.config.run.realtime != "off":
            prefer_service()
        record, clock = world.metrics.service, MonotonicClock()
        record.pid, record.ready = os.getpid(), 0

        def beat() -> None:
            record.heartbeat_ns = int(clock.now() * NANO)
            if not record.ready:
                # The first beat comes before the first request, so no other thread uses the pipe.
                record.ready = 1
                pipe.send(("ready", {}))

        def should_stop() -> bool:
            return bool(terminated) or world.control.desired.stop

        serve(sock, Backend(world, pipe), settings, should_stop, beat)
    except BaseException as error:
        os._exit(say_last(pipe, error))
    os._exit(0)


def serve(
    sock: socket.socket, backend: Backend, settings: Settings, should_stop: Callable[[], bool],
    beat: Callable[[], None]
) -> None:
    """Serve until `should_stop`; occupies the calling thread.

    Args:
        sock: of `http/binding.py`; closed at the end.
        settings: of the service; `port` is the socket's.
        should_stop: called every `BEAT_SECONDS`.
        beat: called every `BEAT_SECONDS`.
    """
    clock = MonotonicClock()
    # The process may have few descriptors, and needs some for other things than connections.
    most = max(2, min(settings.most_connections, descriptor_limit() - RESERVED_DESCRIPTORS))
    connections = Connections(most, min(most, settings.most_per_address), settings.patience_s)
    app = create_app(backend, settings)
    context: Context = app.state.context
    # uvicorn's messages are of no use to the user; `ProblemMiddleware` logs failed requests.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        RequestTracking(app, connections, clock),
        # The other parser, httptools, does not limit the length of a head.
        http=Protocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws_max_size=settings.max_body_bytes,
        # Pictures are compressed already.
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )

    def beat_and_tidy() -> None:
        beat()
        connections.end_silent(clock.now())

    tls = tls_context(settings.certificate, settings.private_key)
    server = _Server(config, connections, tls, clock)
    asyncio.run(_serve(server, sock, context.stopping, should_stop, beat_and_tidy))


class _Server(uvicorn.Server):
    """A server that leaves signals to its process, and accepts through `Listener`."""

    def __init__(
        self, config: uvicorn.Config, connections: Connections, tls: ssl.SSLContext | None,
        clock: Clock
    ) -> None:
        super().__init__(config)
        self._connections = connections
        self._tls = tls
        self._clock = clock

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept on the sockets."""
        log = RateLimitedLog(logging.getLogger(__name__).warning, self._clock)
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: log(_described(context))
        )
        listeners: list[Any] = [
            Listener(sock, self._protocol, self._connections, self._tls, self._clock, log)
            for sock in sockets or ()
        ]
        self.servers = listeners
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def _described(context: dict[str, Any]) -> str:
    """What the event loop reports to its exception handler, in one line."""
    error = context.get("exception")
    reason = "" if error is None else f": {type(error).__name__}: {error}"
    return printable(f"{context.get('message', 'event loop')}{reason}")


async def _serve(
    server: uvicorn.Server, sock: socket.socket, stopping: asyncio.Event,
    should_stop: Callable[[], bool], beat: Callable[[], None]
) -> None:
    async def watch() -> None:
        try:
            while not should_stop():
                beat()
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            stopping.set()
            server.should_exit = True

    watching = asyncio.create_task(watch())
    await server.serve(sockets=[sock])
    stopping.set()
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
