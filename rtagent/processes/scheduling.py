"""Scheduling and memory locking: what the kernel can do for a process on the wall clock.

The environment process asks for `SCHED_FIFO` and locked memory; inference processes ask for a
higher priority than other programs; learners take `SCHED_IDLE`, so that they never delay acting,
until they are to end. Without the permission a run works all the same, with more jitter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from pathlib import Path

from rtagent.errors import UserError

FIFO_PRIORITY = 50
ACTING_NICE = -10
"""Not `SCHED_FIFO`: policies that keep every core busy would shut the service out."""
SUPERVISOR_NICE = -15
"""Above acting, or the supervisor could not end surplus processes; it needs little."""
SERVICE_NICE = -11
"""Hardly above acting: clients must not be able to stop acting by their requests."""
STEP_BACK_NICE = 10
"""A tenth of the weight: with less a thread might starve that holds a lock acting waits for."""
LEAST_NICE = 19
TIMER_SLACK_NS = 1000
CAP_IPC_LOCK = 14

_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_TIMERSLACK = 1, 15, 29
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends.

    If the parent is gone already, which its pid tells, the process ends at once.
    """
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Show this process as `name` in top and ps (its first 15 characters)."""
    _libc().prctl(_PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def sharpen_timers() -> None:
    """Let sleeps of this process end within about a microsecond of the requested time."""
    _libc().prctl(_PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0)


def fifo_permitted() -> bool:
    """Whether this process may use `SCHED_FIFO`; nothing changes."""
    before, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    return _take_policy(os.SCHED_FIFO, FIFO_PRIORITY) and _take_policy(
        before, parameter.sched_priority
    )


def locking_permitted() -> bool:
    """Whether this process may lock all of its memory.

    A limit does not do: memory that is mapped later, when it is used up, would be refused, which
    ends the process.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or _capable(CAP_IPC_LOCK)


def _capable(capability: int) -> bool:
    """Whether this process holds a capability."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def enter_realtime(mode: str) -> bool:
    """Take `SCHED_FIFO`, and lock memory once it is touched; whether that is permitted.

    Args:
        mode: auto (where permitted), on (required) or off.

    Raises:
        UserError: mode is on and the permission is missing.
    """
    sharpen_timers()
    if mode == "off":
        return False
    if not _take_policy(os.SCHED_FIFO, FIFO_PRIORITY):
        if mode == "on":
            raise UserError(
                "realtime priority is not permitted here: raise the rtprio limit "
                "(`ulimit -r`, or LimitRTPRIO= in systemd), or start with --realtime auto"
            )
        return False
    flags = _MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT
    locked = locking_permitted() and _libc().mlockall(flags) == 0
    if mode == "on" and not locked:
        raise UserError(
            "locking memory is not permitted here: lift the memlock limit (`ulimit -l unlimited`, "
            "or LimitMEMLOCK=infinity in systemd), or start with --realtime auto"
        )
    return True


def prefer_acting(mode: str) -> bool:
    """Take priority over normal programs, unless the mode is off; whether that is permitted."""
    return mode != "off" and _take_nice(ACTING_NICE)


def prefer_service() -> bool:
    """Take priority over inference, which may keep all cores busy; whether that is permitted."""
    return _take_nice(SERVICE_NICE) or _take_nice(ACTING_NICE)


def prefer_supervisor() -> bool:
    """Take priority over all but the environment; whether that is permitted.

    Children do not inherit it.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    if not (_take_nice(SUPERVISOR_NICE) or _take_nice(ACTING_NICE)):
        return False
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    if not _take_policy(policy | os.SCHED_RESET_ON_FORK, parameter.sched_priority):
        _take_nice(before)
        return False
    return True


def step_back(thread: int = 0) -> None:
    """Take a tenth of the weight of before: progress is slow where acting keeps all cores busy.

    Args:
        thread: its native id; 0: the process.
    """
    nice = os.getpriority(os.PRIO_PROCESS, thread) + STEP_BACK_NICE
    _take_nice(min(nice, LEAST_NICE), thread)


def _take_nice(nice: int, thread: int = 0) -> bool:
    try:
        os.setpriority(os.PRIO_PROCESS, thread, nice)
    except OSError:
        return False
    return True


def _take_policy(policy: int, priority: int = 0) -> bool:
    # A sandbox may refuse even what needs no permission, and not only by EPERM.
    try:
        os.sched_setscheduler(0, policy, os.sched_param(priority))
    except OSError:
        return False
    return True


def spare_or_sacrifice(score: int) -> bool:
    """Tell the kernel which process to end when memory is short; whether that is permitted.

    Args:
        score: -1000 (never this process) to 1000 (this one first). A score below the inherited one
            takes the capability `CAP_SYS_RESOURCE`.
    """
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except OSError:
        return False
    return True


def leave_realtime() -> None:
    """Run like others, for what the environment process starts has inherited its priority."""
    _take_policy(os.SCHED_OTHER)


def enter_idle() -> None:
    """Run only when no other process needs the core; with the least weight if that is refused."""
    if not _take_policy(os.SCHED_IDLE):
        _take_nice(LEAST_NICE)


def leave_idle(pid: int) -> None:
    """Have a process that has entered idle priority run like others again, if that is permitted.

    Where others keep every core busy, it would otherwise get no time to end, not even by SIGKILL.
    """
    with contextlib.suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
