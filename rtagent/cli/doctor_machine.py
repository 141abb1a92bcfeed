"""The checks of `rtagent doctor` of the machine: each says what it found, and what to do."""

from __future__ import annotations

import math
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from rtagent.cli.doctor_memory import memory, overcommit, shared_memory, swap
from rtagent.cli.jitter import Jitter
from rtagent.cli.verdicts import judged
from rtagent.config import GAME_BOY_HZ, Config
from rtagent.errors import UserError
from rtagent.files.pruning import MIB, bytes_in, run_folders
from rtagent.memory.compiled import compiled
from rtagent.memory.usage import CGROUPS, PROC, kernel_text
from rtagent.processes.limit import quota_cores
from rtagent.processes.scheduling import fifo_permitted, locking_permitted
from rtagent.storage.checkpoint import listing
from rtagent.supervisor.state_dir import check_trusted
from rtagent.testing.report import Check

MEMFD_KERNEL = (3, 17)
LATE_US = 0.25e6 / GAME_BOY_HZ
"""A quarter of a tick."""


def operating_system() -> Check:
    """The kernel has memfd."""
    release = platform.release()
    numbers = tuple(int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit())
    good = numbers >= MEMFD_KERNEL and hasattr(os, "memfd_create")
    found = f"{platform.system()} {release}"
    return judged("operating system", good, found, "Linux 3.17 or newer is needed (memfd)", "bad")


def python() -> Check:
    """The interpreter; an older one than rtagent needs would not have installed it."""
    return Check("Python", "ok", f"{platform.python_implementation()} {platform.python_version()}")


def compiled_code() -> Check:
    """Learners copy their batches with compiled code."""
    there = compiled("rtagent_gather") is not None
    return judged(
        "compiled code", there,
        "there" if there else "not there: NumPy copies the batches, which takes longer",
        "install a C compiler (Debian: gcc libc6-dev), then rtagent again",
    )


def cores() -> Check:
    """Acting and learning have a core each."""
    count = len(os.sched_getaffinity(0))
    advice = "acting and learning share one core; learning will be slow"
    return judged("cores", count >= 2, str(count), advice)


def load() -> Check:
    """Programs leave a core to learners, which run only when nobody else needs it."""
    count, busy = os.cpu_count() or 1, os.getloadavg()[0]
    return judged(
        "load", busy < count, f"{busy:.1f} programs computed or waited to in the last minute",
        f"more than the {count} cores: learners, which have idle priority, hardly get one, and the "
        "first update may take minutes; end other programs, or act with fewer processes",
    )


def gpus(proc: Path = Path("/proc"), torch: str | None = None) -> Check:
    """Torch is built for the GPUs of this machine, if it has any. `torch` is its version."""
    files = sorted(proc.glob("driver/nvidia/gpus/*/information"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    if not names:
        return Check("GPUs", "ok", "none that NVIDIA's driver shows")
    release = torch or version("torch")
    return judged(
        "GPUs", not release.endswith("+cpu"), ", ".join(names),
        f"torch {release} is built without CUDA; to use them: pip install --force-reinstall "
        f"--index-url https://pypi.org/simple torch=={release.partition('+')[0]}",
    )


def cpu_quota(cgroups: Path = CGROUPS, proc: Path = PROC) -> Check:
    """No control group stops the daemon for the rest of a period, as `docker run --cpus` makes it.
    """
    quota = quota_cores(cgroups, proc)
    if quota == math.inf:
        return Check("CPU quota", "ok", "none")
    return Check(
        "CPU quota", "warn",
        f"{quota:g} cores: after using them up, every process waits for the next period",
        "pin to cores instead: `docker run --cpuset-cpus`, AllowedCPUs= in systemd",
    )


def realtime_priority() -> Check:
    """The environment process may use SCHED_FIFO."""
    permitted = fifo_permitted()
    return judged(
        "SCHED_FIFO", permitted,
        "permitted" if permitted else "not permitted: ticks are late when the cores are busy",
        "raise the rtprio limit to 50: /etc/security/limits.conf, LimitRTPRIO=50 in systemd, "
        "`--ulimit rtprio=50` in Docker",
    )


def locked_memory() -> Check:
    """The environment process may lock its memory."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    permitted = locking_permitted()
    return judged(
        "memlock limit", permitted, "unlimited" if permitted else f"{soft >> 20} MiB",
        "lift it: unlimited in /etc/security/limits.conf, LimitMEMLOCK=infinity in systemd, "
        "`--ulimit memlock=-1` in Docker",
    )


def cpu_governor(root: Path = Path("/sys/devices/system/cpu")) -> Check:
    """The cores do not clock down between two ticks."""
    files = root.glob("cpu[0-9]*/cpufreq/scaling_governor")
    # That of a core that is off cannot be read.
    governors = sorted({kernel_text(file) for file in files} - {""})
    if not governors:
        return Check("CPU governor", "ok", "not visible here (a virtual machine, as a rule)")
    return judged(
        "CPU governor", governors == ["performance"], ", ".join(governors),
        "`cpupower frequency-set -g performance` steadies the clock",
    )


def descriptor_access() -> Check:
    """Another process can open the shared memory through /proc."""
    descriptor = os.memfd_create("rtagent-doctor", os.MFD_CLOEXEC)
    try:
        opening = f"open('/proc/{os.getpid()}/fd/{descriptor}', 'r+b')"
        opened = subprocess.run([sys.executable, "-S", "-c", opening], capture_output=True)
    finally:
        os.close(descriptor)
    open_to_all = opened.returncode == 0
    return judged(
        "/proc/<pid>/fd", open_to_all, f"{'open' if open_to_all else 'closed'} to child processes",
        "workers share memory this way: mount /proc without hidepid, allow it in the sandbox",
        "bad",
    )


def jitter(measured: Jitter) -> Check:
    """A loop at the Game Boy's rate runs its ticks in time."""
    mode = "SCHED_FIFO" if measured["realtime"] else "normal priority"
    return judged(
        "jitter", measured["p99"] <= LATE_US,
        f"p50 {measured['p50']:.0f}, p99 {measured['p99']:.0f}, max {measured['max']:.0f} us late "
        f"({measured['ticks']} ticks, {mode})",
        "other programs hold the cores: stop them, or allow SCHED_FIFO (see above)",
    )


def state_directory(config: Config) -> Check:
    """What the state directory holds, and how much it may hold; bad if it cannot be used."""
    limits = config.run
    try:
        folder = config.state_dir
        if folder.exists():
            check_trusted(folder)
        runs, saved = run_folders(folder / "runs"), listing(folder / "checkpoints")
        # Of one that is absent, the folder in which it would be made.
        there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            raise UserError(f"{folder}: cannot be written; choose another with --state-dir")
    except (OSError, UserError) as error:
        text = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        found, _, advice = text.partition("; ")
        advice = advice or "choose another with --state-dir"
        return Check("state directory", "bad", found, advice)
    runs_bytes, saved_bytes = sum(map(bytes_in, runs)), sum(each["bytes"] for each in saved)
    return Check(
        "state directory", "ok",
        f"{folder}: runs {len(runs)} of {limits.keep_runs}, "
        f"{runs_bytes // MIB} of {limits.runs_mb} MiB (events {limits.events_mb} MiB and "
        f"TensorBoard {limits.tensorboard_mb} MiB of each); checkpoints {len(saved)} of "
        f"{limits.keep_checkpoints}, {saved_bytes // MIB} of {limits.checkpoints_mb} MiB; "
        f"replay {bytes_in(folder / 'replay') // MIB} MiB",
    )


CHECKS: tuple[Callable[[], Check], ...] = (
    operating_system, python, compiled_code, cores, load, gpus, cpu_quota, realtime_priority,
    locked_memory, memory, shared_memory, overcommit, swap, cpu_governor, descriptor_access,
)
"""The checks of the machine that need no measurement and no configuration."""
