"""What the calls share: the daemon, and what is made once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

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
from service.http.fresh import Fresh, FreshByKey, PerVersion
from service.http.login import Login
from service.http.places import Places
from service.http.security import asker

MAX_AGE_S = 0.045
"""Just under the period of the fastest stream, 20 events per second."""
PICTURE_AGE_S = 0.03
"""Just under the period of the fastest screen, 30 pictures per second."""
TIMELINES_KEPT = 8
MOST_OPEN = 64
"""Event streams and sockets together."""
CHANGE_WAIT_S = 5.0


class Context:
    """Shared by all calls of one application.

    Attributes:
        changing: held from reading the settings until what was changed is in force, so that of
            two writers with the same ETag the second sees what the first has done.
        checkpointing: held while a checkpoint is being written.
        stopping: set when the service is about to stop, so that open streams end.
    """

    def __init__(self, backend: Backend, login: Login) -> None:
        self.backend = backend
        self.login = login
        self.stats_json = Fresh(self._stats, MAX_AGE_S)
        self.status_json = PerVersion(backend.status_version, lambda: json_bytes(backend.status()))
        self.screen_png = Fresh(self._picture, PICTURE_AGE_S)
        self.timelines: FreshByKey[float, bytes] = FreshByKey(
            lambda seconds: json_bytes(backend.timeline(seconds)), MAX_AGE_S, TIMELINES_KEPT
        )
        self.places = Places(MOST_OPEN)
        self.changing = asyncio.Lock()
        self.checkpointing = asyncio.Lock()
        self.stopping = asyncio.Event()

    async def begin_change(self) -> None:
        """Take `changing`; whoever has it gives it back.

        Raises:
            BackendBusy: another change is still under way.
        """
        try:
            await asyncio.wait_for(self.changing.acquire(), CHANGE_WAIT_S)
        except TimeoutError:
            raise BackendBusy("another change is still under way; nothing was changed") from None

    async def command(self, name: str, arguments: dict[str, Any], by: str) -> dict[str, Any]:
        """As `Backend.command`."""
        # A service that stops does not wait for it.
        return await to_thread.run_sync(
            self.backend.command, name, arguments, by, abandon_on_cancel=True
        )

    def _stats(self) -> bytes:
        stats = self.backend.stats()
        found = verdicts(from_json(Stats, stats), self.backend.status())
        return json_bytes({**stats, "verdicts": as_json(found)})

    def _picture(self) -> bytes | None:
        picture = self.backend.screen()
        return None if picture is None else png_bytes(picture)


async def _of_application(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


async def _asker(connection: HTTPConnection) -> str:
    return asker(connection)


async def _admitted(connection: HTTPConnection) -> Callable[[], bool]:
    admitted: Callable[[], bool] = connection.state.admitted
    return admitted


Here = Annotated[Context, Depends(_of_application)]
"""The context as a parameter of a call."""
Asker = Annotated[str, Depends(_asker)]
"""Who asks, for the events, as a parameter of a call."""
Admitted = Annotated[Callable[[], bool], Depends(_admitted)]
"""Whether who asked still may, for what stays open, as a parameter of a call."""
