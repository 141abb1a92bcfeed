"""The systemd unit: what must be in it, and what must not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rtagent.cli import command_parser
from rtagent.processes.scheduling import FIFO_PRIORITY, SUPERVISOR_NICE
from rtagent.supervisor.child import KILL_AFTER_S
from rtagent.supervisor.children import LAST_CHECKPOINT_S

FILE = Path(__file__).parents[2] / "deploy" / "rtagent.service"
MOST_EXPOSURE = 2.0


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    """Values by section and key; a key may come several times."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


@pytest.mark.parametrize(("key", "value"), {
    "Type": "notify", "NotifyAccess": "main", "Restart": "on-failure", "KillMode": "mixed",
    "DynamicUser": "yes", "StateDirectory": "rtagent", "StateDirectoryMode": "0700",
    "UMask": "0077", "LimitRTPRIO": str(FIFO_PRIORITY), "LimitNICE": str(SUPERVISOR_NICE),
    "LimitMEMLOCK": "infinity", "NoNewPrivileges": "yes", "CapabilityBoundingSet": "",
    "ProtectSystem": "strict", "ProtectHome": "yes", "PrivateTmp": "yes",
    "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6",
    # SCHED_FIFO, /proc/meminfo, and the machine code of oneDNN.
    "RestrictRealtime": "no", "ProcSubset": "all", "MemoryDenyWriteExecute": "no",
}.items())
def test_essential_lines(unit: dict[str, list[str]], key: str, value: str) -> None:
    assert unit[f"Service.{key}"] == [value]


def test_system_calls_are_filtered(unit: dict[str, list[str]]) -> None:
    assert unit["Service.SystemCallFilter"] == ["@system-service", "~@privileged"]
    # An allowance that is not there must look like a missing permission, not end the process.
    assert unit["Service.SystemCallErrorNumber"] == ["EPERM"]


def test_the_scheduler_is_left_to_the_processes(unit: dict[str, list[str]]) -> None:
    assert not [key for key in unit if re.search(r"Service\.(CPUSched|Nice|IOSched)", key)]


def test_the_limits_of_time_leave_the_supervisor_its_own(unit: dict[str, list[str]]) -> None:
    # The supervisor is quicker with whoever hangs, and kills whoever does not leave.
    assert int(unit["Service.WatchdogSec"][0]) >= 15
    assert int(unit["Service.TimeoutStopSec"][0]) > 2 * LAST_CHECKPOINT_S + KILL_AFTER_S + 3.0


def test_the_command_is_one_that_exists(unit: dict[str, list[str]]) -> None:
    (command,) = unit["Service.ExecStart"]
    program, name, *arguments = command.split()
    assert (Path(program).name, name) == ("rtagent", "serve")
    assert command_parser(name).parse_args(arguments).state_dir == Path("%S/rtagent")
    # The login address carries the token, and the journal has other readers.
    assert unit["Service.StandardOutput"] == ["null"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_agrees(tmp_path: Path) -> None:
    program = tmp_path / "rtagent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / FILE.name
    copy.write_text(FILE.read_text().replace("/opt/rtagent/bin/rtagent", str(program)))
    told = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True, text=True, check=False, timeout=300,
    )
    # Of other units it may complain as it likes.
    assert not [line for line in told.stderr.splitlines() if FILE.name in line]
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(copy)],
        capture_output=True, text=True, check=False, timeout=300,
    )
    exposure = re.search(r"exposure level for \S+: ([\d.]+)", judged.stdout)
    if exposure is None:
        pytest.skip("this systemd-analyze cannot judge a file")
    assert float(exposure[1]) < MOST_EXPOSURE
