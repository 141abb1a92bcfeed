"""How many processes a machine may be asked for.

So many that the machine itself is no longer to be reached are a mistake, and over HTTP a harmful
one: 179 inference processes that compute all the time and 57 learners on two cores took minutes to
be sent away again. The bound is far above what is of use; who knows better sets it in the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.usage import Level, memory_levels

LEAST = 8
PER_CORE = 16
BEYOND_CORES = 16
"""Processes of a padded or remote policy wait most of the time: even one core carries some."""
PROCESS_BYTES = 96 << 20
"""About what one has to itself."""


def most_processes(
    config: Config, cores: int | None = None, levels: Iterable[Level] | None = None
) -> int:
    """The most inference processes and learners together.

    Args:
        config: `run.max_processes`.
        cores: that this process may use. If None, asks the kernel.
        levels: of memory. If None, asks the kernel.
    """
    if config.run.max_processes != "auto":
        return config.run.max_processes
    usable = len(os.sched_getaffinity(0)) if cores is None else cores
    available = min(level.available for level in (memory_levels() if levels is None else levels))
    # Half of the memory is for the replay, and for everybody else.
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
