"""One result for many askers.

Why it is correct. The lock admits one asker at a time; who waited for it finds the result that was
made meanwhile young enough and takes it. So twenty dashboards cost as much as one, and a result is
never older than `max_age` when it is handed out, except by the time its making takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio import to_thread

from rtagent.clock import Clock, MonotonicClock

K = TypeVar("K")
T = TypeVar("T")


class Fresh(Generic[T]):
    """The newest result of a function, made in a thread at most once per `max_age`.

    Args:
        produce: makes the result; called from one thread at a time.
        max_age: seconds for which a result is handed out again.
        clock: monotonic time.
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


class FreshByKey(Generic[K, T]):
    """One `Fresh` per key; those of the keys that were asked for last are kept.

    Args:
        produce: makes the result for a key; called from one thread at a time for each.
        max_age: seconds for which a result is handed out again.
        most: keys that are kept.
    """

    def __init__(self, produce: Callable[[K], T], max_age: float, most: int) -> None:
        self._produce = produce
        self._max_age = max_age
        self._most = most
        self._kept: dict[K, Fresh[T]] = {}

    async def get(self, key: K) -> T:
        """The result for a key, at most `max_age` old."""
        fresh = self._kept.pop(key, None) or Fresh(lambda: self._produce(key), self._max_age)
        self._kept[key] = fresh
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return await fresh.get()
