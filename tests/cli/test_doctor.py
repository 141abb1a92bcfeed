"""`rtagent doctor`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rtagent.cli import checks, doctor
from rtagent.cli.checks import Check
from tests.cli.conftest import Run

NAMES = [
    "operating system",
    "Python",
    "cores",
    "SCHED_FIFO",
    "memlock limit",
    "memory",
    "CPU governor",
    "/proc/<pid>/fd",
    "jitter",
]


@pytest.mark.process
def test_json_has_every_check(run: Run) -> None:
    done = run("doctor", "--seconds", "0.3", "--json")
    report = json.loads(done.out)
    assert [check["name"] for check in report] == NAMES
    assert all(check["verdict"] in ("ok", "warn", "bad") for check in report)
    assert all(check["advice"] for check in report if check["verdict"] != "ok")
    assert done.code == int(any(check["verdict"] == "bad" for check in report))


@pytest.mark.process
def test_the_table_shows_the_jitter(run: Run) -> None:
    shown = run("doctor", "--seconds", "0.1").out
    assert "jitter" in shown
    assert "us late" in shown


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "1e9"])
def test_bad_seconds(run: Run, seconds: str) -> None:
    refused = run("doctor", "--seconds", seconds)
    assert refused.code == 2
    assert f"--seconds {float(seconds):g}" in refused.err


def test_something_bad_is_told_and_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Check("memory", "bad", "3 MiB available", "buy some")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: bad,))
    monkeypatch.setattr(doctor, "jitter", lambda seconds: Check("jitter", "ok", "none"))
    done = run("doctor")
    assert done.code == 1
    assert "3 MiB available" in done.out
    assert "buy some" in done.out


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = []
    for mib in (100, 1000, 8000):
        monkeypatch.setattr(checks, "available_memory", lambda mib=mib: mib << 20)
        verdicts.append(checks.memory().verdict)
    assert verdicts == ["bad", "warn", "ok"]


def test_no_realtime_permission_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "fifo_permitted", lambda: False)
    check = checks.realtime_priority()
    assert check.verdict == "warn"
    assert "rtprio" in check.advice


def test_an_old_kernel_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.platform, "release", lambda: "3.10.0-1160.el7")
    assert checks.operating_system().verdict == "bad"


@pytest.mark.parametrize(
    ("governors", "verdict"), [([], "ok"), (["performance"], "ok"), (["powersave"], "warn")]
)
def test_cpu_governor(tmp_path: Path, governors: list[str], verdict: str) -> None:
    for number, governor in enumerate(governors):
        folder = tmp_path / f"cpu{number}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text(f"{governor}\n")
    assert checks.cpu_governor(tmp_path).verdict == verdict
