"""What the calls share: the backend, the login, and results that are made once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from anyio import to_thread
from fastapi import Depends
from starlette.requests import HTTPConnection

from rtagent.telemetry.figures.declaration import as_json, from_json
from rtagent.telemetry.figures.document import Stats
from rtagent.telemetry.verdicts import verdicts
from service.daemon.backend import Backend
from service.daemon.commands import BackendBusy
from service.daemon.encoding import json_bytes
from service.daemon.png import png_bytes
from service.http.fresh import Fresh, PerVersion
from service.http.login import Login
from service.http.places import Places
from service.http.problems import Problem
from service.http.security import asker

MAX_AGE_S = 0.045
"""Just under the period of the fastest stream, 20 events per second."""
PICTURE_AGE_S = 0.03
"""Just under the period of the fastest screen, 30 pictures per second."""
TIMELINES_KEPT = 8
MOST_OPEN = 64
"""Most event streams and sockets, counted together."""
CHANGE_WAIT_S = 5.0
DISK_CALLS, DISK_WAIT_S = 8, 2.0
"""Calls that may wait for the disk at once, and how long a further one waits for its turn. All
calls share 40 threads, of which a disk that hangs must not have all."""

T = TypeVar("T")


class Context:
    """Shared by all calls of one application.

    Attributes:
        checkpointing: held while a checkpoint is being written.
        stopping: set when the service is about to stop, so that open streams end.
    """

    def __init__(self, backend: Backend, login: Login) -> None:
        self.backend = backend
        self.login = login
        self.stats_json = Fresh(self._stats, MAX_AGE_S)
        self.status_json = PerVersion(backend.status_version, lambda: json_bytes(backend.status()))
        self.screen_png = Fresh(self._picture, PICTURE_AGE_S)
        # One for each length in seconds.
        self.timeline_json = lru_cache(TIMELINES_KEPT)(self._fresh_timeline)
        self.places = Places(MOST_OPEN)
        self._changing = asyncio.Lock()
        self._disk = asyncio.Semaphore(DISK_CALLS)
        self.checkpointing = asyncio.Lock()
        self.stopping = asyncio.Event()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Hold a lock from reading the settings until the change is in force.

        So of two writers with the same ETag the second sees what the first has changed.

        Raises:
            BackendBusy: another change is still under way.
        """
        try:
            await asyncio.wait_for(self._changing.acquire(), CHANGE_WAIT_S)
        except TimeoutError:
            raise BackendBusy("another change is still under way; nothing was changed") from None
        try:
            yield
        finally:
            self._changing.release()

    async def command(self, name: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
        """Do `Backend.command` in a thread, which a service that stops does not wait for."""
        return await to_thread.run_sync(
            self.backend.command, name, arguments, by, abandon_on_cancel=True
        )

    async def from_disk(self, read: Callable[[], T]) -> T:
        """The result of a function that reads files, in a thread.

        Raises:
            Problem: the disk has not answered earlier calls.
        """
        try:
            await asyncio.wait_for(self._disk.acquire(), DISK_WAIT_S)
        except TimeoutError:
            raise Problem(
                503, "the disk does not answer; come back later", kind="disk-hangs",
                headers={"retry-after": "5"},
            ) from None
        try:
            return await to_thread.run_sync(read)
        finally:
            self._disk.release()

    def _fresh_timeline(self, seconds: float) -> Fresh[bytes]:
        return Fresh(lambda: json_bytes(self.backend.timeline(seconds)), MAX_AGE_S)

    def _stats(self) -> bytes:
        stats = self.backend.stats()
        found = verdicts(from_json(Stats, stats), self.backend.status())
        return json_bytes({**stats, "verdicts": as_json(found)})

    def _picture(self) -> bytes | None:
        picture = self.backend.screen()
        return None if picture is None else png_bytes(picture)


async def _context_of(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


async def _admitted(connection: HTTPConnection) -> Callable[[], bool]:
    admitted: Callable[[], bool] = connection.state.admitted
    return admitted


AppContext = Annotated[Context, Depends(_context_of)]
"""A parameter of a call: the application's context."""
Asker = Annotated[str, Depends(asker)]
"""A parameter of a call: the program that sent the request, for the events."""
Admitted = Annotated[Callable[[], bool], Depends(_admitted)]
"""A parameter of a call that stays open: tells whether the client's session has not ended."""
