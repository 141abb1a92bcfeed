"""Random faults in every process: the supervisor lives, the clock goes on, nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from benchmarks.reliability import faults
from benchmarks.reliability.faults import EVERYBODY, FAULTS, passed, stopped

FOUND = {
    "broken": None, "missed_ticks_after": [], "rows_lost_or_torn": 0, "left_behind": [],
    "last_checkpoint": "12 updates",
}


@pytest.mark.process
@pytest.mark.alone
def test_half_a_minute_of_random_faults() -> None:
    told = []
    for seed in ("5", "6"):
        options = ("--minutes", "0.4", "--seed", seed, "--json")
        command = [sys.executable, "-m", "benchmarks.reliability.faults", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600, check=False)
        told.append(found := json.loads(done.stdout))
        assert found["passed"] == (done.returncode == 0), told
        assert found["faults"] > 0, told
        if found["passed"]:
            return
        # Where a tick alone was missed, the machine itself may have been held up, but not twice.
        assert passed(found | {"missed_ticks_after": []}), told
    raise AssertionError(told)


def test_every_process_meets_faults() -> None:
    assert {role for roles, _ in FAULTS.values() for role in roles} == set(EVERYBODY)


@pytest.mark.parametrize("bad", [
    {"broken": "the supervisor has ended"}, {"missed_ticks_after": ["SIGKILL learner"]},
    {"rows_lost_or_torn": 1}, {"left_behind": ["process 7"]}, {"last_checkpoint": "none"},
    {"last_checkpoint": "bad: it is corrupt"},
])
def test_each_criterion_can_fail(bad: dict[str, object]) -> None:
    assert passed(FOUND)
    assert not passed(FOUND | bad)


def test_who_was_stopped_goes_on_where_the_wait_is_interrupted(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second Ctrl-C a stopped supervisor stayed, with all its processes."""
    sent: list[tuple[int, int]] = []
    watch: Any = SimpleNamespace(hold=Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(faults, "send", lambda *signalled: sent.append(signalled))
    with pytest.raises(KeyboardInterrupt):
        stopped(watch, 7, "supervisor")
    assert sent == [(7, signal.SIGSTOP), (7, signal.SIGCONT)]
