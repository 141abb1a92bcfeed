"""When a dead process is started again: pure arithmetic on times.

The pause before each start doubles, with jitter, from `FIRST_PAUSE_S` to `LONGEST_PAUSE_S`, and
stays there: a process is restarted for ever, since what it lacks (memory, a disk, a simulator) may
come back. After `MOST_RESTARTS` in vain it counts as failed meanwhile. After a process has run for
`WELL_S`, pauses begin with the shortest one again.
"""

from __future__ import annotations

MOST_RESTARTS = 5
WELL_S = 10.0
FIRST_PAUSE_S = 0.3
LONGEST_PAUSE_S = 30.0


class RestartPolicy:
    """Decides when one process may be started again."""

    def __init__(self) -> None:
        self._deaths = 0

    @property
    def failing(self) -> bool:
        """Whether it has died so often that the next start will probably fail, too."""
        return self._deaths > MOST_RESTARTS

    def next_start(self, now: float, ran_s: float, jitter: float) -> float:
        """When to start a process that has just died, seconds.

        Args:
            now: seconds.
            ran_s: how long it had worked before it died, seconds; 0 if it had never been ready.
            jitter: uniform in [0, 1).
        """
        if ran_s >= WELL_S:
            self._deaths = 0
        # A power of two beyond a float's range is never needed.
        doublings = min(self._deaths, 32)
        self._deaths += 1
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**doublings)
        return now + pause * (0.5 + 0.5 * jitter)
