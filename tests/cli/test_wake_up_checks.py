"""`rtagent doctor` on waking up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rtagent.cli.verdicts import Check
from rtagent.cli.wake_up_checks import cpu_sleep, wake_ups
from tests.cli.test_doctor import jitter

LATE = {"sleep_p50": 200.0, "sleep_p99": 1800.0}


class Machine:
    """What the kernel says of a machine's sleep, in files of the test's."""

    def __init__(self, folder: Path) -> None:
        self.cpus, self.polling = folder / "cpus", folder / "polling"
        self.limit, self.command_line = folder / "limit", folder / "command_line"
        self.command_line.write_text("quiet root=/dev/sda1\n")

    def sleeps(self, driver: str, **states: int) -> None:
        write(self.cpus / "cpuidle/current_driver", driver)
        for cpu in range(2):
            for number, (name, latency) in enumerate(states.items()):
                state = self.cpus / f"cpu{cpu}/cpuidle/state{number}"
                write(state / "name", name)
                write(state / "latency", str(latency))
                write(state / "disable", "0")

    def check(self, **measured: Any) -> Check:
        return cpu_sleep(
            jitter(**{**LATE, **measured}), self.cpus, self.polling, self.limit, self.command_line,
        )


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_lateness_time_ahead_and_its_price_are_shown() -> None:
    check = wake_ups(jitter())
    assert check.verdict == "ok"
    for part in ("p50 60", "p99 120 us late", "140 us ahead", "0.5% of a core"):
        assert part in check.found


@pytest.mark.parametrize(("ahead", "verdict"), [(700.0, "warn"), (1900.0, "ok")])
def test_wake_ups_that_the_time_ahead_does_not_cover(ahead: float, verdict: str) -> None:
    assert wake_ups(jitter(**LATE, ahead=ahead)).verdict == verdict


def test_a_core_that_sleeps_too_deeply_is_named(machine: Machine) -> None:
    machine.sleeps("intel_idle", POLL=0, C1=2, C6=133)
    check = machine.check()
    assert check.verdict == "warn"
    assert "C6: 133 us" in check.found
    assert "cpupower idle-set -D 50" in check.advice


def test_what_is_not_measured_is_no_fault(machine: Machine) -> None:
    machine.sleeps("intel_idle", POLL=0, C1=2, C6=133)
    check = machine.check(sleep_p50=50.0, sleep_p99=90.0)
    assert (check.verdict, check.advice) == ("ok", "")
    assert "C6 133 us" in check.found


def test_deep_states_that_are_disabled_or_ruled_out_are_none(machine: Machine) -> None:
    machine.sleeps("intel_idle", POLL=0, C1=2, C6=133)
    machine.limit.write_bytes((20).to_bytes(4, "little"))
    assert machine.check().verdict == "ok"
    machine.limit.unlink()
    for cpu in range(2):
        write(machine.cpus / f"cpu{cpu}/cpuidle/state2/disable", "1")
    assert machine.check().verdict == "ok"


@pytest.mark.parametrize("option", ["idle=poll", "idle=halt"])
def test_sleep_bounded_on_the_command_line(machine: Machine, option: str) -> None:
    machine.sleeps("acpi_idle", C1=1, C3=400)
    machine.command_line.write_text(f"quiet {option}\n")
    assert machine.check().verdict == "ok"


@pytest.mark.parametrize(("polling", "verdict"), [("0", "warn"), ("200000", "ok")])
def test_a_virtual_machine_that_does_not_poll(machine: Machine, polling: str, verdict: str) -> None:
    machine.sleeps("haltpoll", POLL=0, haltpoll=1)
    write(machine.polling, polling)
    check = machine.check()
    assert check.verdict == verdict
    assert ("halt_poll_ns" in check.advice) == (verdict == "warn")


def test_a_machine_that_says_nothing(machine: Machine) -> None:
    check = machine.check()
    assert check.verdict == "ok"
    assert "not visible" in check.found
