"""The suite as users have it: environments that hang, die and leak, in a process of their own."""

from __future__ import annotations

import functools
import io
import os
import threading
from pathlib import Path
from typing import Any

import bad_worlds
import pytest

from rtagent.errors import UserError
from rtagent.testing import check_realtime
from rtagent.testing.conformance import LONGEST_LINE, last_words
from tests.conftest import eventually, open_descriptors

EXAMPLES = Path(__file__).parents[2] / "examples"
SLOW_HZ = 5.0
"""So slow that a busy machine makes no difference."""


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """What the environment of every process that this test starts has in it."""
    monkeypatch.setenv("STARTED_BY", str(os.getpid()))
    return f"STARTED_BY={os.getpid()}".encode()


def sleepers(own: bytes) -> int:
    """Processes that `Leaking` has started for this test."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                sleeps = (entry / "cmdline").read_bytes() == b"sleep\x003607\x00"
                count += sleeps and own in (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
    return count


@pytest.mark.process
def test_the_example_of_an_own_environment_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    told: list[str] = []
    # Once more where the machine was held up in a step or a reset, and warns of it.
    for _ in range(2):
        report = check_realtime(
            "custom_env:Pursuit-v0", kwargs={"speed": 0.1}, rate_hz=SLOW_HZ, seconds=1.0,
            progress=told.append,
        )
        report.raise_for_failures()
        if {check.verdict for check in report.checks} == {"ok"}:
            break
    assert {check.verdict for check in report.checks} == {"ok"}, str(report)
    assert (report.environment, report.rate_hz) == ("custom_env:Pursuit-v0", SLOW_HZ)
    assert told[0] == "making the environment"


@pytest.mark.process
def test_a_step_that_does_not_come_back_is_noticed() -> None:
    descriptors, threads = open_descriptors(), set(threading.enumerate())
    report = check_realtime("bad_worlds:bad/Hanging-v0", seconds=1.0, step_limit_s=2.0)
    assert [check.name for check in report.failures] == ["hang"]
    assert report.check("hang").found == "step() did not come back within 2 s"
    # What was found before it is not lost.
    assert report.check("reset time").verdict in ("ok", "warn")
    assert report.check("close").verdict == "skip"
    assert open_descriptors().items() <= descriptors.items()
    assert set(threading.enumerate()) <= threads


@pytest.mark.process
def test_a_process_that_dies_is_an_error_with_its_last_words() -> None:
    report = check_realtime("bad_worlds:bad/Dying-v0", rate_hz=SLOW_HZ, seconds=1.0)
    assert report.check("errors").verdict == "fail"
    assert "died in step() (SIGABRT)" in report.check("errors").found
    assert "no more cores" in report.check("errors").found


@pytest.mark.parametrize(
    ("code", "reason"), [(-6, "SIGABRT"), (-40, "signal 40"), (3, "exit code 3")]
)
def test_the_last_words_are_short_however_much_was_printed(code: int, reason: str) -> None:
    said = io.BytesIO(b"y" * 100_000 + b"\nno more cores\n")
    assert last_words(code, said) == f"({reason}): no more cores"
    said = io.BytesIO(b"y" * 100_000)
    assert last_words(code, said) == f"({reason}): {'y' * LONGEST_LINE}"
    assert last_words(code, io.BytesIO()) == f"({reason})"


@pytest.mark.process
def test_leaks_are_found_and_ended(own: bytes) -> None:
    report = check_realtime(functools.partial(bad_worlds.Leaking), rate_hz=SLOW_HZ, seconds=1.0)
    assert [check.name for check in report.failures] == ["close"]
    assert "1 more processes" in report.check("close").found
    assert "more descriptors" in report.check("close").found
    eventually(lambda: sleepers(own) == 0, "what it left has ended")


def test_an_environment_that_cannot_be_pickled_is_not_tried() -> None:
    report = check_realtime("CartPole-v1", kwargs={"speeds": (n for n in range(3))})
    assert [check.name for check in report.failures] == ["pickling"]
    assert {check.verdict for check in report.checks[1:]} == {"skip"}


@pytest.mark.parametrize(
    "bad", [{"rate_hz": 0.0}, {"rate_hz": 1e4}, {"rate_hz": float("nan")}, {"seconds": -1.0}]
)
def test_illegal_arguments(bad: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(bad))):
        check_realtime("CartPole-v1", **bad)
