"""The checks of `rtagent doctor` of waking up: how late sleeps end, and why a core may be slow."""

from __future__ import annotations

from pathlib import Path

from rtagent.cli.jitter import Jitter
from rtagent.cli.verdicts import judged
from rtagent.memory.usage import kernel_text
from rtagent.processes.wake_ahead import CPU_SHARE
from rtagent.testing.report import Check

LATE_US = 300.0
"""A p99 of the sleeps' lateness above this takes nearly all of `CPU_SHARE` at 60 Hz to cover."""
SLOW_US = 100.0
"""A p50 above this is more than a timer's own lateness."""
DEEP_US = 50
"""A core that takes longer to wake up sleeps too deeply for a wall-clock loop."""
CPUS = Path("/sys/devices/system/cpu")
HALT_POLLING = Path("/sys/module/haltpoll/parameters/guest_halt_poll_ns")
LATENCY_LIMIT = Path("/dev/cpu_dma_latency")
COMMAND_LINE = Path("/proc/cmdline")


def wake_ups(measured: Jitter) -> Check:
    """The time ahead at which processes wake covers how late their sleeps end."""
    return judged(
        "wake-ups", measured["sleep_p99"] <= max(LATE_US, measured["ahead"]),
        f"a sleep of one tick ends p50 {measured['sleep_p50']:.0f}, p99 "
        f"{measured['sleep_p99']:.0f} us late; a process wakes {measured['ahead']:.0f} us ahead, "
        f"which takes {measured['share']:.1%} of a core",
        f"some frames find their process asleep: more than {CPU_SHARE:.0%} of a core is not spent "
        "on waking up early; see what cores sleep in, and stop other programs",
    )


def cpu_sleep(
    measured: Jitter, cpus: Path = CPUS, polling: Path = HALT_POLLING,
    limit: Path = LATENCY_LIMIT, command_line: Path = COMMAND_LINE,
) -> Check:
    """Cores do not sleep so deeply that waking up takes long; a warning needs late sleeps."""
    driver = kernel_text(cpus / "cpuidle/current_driver")
    slow = measured["sleep_p50"] > SLOW_US or measured["sleep_p99"] > LATE_US
    if any(option in kernel_text(command_line).split() for option in ("idle=poll", "idle=halt")):
        return Check("CPU sleep", "ok", "bounded by idle= on the kernel's command line")
    states = _states(cpus)
    bound_us = _bound_us(limit)
    shown = ", ".join(f"{name} {latency} us" for name, latency in states)
    usable = [state for state in states if bound_us is None or state[1] <= bound_us]
    if slow and usable and usable[-1][1] > DEEP_US:
        name, latency = usable[-1]
        return Check(
            "CPU sleep", "warn", f"cores sleep as deeply as {name}: {latency} us to wake up",
            f"`cpupower idle-set -D {DEEP_US}` as root, until the next start, or intel_idle."
            "max_cstate=1 on the kernel's command line; costs power",
        )
    if slow and driver == "haltpoll" and kernel_text(polling) == "0":
        return Check(
            "CPU sleep", "warn",
            "a virtual machine that gives its core back at once: the host has to wake it up",
            f"`echo 200000 > {polling}` as root keeps it for 0.2 ms first; on the host raise "
            "/sys/module/kvm/parameters/halt_poll_ns",
        )
    if states:
        return Check("CPU sleep", "ok", f"{driver or 'no driver'}: {shown}")
    return Check(
        "CPU sleep", "ok", "not visible here (a virtual machine, as a rule: its host decides)"
    )


def _states(cpus: Path) -> list[tuple[str, int]]:
    """The sleep states of the cores and their exit latencies in microseconds, the deepest last."""
    found = set()
    for state in cpus.glob("cpu[0-9]*/cpuidle/state[0-9]*"):
        name, latency, disabled = (
            kernel_text(state / part) for part in ("name", "latency", "disable")
        )
        if disabled != "1" and latency.isdecimal():
            found.add((name, int(latency)))
    return sorted(found, key=lambda state: state[1])


def _bound_us(limit: Path) -> int | None:
    """The longest exit latency that the kernel may choose at present; None if it is not known."""
    try:
        return int.from_bytes(limit.read_bytes()[:4], "little", signed=True)
    except OSError:
        return None
