"""The service process: one uvicorn server on a socket that the supervisor has bound.

Why it is correct. `service.binding` listens before anything is started, so a port in use is
noticed at once, and a service that is restarted takes the same socket over: clients that connect
meanwhile wait in its backlog. The heartbeat is stamped from inside the event loop: a loop that
hangs stops beating. On a stop the open streams are told first, since the server waits for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from rtagent.clock import MonotonicClock
from rtagent.errors import UserError
from rtagent.memory.world import World, WorldHandles
from rtagent.worker import EXIT_FAILED, EXIT_USER_ERROR, start_life
from service.app import create_app
from service.backend import Backend, SharedBackend
from service.context import Context
from service.settings import Settings

BEAT_SECONDS = 0.1
GRACE_SECONDS = 2


def run(handles: WorldHandles, voice: Any, settings: Settings, sock: socket.socket) -> None:
    """The whole life of the service process.

    Args:
        handles: of the shared memory.
        voice: duplex pipe to the supervisor: what this process says, commands and their replies.
        settings: token and address.
        sock: from `service.binding.bind`.
    """
    start_life("service")
    terminated = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: terminated.set())
    try:
        world = World(handles)
        record, clock = world.board.record("service", 0), MonotonicClock()
        record["pid"], record["ready"] = os.getpid(), 0

        def beat() -> None:
            record["heartbeat_ns"][0] = int(clock.now() * 1e9)
            if not record["ready"][0]:
                # The first beat comes before the first request, so nobody else uses the pipe yet.
                record["ready"] = 1
                voice.send(("ready", {}))

        def should_stop() -> bool:
            return terminated.is_set() or world.control.orders.stop

        serve(sock, SharedBackend(world, voice), settings, should_stop, beat)
    except UserError as error:
        _end(voice, EXIT_USER_ERROR, str(error), boot=True)
    except BaseException:
        _end(voice, EXIT_FAILED, traceback.format_exc(), boot=False)
    os._exit(0)


def serve(
    sock: socket.socket,
    backend: Backend,
    settings: Settings,
    should_stop: Callable[[], bool],
    beat: Callable[[], None],
) -> None:
    """Serve until told to stop; takes the calling thread.

    Args:
        sock: from `service.binding.bind`; closed at the end.
        backend: the daemon.
        settings: token and address; `port` is the socket's.
        should_stop: asked every `BEAT_SECONDS`.
        beat: called every `BEAT_SECONDS`.
    """
    app = create_app(backend, settings)
    context: Context = app.state.context
    # What uvicorn has to say is of no use to the user; failures of a request are logged by us.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        app,
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
    asyncio.run(_serve(_Server(config), sock, context.stopping, should_stop, beat))


def _end(voice: Any, code: int, error: str, *, boot: bool) -> None:
    with contextlib.suppress(OSError):
        voice.send(("failed", {"error": error, "boot": boot}))
    os._exit(code)


class _Server(uvicorn.Server):
    """A server that leaves the signals to the process it runs in."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _serve(
    server: uvicorn.Server,
    sock: socket.socket,
    stopping: asyncio.Event,
    should_stop: Callable[[], bool],
    beat: Callable[[], None],
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
