"""What `rtagent doctor` looks at: each check reads one thing and says what to do about it.

Memory is looked at in `memory_checks.py`.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from rtagent.cli.jitter import Jitter
from rtagent.cli.memory_checks import memory, overcommit, shared_memory, swap
from rtagent.cli.verdicts import Check
from rtagent.config import GAME_BOY_HZ, Config
from rtagent.files.pruning import MIB, bytes_in, run_folders
from rtagent.memory.compiled import compiled
from rtagent.processes.scheduling import fifo_permitted
from rtagent.storage.checkpoint import listing

MEMFD_KERNEL = (3, 17)
PYTHON = (3, 11)
CGROUPS = Path("/sys/fs/cgroup")
CAP_IPC_LOCK = 14
LOCKED_ENOUGH = 256 << 20
LATE_US = 0.25e6 / GAME_BOY_HZ
"""A quarter of a tick."""


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


def compiled_code() -> Check:
    """Learners copy their batches with compiled code."""
    if compiled("rtagent_gather") is not None:
        return Check("compiled code", "ok", "there")
    return Check(
        "compiled code", "warn", "not there: NumPy copies the batches, which takes longer",
        "install a C compiler (Debian: gcc libc6-dev), then rtagent again",
    )


def cores() -> Check:
    """Acting and learning have a core each."""
    count = len(os.sched_getaffinity(0))
    if count >= 2:
        return Check("cores", "ok", str(count))
    return Check(
        "cores", "warn", str(count), "acting and learning share one core; learning will be slow"
    )


def cpu_quota(cgroups: Path = CGROUPS, proc: Path = Path("/proc")) -> Check:
    """No control group stops the daemon for the rest of a period (`docker run --cpus`)."""
    shares = [share for group in _cpu_groups(cgroups, proc) if (share := _quota(group))]
    if not shares:
        return Check("CPU quota", "ok", "none")
    return Check(
        "CPU quota", "warn",
        f"{min(shares):g} cores: whoever has used them up waits for the next period",
        "pin to cores in its place: `docker run --cpuset-cpus`, AllowedCPUs= in systemd",
    )


def realtime_priority() -> Check:
    """The environment process may use SCHED_FIFO."""
    if fifo_permitted():
        return Check("SCHED_FIFO", "ok", "permitted")
    return Check(
        "SCHED_FIFO", "warn", "not permitted: ticks are late when the cores are busy",
        "raise the rtprio limit to 50: /etc/security/limits.conf, LimitRTPRIO=50 in systemd, "
        "`--ulimit rtprio=50` in Docker",
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
        "memlock limit", "warn", found,
        "raise it: /etc/security/limits.conf, LimitMEMLOCK=infinity in systemd, "
        "`--ulimit memlock=-1` in Docker",
    )


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
        "/proc/<pid>/fd", "bad", "closed to child processes",
        "workers share memory this way: mount /proc without hidepid, allow it in the sandbox",
    )


def jitter(measured: Jitter) -> Check:
    """A loop at the Game Boy's rate runs its ticks in time."""
    mode = "SCHED_FIFO" if measured["realtime"] else "normal priority"
    found = (
        f"p50 {measured['p50']:.0f}, p99 {measured['p99']:.0f}, max {measured['max']:.0f} us late "
        f"({measured['ticks']} ticks, {mode})"
    )
    if measured["p99"] <= LATE_US:
        return Check("jitter", "ok", found)
    return Check(
        "jitter", "warn", found,
        "other programs hold the cores: stop them, or allow SCHED_FIFO (see above)",
    )


def state_directory(config: Config) -> Check:
    """What the state directory holds, and what it may."""
    folder, limits = config.state_dir, config.run
    runs = run_folders(folder / "runs")
    saved = listing(folder / "checkpoints")
    used = (sum(map(bytes_in, runs)), sum(each["bytes"] for each in saved))
    found = (
        f"{folder}: runs {len(runs)} of {limits.keep_runs}, "
        f"{used[0] // MIB} of {limits.runs_mb} MiB (events {limits.events_mb} MiB and TensorBoard "
        f"{limits.tensorboard_mb} MiB of each); checkpoints {len(saved)} of "
        f"{limits.keep_checkpoints}, {used[1] // MIB} of {limits.checkpoints_mb} MiB; "
        f"replay {bytes_in(folder / 'replay') // MIB} MiB"
    )
    return Check("state directory", "ok", found)


CHECKS: tuple[Callable[[], Check], ...] = (
    operating_system,
    python,
    compiled_code,
    cores,
    cpu_quota,
    realtime_priority,
    locked_memory,
    memory,
    shared_memory,
    overcommit,
    swap,
    cpu_governor,
    descriptor_access,
)
"""All but those of the state directory and of the jitter."""


def _capable(capability: int) -> bool:
    """Whether this process holds a capability."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> capability & 1)
    return False


def _cpu_groups(cgroups: Path, proc: Path) -> list[Path]:
    """The control groups of this process, and those around them, that may have a quota."""
    groups: list[Path] = []
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            root = cgroups
        elif "cpu" in controllers.split(","):
            root = cgroups / "cpu"
        else:
            continue
        group = root / path.lstrip("/")
        groups += [each for each in (group, *group.parents) if each.is_relative_to(root)]
    return groups


def _quota(group: Path) -> float | None:
    """Cores that a control group (version 2 or 1) may use; None: no limit."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    return int(quota) / int(period) if quota.isdecimal() and int(period) else None
