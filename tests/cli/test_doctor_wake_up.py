"""`rtagent doctor` on waking up."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtagent.cli.doctor_wake_up import cpu_sleep, wake_ups
from tests.cli.test_doctor import jitter

IN_TIME = {"sleep_p50": 50.0, "sleep_p99": 90.0}
LATE = {"sleep_p50": 200.0, "sleep_p99": 1800.0}
DEEP = {"POLL": 0, "C1": 2, "C6": 133}
HALTPOLL = {"POLL": 0, "haltpoll": 1}


def test_lateness_time_ahead_and_its_price_are_shown() -> None:
    check = wake_ups(jitter())
    assert check.verdict == "ok"
    for part in ("p50 60", "p99 120 us late", "140 us ahead", "0.5% of a core"):
        assert part in check.found


@pytest.mark.parametrize(("ahead", "verdict"), [(700.0, "warn"), (1900.0, "ok")])
def test_wake_ups_that_the_time_ahead_does_not_cover(ahead: float, verdict: str) -> None:
    assert wake_ups(jitter(**LATE, ahead=ahead)).verdict == verdict


@pytest.mark.parametrize(("driver", "states", "files", "measured", "told", "advice"), [
    ("intel_idle", DEEP, {}, LATE, "C6: 133 us", "cpupower idle-set -D 50"),
    # What is not measured is no fault.
    ("intel_idle", DEEP, {}, IN_TIME, "C6 133 us", ""),
    # States that are ruled out or disabled.
    ("intel_idle", DEEP, {"limit": b"\x14\0\0\0"}, LATE, "C6 133 us", ""),
    ("intel_idle", DEEP, {f"cpus/cpu{cpu}/cpuidle/state2/disable": b"1" for cpu in (0, 1)}, LATE,
     "C1 2 us", ""),
    ("acpi_idle", {"C3": 400}, {"command_line": b"quiet idle=poll\n"}, LATE, "by idle=", ""),
    ("acpi_idle", {"C3": 400}, {"command_line": b"quiet idle=halt\n"}, LATE, "by idle=", ""),
    ("haltpoll", HALTPOLL, {"polling": b"0\n"}, LATE, "gives its core back", "halt_poll_ns"),
    ("haltpoll", HALTPOLL, {"polling": b"200000\n"}, LATE, "haltpoll 1 us", ""),
    ("", {}, {}, LATE, "not visible", ""),
])
def test_cpu_sleep(
    tmp_path: Path, driver: str, states: dict[str, int], files: dict[str, bytes],
    measured: dict[str, float], told: str, advice: str,
) -> None:
    said = {"cpus/cpuidle/current_driver": driver.encode(), "command_line": b"quiet\n"}
    for cpu in (0, 1):
        for number, (name, latency) in enumerate(states.items()):
            state = f"cpus/cpu{cpu}/cpuidle/state{number}"
            said |= {f"{state}/name": name.encode(), f"{state}/latency": b"%d\n" % latency,
                     f"{state}/disable": b"0\n"}
    for path, content in {**said, **files}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    places = (tmp_path / name for name in ("cpus", "polling", "limit", "command_line"))
    check = cpu_sleep(jitter(**measured), *places)
    assert told in check.found
    assert (check.verdict, bool(check.advice)) == (("warn", True) if advice else ("ok", False))
    assert advice in check.advice
