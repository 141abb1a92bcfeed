"""What this process holds: the processes below it, its threads and its descriptors."""

from __future__ import annotations

import gc
from collections import defaultdict
from pathlib import Path

from rtagent.clock import Clock
from rtagent.testing.findings import Leftovers

SETTLE_S = 1.0
"""What ends on its own within this time has been ended."""
POLL_S = 0.05


def leftovers(clock: Clock, before: Leftovers, allowed: Leftovers | None = None) -> Leftovers:
    """What is left once everything that was told to end has had time to.

    Args:
        clock: time.
        before: what was held at the beginning; it does not count.
        allowed: not waited for. If None, threads and descriptors, but no processes.
    """
    gc.collect()
    until = clock.now() + SETTLE_S
    while True:
        now = held()
        left = Leftovers(
            now.processes - before.processes, now.threads - before.threads,
            now.descriptors - before.descriptors,
        )
        if clock.now() >= until or _within(left, allowed):
            return left
        clock.sleep_until(clock.now() + POLL_S)


def _within(left: Leftovers, allowed: Leftovers | None) -> bool:
    if allowed is None:
        return left.processes <= 0
    return all(count <= vars(allowed)[name] for name, count in vars(left).items())


def held() -> Leftovers:
    """What this process holds now."""
    own = Path("/proc/self")
    return Leftovers(
        processes=len(_descendants(own.resolve().name)),
        threads=len(list((own / "task").iterdir())), descriptors=len(list((own / "fd").iterdir())),
    )


def _descendants(pid: str) -> list[str]:
    """The processes below one; those that have ended and wait for their parent are none."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent, *_ = stat.rpartition(")")[2].split()
            if state != "Z":
                children[parent].append(entry.name)
    found: list[str] = []
    search = [pid]
    while search:
        below = children[search.pop()]
        found += below
        search += below
    return found
