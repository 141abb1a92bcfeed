"""When a dead process is started again: pure arithmetic on times.

At most `MOST_RESTARTS` within `WINDOW_S`, the pause before each growing with jitter; after that
the process is given up. A process that ran well for a while starts from the shortest pause again.
"""

from __future__ import annotations

from collections import deque

MOST_RESTARTS = 5
WINDOW_S = 60.0
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0


class RestartPolicy:
    """Decides when one process may be started again."""

    def __init__(self) -> None:
        self._restarts: deque[float] = deque()

    def next_start(self, now: float, jitter: float) -> float | None:
        """When to start a process that has just died.

        Args:
            now: seconds.
            jitter: uniform in [0, 1).

        Returns:
            Seconds, or None if it has died too often.
        """
        while self._restarts and self._restarts[0] <= now - WINDOW_S:
            self._restarts.popleft()
        if len(self._restarts) >= MOST_RESTARTS:
            return None
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** len(self._restarts))
        self._restarts.append(now)
        return now + pause * (0.5 + 0.5 * jitter)
