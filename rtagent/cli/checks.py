"""What `rtagent doctor` looks at: each check reads one thing and says what to do about it."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rtagent.cli.jitter import measure_jitter
from rtagent.config import GAME_BOY_HZ, Config
from rtagent.memory.arena import available_memory
from rtagent.realtime import fifo_permitted

Verdict = Literal["ok", "warn", "bad"]

MEMFD_KERNEL = (3, 17)
PYTHON = (3, 11)
FRAME_BYTES = 84 * 84
PROCESSES_BYTES = 1 << 30
"""For the processes themselves; they share torch's pages."""
CAP_IPC_LOCK = 14
LOCKED_ENOUGH = 256 << 20
LATE_US = 0.25e6 / GAME_BOY_HZ
"""A quarter of a tick."""


@dataclass(frozen=True)
class Check:
    """One line of the report.

    Attributes:
        name: what was looked at.
        verdict: ok, warn (works, less well) or bad (rtagent cannot work).
        found: what was there.
        advice: what to do about it; empty where nothing is to be done.
    """

    name: str
    verdict: Verdict
    found: str
    advice: str = ""

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def operating_system() -> Check:
    """The kernel has memfd."""
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    found = f"{platform.system()} {release}"
    if numbers >= MEMFD_KERNEL and hasattr(os, "memfd_create"):
        return Check("operating system", "ok", found)
    return Check("operating system", "bad", found, "Linux 3.17 or newer is needed (memfd)")


def python() -> Check:
    """The interpreter is new enough."""
    found = f"{platform.python_implementation()} {platform.python_version()}"
    if sys.version_info >= PYTHON:
        return Check("Python", "ok", found)
    return Check("Python", "bad", found, "install Python 3.11 or newer")


def cores() -> Check:
    """Acting and learning have a core each."""
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return Check("cores", "ok", str(count))
    return Check(
        "cores", "warn", str(count), "acting and learning share one core; learning will be slow"
    )


def realtime_priority() -> Check:
    """The environment process may use SCHED_FIFO."""
    if fifo_permitted():
        return Check("SCHED_FIFO", "ok", "permitted")
    return Check(
        "SCHED_FIFO",
        "warn",
        "not permitted: ticks are late when the cores are busy",
        "raise the rtprio limit to 50: /etc/security/limits.conf, or LimitRTPRIO=50 in systemd",
    )


def locked_memory() -> Check:
    """The environment process may lock its memory."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY or _capable(CAP_IPC_LOCK):
        return Check("memlock limit", "ok", "unlimited")
    found = f"{soft >> 20} MiB"
    if soft >= LOCKED_ENOUGH:
        return Check("memlock limit", "ok", found)
    return Check(
        "memlock limit",
        "warn",
        found,
        "raise it: `ulimit -l unlimited`, /etc/security/limits.conf, or LimitMEMLOCK=infinity",
    )


def memory() -> Check:
    """The default replay fits."""
    ring = Config().replay.capacity * FRAME_BYTES
    available = available_memory()
    found = f"{available >> 20} MiB available"
    if available < ring:
        return Check(
            "memory",
            "bad",
            found,
            f"the default replay takes {ring >> 20} MiB: lower replay.capacity",
        )
    if available < ring + PROCESSES_BYTES:
        return Check(
            "memory", "warn", found, "little is left beside the replay: lower replay.capacity"
        )
    return Check("memory", "ok", found)


def cpu_governor(root: Path = Path("/sys/devices/system/cpu")) -> Check:
    """The cores do not clock down between two ticks."""
    files = root.glob("cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({file.read_text().strip() for file in files})
    if not governors:
        return Check("CPU governor", "ok", "not visible here (a virtual machine, as a rule)")
    found = ", ".join(governors)
    if governors == ["performance"]:
        return Check("CPU governor", "ok", found)
    return Check(
        "CPU governor", "warn", found, "`cpupower frequency-set -g performance` steadies the clock"
    )


def descriptor_access() -> Check:
    """Another process can open our memory through /proc."""
    descriptor = os.memfd_create("rtagent-doctor", os.MFD_CLOEXEC)
    try:
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
        opened = subprocess.run(
            [sys.executable, "-S", "-c", f"open({path!r}, 'r+b')"], capture_output=True, check=False
        )
    finally:
        os.close(descriptor)
    if opened.returncode == 0:
        return Check("/proc/<pid>/fd", "ok", "open to child processes")
    return Check(
        "/proc/<pid>/fd",
        "bad",
        "closed to child processes",
        "workers share memory this way: mount /proc without hidepid, allow it in the sandbox",
    )


def jitter(seconds: float) -> Check:
    """A loop at the Game Boy's rate wakes up in time."""
    measured = measure_jitter(seconds)
    mode = "SCHED_FIFO" if measured["realtime"] else "normal priority"
    found = (
        f"p50 {measured['p50']:.0f}, p99 {measured['p99']:.0f}, max {measured['max']:.0f} us late "
        f"({measured['ticks']} ticks, {mode})"
    )
    if measured["p99"] <= LATE_US:
        return Check("jitter", "ok", found)
    return Check(
        "jitter",
        "warn",
        found,
        "other programs hold the cores: stop them, or allow SCHED_FIFO (see above)",
    )


CHECKS: tuple[Callable[[], Check], ...] = (
    operating_system,
    python,
    cores,
    realtime_priority,
    locked_memory,
    memory,
    cpu_governor,
    descriptor_access,
)
"""All but the jitter, which takes time."""


def _capable(capability: int) -> bool:
    """Whether this process holds a capability."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False
