"""Scheduling and memory locking: what the kernel can do for a process on the wall clock.

The environment process asks for `SCHED_FIFO` and locked memory; inference processes ask to go
before whatever else wants a core; learners take `SCHED_IDLE`, so that they never delay acting.
Users without the permission run all the same, with more jitter.
"""

from __future__ import annotations

import ctypes
import os
import signal

from rtagent.errors import UserError

FIFO_PRIORITY = 50
ACTING_NICE = -10
"""Not `SCHED_FIFO`: policies that keep every core busy would shut the service out."""
TIMER_SLACK_NS = 1000

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_TIMERSLACK = 29
_MCL_CURRENT = 1
_MCL_FUTURE = 2
_MCL_ONFAULT = 4


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    Args:
        parent: the expected parent's pid, which closes the race with a parent already gone.
    """
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Show this process as `name` in top and ps (its first 15 characters)."""
    _libc().prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def sharpen_timers() -> None:
    """Let sleeps of this process end within about a microsecond of the asked time."""
    _libc().prctl(_PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)


def fifo_permitted() -> bool:
    """Whether this process may use `SCHED_FIFO`; nothing changes."""
    before, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
        os.sched_setscheduler(0, before, parameter)
    except PermissionError:
        return False
    return True


def enter_realtime(mode: str) -> bool:
    """Take `SCHED_FIFO` and lock memory as it is touched.

    Args:
        mode: auto (where permitted), on (required) or off.

    Returns:
        Whether this process runs with realtime priority now.

    Raises:
        UserError: mode is on and the permission is missing.
    """
    sharpen_timers()
    if mode == "off":
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
    except PermissionError:
        if mode == "on":
            raise UserError(
                "realtime priority is not permitted here: raise the rtprio limit "
                "(`ulimit -r`, or LimitRTPRIO= in systemd), or start with --realtime auto"
            ) from None
        return False
    locked = _libc().mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0
    if mode == "on" and not locked:
        raise UserError(
            "locking memory is not permitted here: raise the memlock limit (`ulimit -l`, or "
            "LimitMEMLOCK= in systemd), or start with --realtime auto"
        )
    return True


def prefer_acting(mode: str) -> bool:
    """Go before programs of normal priority, where that is permitted.

    Args:
        mode: off leaves the priority as it is.

    Returns:
        Whether this process is preferred now.
    """
    if mode == "off":
        return False
    try:
        os.setpriority(os.PRIO_PROCESS, 0, ACTING_NICE)
    except PermissionError:
        return False
    return True


def enter_idle() -> None:
    """Run only when nothing else wants the core."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
