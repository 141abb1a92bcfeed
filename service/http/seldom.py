"""Log lines that anybody outside can cause, and so must not be able to fill a disk with."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rtagent.clock import Clock

EVERY_S = 10.0


class Seldom:
    """Says something at once, and then no more often than every few seconds."""

    def __init__(self, say: Callable[[str], None], clock: Clock, every_s: float = EVERY_S) -> None:
        self._say = say
        self._clock = clock
        self._every_s = every_s
        self._next = -float("inf")
        self._unsaid = 0

    def __call__(self, line: str) -> None:
        """Say it, unless something was said a moment ago; what was not said is counted."""
        now = self._clock.now()
        if now < self._next:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more like it since the last such line)" if self._unsaid else ""
        self._next, self._unsaid = now + self._every_s, 0
        self._say(line + more)


def seldom_logged(name: str, clock: Clock) -> Seldom:
    """Warnings of a logger, seldom."""
    return Seldom(logging.getLogger(name).warning, clock)
