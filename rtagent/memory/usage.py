"""How much memory the daemon uses, and how much is left: measured from the outside.

Two things count as used, and `r3.memory_budget_mb` covers both. The first is the proportional set
size of every process of the daemon: a page that n processes share counts 1/n in each, so code and
data that all workers have from the fork server count once. The second is every page of the shared
memory. The kernel is asked for it arena by arena, so a page counts once, even if no process has
touched it yet. Page cache that nobody has mapped does not count: the kernel takes it back when it
likes.

To read a process's set walks through all its page tables: about 10 ms for a replay of 700 MiB. It
does not disturb that process (a SCHED_FIFO loop was as punctual as without), but it takes the
reader's time, so `meter.py` limits how often it is done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rtagent.errors import UserError

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
LEAST_FREE_SHARE = 0.03
LEAST_FREE_BYTES = 64 << 20
STALLED_PERCENT = 10.0
"""Memory counts as short if all processes waited for it for this share of ten seconds."""
_KIB = 1024
_VERSION_1 = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = (("memory.max", "memory.high"), "memory.current", "inactive_file")
"""The limits of a control group, its usage, and its unused file cache."""


@dataclass(frozen=True)
class Level:
    """How full one container of memory is.

    Attributes:
        name: machine, or the folder of a control group.
        limit: bytes in all.
        available: bytes that can still be had, file cache out of use included.
        stalled_percent: of the last ten seconds, in which all its processes waited for memory.
    """

    name: str
    limit: int
    available: int
    stalled_percent: float = 0.0

    @property
    def floor(self) -> int:
        """Available bytes below which memory counts as short."""
        return max(int(LEAST_FREE_SHARE * self.limit), LEAST_FREE_BYTES)

    @property
    def short(self) -> bool:
        """Whether memory should be given up before the kernel kills a process."""
        return self.available < self.floor or self.stalled_percent >= STALLED_PERCENT

    @property
    def calm(self) -> bool:
        """Whether there is room for more."""
        return self.available > 2 * self.floor and self.stalled_percent < STALLED_PERCENT / 2


def private_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Proportional set size of some processes, without shared memory, bytes; 0 for the dead.

    Where the set may not be read, a process's anonymous memory counts instead.
    """
    return sum(_private(proc / str(pid)) for pid in pids)


def memory_levels(proc: Path = PROC, cgroups: Path = CGROUPS) -> list[Level]:
    """The machine, and every limited control group (version 1 or 2) around this process.

    Raises:
        UserError: `/proc/meminfo` is hidden or does not say what is available.
        OSError: it cannot be read at this moment.
    """
    levels = [_machine(proc)]
    found = map(_level, control_groups("memory", proc, cgroups))
    levels += [level for level in found if level is not None]
    # Version 1 writes "unlimited" as a number beyond any machine.
    return [level for level in levels if level.limit <= levels[0].limit]


def control_groups(controller: str, proc: Path, cgroups: Path) -> list[Path]:
    """The control groups around this process, in a container perhaps the root alone.

    `controller` is memory or cpu: version 1 has groups of its own for each.
    """
    found: list[Path] = []
    for line in kernel_text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controller if controllers else cgroups
        group = root / path.lstrip("/")
        found += [each for each in (group, *group.parents) if each.is_relative_to(root)]
    return found


def meminfo(proc: Path = PROC) -> dict[str, int]:
    """The values of `/proc/meminfo` in bytes."""
    return {name: kib * _KIB for name, kib in _figures((proc / "meminfo").read_text()).items()}


def _machine(proc: Path) -> Level:
    try:
        figures = meminfo(proc)
        return Level("machine", figures["MemTotal"], figures["MemAvailable"])
    except (FileNotFoundError, PermissionError, KeyError):
        raise UserError(
            f"{proc / 'meminfo'} does not say how much memory is available: mount /proc without "
            "subset=pid (in a systemd unit: ProcSubset=all)"
        ) from None


def _private(process: Path) -> int:
    table = _figures(kernel_text(process / "smaps_rollup"))
    if "Pss" in table:
        return (table["Pss"] - table.get("Pss_Shmem", 0)) * _KIB
    return _figures(kernel_text(process / "status")).get("RssAnon", 0) * _KIB


def _level(group: Path) -> Level | None:
    """The level of a control group; None if it has no limit."""
    limits, usage, unused = _VERSION_2 if (group / _VERSION_2[1]).exists() else _VERSION_1
    found = [_number(group / name) for name in limits]
    limit = min((each for each in found if each is not None), default=None)
    used = _number(group / usage)
    if limit is None or used is None:
        return None
    cache = _figures(kernel_text(group / "memory.stat")).get(unused, 0)
    return Level(str(group), limit, limit - used + cache, _stalled(group / "memory.pressure"))


def _stalled(pressure: Path) -> float:
    """`full avg10` of the kernel's pressure stall information; 0 where there is none."""
    for line in kernel_text(pressure).splitlines():
        if line.startswith("full avg10="):
            return float(line.split()[1].partition("=")[2])
    return 0.0


def _number(path: Path) -> int | None:
    """The number in a file; None for "max", or if there is no such file."""
    text = kernel_text(path)
    return int(text) if text.isdecimal() else None


def _figures(text: str) -> dict[str, int]:
    """Names and first numbers of a text with one figure per line."""
    words = (line.replace(":", " ").split() for line in text.splitlines())
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdecimal()}


def kernel_text(path: Path) -> str:
    """What a file of the kernel says; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
