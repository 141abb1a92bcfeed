"""How many processes may be asked for on a machine, and how many cores they may keep busy.

Too many make the machine unreachable, and anybody who may change settings over HTTP can ask for
them: 179 inference processes that compute all the time and 57 learners on two cores took minutes to
be stopped again. The bound is far above any useful number; a user can set another one in the
configuration file.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.arena import available_memory
from rtagent.memory.usage import CGROUPS, PROC, control_groups, kernel_text

LEAST = 8
PER_CORE = 16
BEYOND_CORES = 16
"""Processes with injected latency or a remote policy mostly wait: even one core carries some."""
PROCESS_BYTES = 96 << 20
"""Private memory of a process, about."""


def most_processes(
    config: Config, cores: int | None = None, available: int | None = None
) -> int:
    """The most inference processes and learners together.

    Args:
        config: `run.max_processes`.
        cores: number of cores that this process may use. If None, asks the kernel.
        available: bytes of memory. If None, asks the kernel.
    """
    if config.run.max_processes != "auto":
        return config.run.max_processes
    usable = len(os.sched_getaffinity(0)) if cores is None else cores
    if available is None:
        available = available_memory()
    # Half of the memory is left to the replay and to other programs.
    by_memory = available // 2 // PROCESS_BYTES
    return max(LEAST, min(PER_CORE * usable + BEYOND_CORES, by_memory))


def check_processes(config: Config, most: int) -> None:
    """Raise a `UserError` for a configuration with more than `most` processes."""
    wanted, learning = config.inference.processes, config.learning.processes
    acting, shown = (1, "auto (1 at least)") if wanted == "auto" else (wanted, wanted)
    if acting + learning > most:
        raise UserError(
            f"inference.processes = {shown} and learning.processes = {learning} are together "
            f"more than the {most} processes that this machine is assumed to carry; if it carries "
            "more, set run.max_processes in the configuration file"
        )


def most_busy_cores() -> float:
    """Cores that this process may keep busy: those that it may run on, or its quota if less."""
    return min(len(os.sched_getaffinity(0)), quota_cores())


def quota_cores(cgroups: Path = CGROUPS, proc: Path = PROC) -> float:
    """Cores' worth of time that the control groups around this process leave it; else infinite."""
    return min(map(_quota, control_groups("cpu", proc, cgroups)), default=math.inf)


def _quota(group: Path) -> float:
    """Cores that a control group (version 2 or 1) may use; infinite if there is no limit."""
    quota, _, period = kernel_text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (kernel_text(group / f"cpu.cfs_{each}_us") for each in ("quota", "period"))
    limited = quota.isdecimal() and period.isdecimal() and int(period)
    return int(quota) / int(period) if limited else math.inf
