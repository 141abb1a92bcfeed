"""What the calls share: the daemon, and what is made once for all clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Request

from service.backend import Backend
from service.commands import BackendBusy
from service.encoding import json_bytes, png_bytes
from service.fresh import Fresh

MAX_AGE_S = 0.045
"""Just under the period of the fastest stream, 20 events per second."""
CHANGE_WAIT_S = 5.0


class Context:
    """Shared by all calls of one application.

    Args:
        backend: the daemon.

    Attributes:
        backend: the daemon.
        stats_json: the figures, ready to send.
        screen_png: the picture, ready to send; None while there is no frame.
        checkpointing: held while a checkpoint is being written.
        stopping: set when the service is about to stop, so that open streams end.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.stats_json = Fresh(lambda: json_bytes(backend.stats()), MAX_AGE_S)
        self.screen_png = Fresh(self._picture, MAX_AGE_S)
        self._changing = asyncio.Lock()
        self.checkpointing = asyncio.Lock()
        self.stopping = asyncio.Event()

    @asynccontextmanager
    async def change(self) -> AsyncIterator[None]:
        """Held by the one call that reads, compares and changes something.

        Of two writers with the same ETag the second then sees what the first has done.

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

    def _picture(self) -> bytes | None:
        picture = self.backend.screen()
        return None if picture is None else png_bytes(picture)


def _of_application(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Here = Annotated[Context, Depends(_of_application)]
"""The context as a parameter of a call."""
