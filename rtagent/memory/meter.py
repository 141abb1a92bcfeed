"""Measures how much memory the processes use, without making the supervisor wait.

Why it is correct. To read how much memory one process has takes about 10 ms, and waits for that
process's own memory lock: hundreds of processes take seconds, and one that hangs in the kernel
takes for ever. So a thread of its own reads. It starts no process, shares nothing but two queues,
and may hang: then there is no new figure, and nothing else happens.
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
"""Share of the time that measuring the same processes may take."""
LONGEST_REST_S = 5.0
"""Longest rest between two measurements, whatever the first has cost."""


class Measured(NamedTuple):
    """A measurement.

    Attributes:
        size: bytes.
        complete: whether all expected processes ran, from its beginning to its end.
    """

    size: int
    complete: bool


class MemoryMeter:
    """Measures in the background, one measurement after the other.

    Args:
        measure: gives the memory of processes, without what is shared; may take long.
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
            everybody: whether these are all expected processes. If so, and they are not those that
                were measured last, it is time: a figure of former processes must not be used.

        Returns:
            The measurement of the processes asked about earlier; None if there is nothing new.
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
        asked = list(pids)
        changed = everybody and set(asked) != self._known
        if changed or self._clock.now() >= self._rest_until:
            self._under_way, self._complete, self._known = True, everybody, set(asked)
            self._asked.put(asked)
        return None

    def close(self) -> None:
        """End the thread, unless it hangs."""
        self._asked.put(None)

    def _measure_all(self) -> None:
        while (pids := self._asked.get()) is not None:
            began = self._clock.now()
            measured = None
            # Whatever fails, a file of /proc or a lack of memory: there is no figure this time.
            with contextlib.suppress(Exception):
                measured = self._measure(pids)
            self._answers.put((measured, self._clock.now() - began))
