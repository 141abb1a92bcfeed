"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 300.0
"""Longest wait for a change."""
LOOK_EVERY_S = 0.1


def until(condition: Callable[[], object], what: str, every_s: float = LOOK_EVERY_S) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: it has not held within `LIMIT_S`.
    """
    limit = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(every_s)
