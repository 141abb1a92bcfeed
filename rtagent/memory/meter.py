"""Measures how much memory the processes use, without making the supervisor wait.

Why it is correct. To read the set of one process takes about 10 ms, and waits for that process's
own memory lock: hundreds of processes take seconds, and one that hangs in the kernel takes for
ever. So a thread of its own reads. It starts no process, shares nothing but two queues, and may
hang: then there is no new figure, and nothing else.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rtagent.clock import Clock, MonotonicClock
from rtagent.memory.usage import private_bytes

SHARE = 0.01
"""Share of the time that measuring the same processes may take..."""
LONGEST_REST_S = 5.0
"""...unless it then had to rest for longer than this."""


class Measured(NamedTuple):
    """A measurement.

    Attributes:
        size: bytes.
        complete: whether all processes were there that should be, from its beginning to its end.
    """

    size: int
    complete: bool


class MemoryMeter:
    """Measures in the background, one measurement after the other.

    Args:
        measure: the memory of processes, without what is shared; may take long.
        clock: time.
    """

    def __init__(
        self, measure: Callable[[Iterable[int]], int] = private_bytes, clock: Clock | None = None
    ) -> None:
        self._measure = measure
        self._clock = clock or MonotonicClock()
        self._asked: queue.SimpleQueue[list[int] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[int | None, float]] = queue.SimpleQueue()
        self._under_way = False
        self._rest_until = -math.inf
        self._complete = False
        self._known: set[int] = set()
        threading.Thread(target=self._measure_all, name="memory meter", daemon=True).start()

    def __call__(self, pids: Iterable[int], everybody: bool) -> Measured | None:
        """A new measurement, if there is one; begins the next if it is time. Never waits.

        Args:
            pids: the processes at this moment.
            everybody: whether all are there that should be. If so, and they are not those that were
                measured last, it is time: nobody must go by processes that were.

        Returns:
            That of the processes that were asked about earlier; None if there is nothing new.
        """
        if self._under_way:
            self._complete = everybody and self._complete
            try:
                measured, cost_s = self._answers.get_nowait()
            except queue.Empty:
                return None
            self._under_way = False
            self._rest_until = self._clock.now() + min(cost_s / SHARE, LONGEST_REST_S)
            if not self._complete:
                self._known = set()
            return None if measured is None else Measured(measured, self._complete)
        these = list(pids)
        others = everybody and set(these) != self._known
        if others or self._clock.now() >= self._rest_until:
            self._under_way, self._complete, self._known = True, everybody, set(these)
            self._asked.put(these)
        return None

    def close(self) -> None:
        """End the thread, unless it hangs."""
        self._asked.put(None)

    def _measure_all(self) -> None:
        while (pids := self._asked.get()) is not None:
            began = self._clock.now()
            measured = None
            # What cannot be read, or understood, or has no memory, is no figure this time.
            with contextlib.suppress(Exception):
                measured = self._measure(pids)
            self._answers.put((measured, self._clock.now() - began))
