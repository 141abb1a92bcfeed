"""What a local Ray leaves behind when the process that started it is killed.

Some of Ray's processes notice that their cluster is gone after a minute only. So a small process
waits for the end of the one that starts Ray, and then kills whatever is left of its session.

Why it is correct. The process that starts Ray makes a session of its own (setsid(2)), which its
descendants inherit and nobody else enters. The wait is for the end of a pipe, whose other end the
kernel closes however its holder dies; that end is not handed on to programs that are started.
Processes that are born while others are being killed are found in the next round.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

ROUNDS = 100
"""Looks for who is left, at most: a process that cannot be killed must not keep this one."""


def end_session_with_this_process() -> None:
    """Have every process of a new session killed when this one ends.

    Called while this process has a single thread, before it starts what shall end with it.

    Raises:
        PermissionError: it leads a process group already, so it cannot make a session.
    """
    os.setsid()
    waits, held = os.pipe()
    if os.fork() == 0:
        try:
            os.close(held)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            session = os.getsid(0)
            while os.read(waits, 1):
                pass
            _kill_all(session)
        finally:
            os._exit(0)
    os.close(waits)


def _kill_all(session: int) -> None:
    for _ in range(ROUNDS):
        found = [pid for pid in _others() if _session_of(pid) == session]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _others() -> list[int]:
    numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in numbers if pid != os.getpid()]


def _session_of(pid: int) -> int | None:
    """The session of a process; None: it is gone, or has ended and waits to be reaped."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else int(session)
