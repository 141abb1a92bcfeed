"""Results that many requests share.

Why it is correct. The lock of `Fresh` admits one request at a time; a request that has waited for
it finds the result that was made meanwhile recent enough and takes it. So twenty dashboards cost as
much as one, and a result that is handed out is older than `max_age` by the time of its making at
most. `PerVersion` reads the version before it makes a result, so a result may be newer than its
version says, but never older. If two are made at once, the result of the older version may replace
the newer one; the next request then makes it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio import to_thread

from rtagent.clock import Clock, MonotonicClock

T = TypeVar("T")


class Fresh(Generic[T]):
    """The newest result of a function, which a thread makes at most once per `max_age` seconds.

    The function is called from one thread at a time.
    """

    def __init__(
        self, produce: Callable[[], T], max_age: float, clock: Clock | None = None
    ) -> None:
        self._produce = produce
        self._max_age = max_age
        self._clock = clock or MonotonicClock()
        self._lock = asyncio.Lock()
        self._made: tuple[float, T] | None = None

    async def get(self) -> T:
        """A result at most `max_age` old."""
        async with self._lock:
            now = self._clock.now()
            if self._made is None or now - self._made[0] >= self._max_age:
                self._made = (now, await to_thread.run_sync(self._produce))
            return self._made[1]


class PerVersion(Generic[T]):
    """The result of a function, which a thread makes once for each version of its data.

    Args:
        version: a number that changes whenever the result would; must not block.
        produce: makes the result; called from several threads.
    """

    def __init__(self, version: Callable[[], int], produce: Callable[[], T]) -> None:
        self._version = version
        self._produce = produce
        self._made: tuple[int, T] | None = None

    async def get(self) -> T:
        """The result of the newest version."""
        version = self._version()
        if self._made is None or self._made[0] != version:
            self._made = version, await to_thread.run_sync(self._produce)
        return self._made[1]
