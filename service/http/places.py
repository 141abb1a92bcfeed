"""How many event streams and sockets, counted together, may stay open.

Why it is correct. The count changes only in the thread of the event loop, and the `with` block that
took a place gives it back, however the connection ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http.problems import Problem


class Places:
    """Places for connections that stay open; `taken` of `most` are in use."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0

    @contextmanager
    def take(self) -> Iterator[None]:
        """Hold one place.

        Raises:
            Problem: there is none left.
        """
        if self.taken >= self._most:
            raise Problem(
                503, f"{self._most} streams and sockets are open, and no more are possible; close "
                "one or come back later", kind="too-many", headers={"retry-after": "5"},
            )
        self.taken += 1
        try:
            yield
        finally:
            self.taken -= 1


class PlacedStream(StreamingResponse):
    """A stream that holds one of the places from its first byte to its last.

    The place is not taken in the generator of the content: if the client disconnects at once, that
    generator is never started, and so never gives the place back.
    """

    def __init__(self, places: Places, content: AsyncIterator[bytes], **options: Any) -> None:
        super().__init__(content, **options)
        self._places = places

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._places.take():
            await super().__call__(scope, receive, send)
