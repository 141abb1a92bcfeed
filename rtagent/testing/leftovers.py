"""What this process holds: the processes below it, its threads and its descriptors."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from rtagent.clock import Clock
from rtagent.processes.kernel_state import descendants, fields_of

SETTLE_S = 1.0
"""How long processes and threads may take to end after `close()`."""
POLL_S = 0.05


def leftovers(
    clock: Clock, before: dict[str, int], allowed: dict[str, int] | None = None
) -> dict[str, int]:
    """What is held beyond what was held before, by name; waits up to `SETTLE_S` for it to end.

    It does not wait for what is `allowed`. If None, threads and descriptors, but no processes.
    """
    gc.collect()
    until, allowed = clock.now() + SETTLE_S, allowed or {"processes": 0}
    while True:
        left = {name: count - before[name] for name, count in held().items()}
        if clock.now() >= until or all(left[name] <= most for name, most in allowed.items()):
            return left
        clock.sleep_until(clock.now() + POLL_S)


def held() -> dict[str, int]:
    """What this process holds now."""
    own = Path("/proc/self")
    states = [fields_of(Path(f"/proc/{pid}/stat"))[:1] for pid in descendants(os.getpid())]
    return {
        # One that has ended may still wait for its parent.
        "processes": sum(state not in ([], ["Z"]) for state in states),
        "threads": len(list((own / "task").iterdir())),
        "descriptors": len(list((own / "fd").iterdir())),
    }
