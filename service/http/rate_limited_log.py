"""Log lines that anybody on the network can cause, limited so that they cannot fill a disk."""

from __future__ import annotations

from collections.abc import Callable

from rtagent.clock import Clock

INTERVAL_S = 10.0


class RateLimitedLog:
    """Writes at most one line per `INTERVAL_S` and counts those that are left out.

    Args:
        write: takes a line.
    """

    def __init__(self, write: Callable[[str], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._next_s = -float("inf")
        self._left_out = 0

    def __call__(self, line: str) -> None:
        """Write the line, with the number of those left out before it; or leave it out."""
        now = self._clock.now()
        if now < self._next_s:
            self._left_out += 1
            return
        if self._left_out:
            line += f" ({self._left_out} more like it since the last such line)"
        self._next_s, self._left_out = now + INTERVAL_S, 0
        self._write(line)
