"""The checks of `rtagent doctor` of memory."""

from __future__ import annotations

from pathlib import Path

from rtagent.cli.verdicts import judged
from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.files.pruning import MIB
from rtagent.memory.arena import Arena
from rtagent.memory.usage import PROC, meminfo, memory_levels
from rtagent.testing.report import Check

FRAME_BYTES = 84 * 84
PROCESSES_BYTES = 1 << 30
"""For the processes themselves; they share torch's pages."""
SWAPPED_SHARE = 0.1
STRICT = 2
"""Value of `vm.overcommit_memory` with which the kernel promises no more than there is."""


def replay_bytes() -> int:
    """Memory of the default replay."""
    return Config().replay.capacity * FRAME_BYTES


def memory() -> Check:
    """The default replay fits into the machine, and into every limited control group."""
    ring = replay_bytes()
    level = min(memory_levels(), key=lambda level: level.available)
    found = f"{level.available // MIB} MiB available of {level.limit // MIB} MiB ({level.name})"
    if level.available < ring:
        advice = f"the default replay takes {ring // MIB} MiB: lower replay.capacity"
        return Check("memory", "bad", found, advice)
    enough = level.available >= ring + PROCESSES_BYTES
    advice = "little is left beside the replay: lower replay.capacity"
    return judged("memory", enough, found, advice)


def shared_memory() -> Check:
    """As much memfd as the default replay takes can really be reserved."""
    ring = replay_bytes()
    if min(level.available for level in memory_levels()) < ring + PROCESSES_BYTES:
        # Reserving the last memory might have the kernel end another program.
        return Check(
            "shared memory", "warn", "not tried: too little memory is available",
            "see memory above; shared memory counts towards the same limits",
        )
    try:
        Arena("doctor", ring).close()
    except (UserError, OSError) as error:
        return Check(
            "shared memory", "bad", f"{ring // MIB} MiB of memfd cannot be reserved: {error}",
            "lower replay.capacity; look at `ulimit -f`, at limits of the control group, and "
            "whether a sandbox forbids memfd_create or fallocate",
        )
    return Check("shared memory", "ok", f"{ring // MIB} MiB of memfd reserved and given back")


def overcommit(proc: Path = PROC) -> Check:
    """The kernel does not refuse memory that is there."""
    mode = int((proc / "sys/vm/overcommit_memory").read_text())
    if mode != STRICT:
        return Check("overcommit", "ok", f"vm.overcommit_memory = {mode}")
    info = meminfo(proc)
    left = info["CommitLimit"] - info["Committed_AS"]
    return judged(
        "overcommit", left >= replay_bytes() + PROCESSES_BYTES,
        f"vm.overcommit_memory = 2, {left // MIB} MiB may still be promised",
        "starting may fail although memory is free: `sysctl vm.overcommit_memory=0`, or raise "
        "vm.overcommit_ratio",
    )


def swap(proc: Path = PROC) -> Check:
    """Little memory lies in swap, so that no process waits for the disk before it acts."""
    info = meminfo(proc)
    total, used = info["SwapTotal"], info["SwapTotal"] - info["SwapFree"]
    return judged(
        "swap", used <= SWAPPED_SHARE * total,
        f"{used // MIB} of {total // MIB} MiB in use" if total else "none",
        "what acts may wait for the disk: stop other programs, lower replay.capacity, or "
        "`swapoff -a`",
    )
