"""What the kernel says about a process, for measurements from the outside."""

from __future__ import annotations

import os
from pathlib import Path

from rtagent.processes.kernel_state import fields_of

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_KIB = 1024


def proportional_bytes(pid: int) -> int:
    """Bytes of a process, where a page that n processes share counts 1/n; 0 if it is gone.

    Pages of programs and libraries are left out: they cannot leak, and how many other processes
    share them does not depend on this program.
    """
    found = memory_of(pid, "smaps_rollup")
    return found.get("Pss_Anon", 0) + found.get("Pss_Shmem", 0)


def resident_bytes(pid: int) -> int:
    """Resident set size; 0 if the process is gone."""
    return memory_of(pid, "status").get("VmRSS", 0)


def memory_of(pid: int, file: str) -> dict[str, int]:
    """Bytes by their names in `status` or `smaps_rollup` of a process; empty if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return {}
    figures = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): int(kib) * _KIB for name, kib, _ in figures}


def descriptors(pid: int) -> int:
    """Number of open descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def threads(pid: int) -> int:
    """Number of threads."""
    return len(os.listdir(f"/proc/{pid}/task"))


def cpu_s(pid: int) -> float:
    """Processor time so far, seconds, with that of children that have ended; 0 if it is gone."""
    return sum(map(int, _fields(pid)[11:15])) / _TICKS_PER_S


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie counts as ended."""
    return _fields(pid)[:1] in ([], ["Z"], ["X"])


def in_session(session: int) -> set[int]:
    """The living processes of a session, in which those without a parent stay."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return {pid for pid in pids if not gone(pid) and _fields(pid)[3:4] == [str(session)]}


def _fields(pid: int) -> list[str]:
    return fields_of(Path(f"/proc/{pid}/stat"))
