"""`rtagent check-env`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from rtagent.cli import check_env
from rtagent.processes.interrupts import EXIT_INTERRUPTED
from rtagent.testing import Check, Report
from tests.cli.conftest import Refused, Run

DEFAULTS: dict[str, Any] = {"step_limit_s": 30.0, "reset_limit_s": 60.0, "settings": {}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the suite was asked for; it answers with a failure for ids that say so."""
    asked: list[tuple[Any, ...]] = []

    def check_realtime(env_id: str, *, progress: Any, **options: Any) -> Report:
        progress("step()")
        asked.append((env_id, options))
        bad = Check("rewards", "fail", "nan [3 times]", "find it")
        good = Check("noop", "warn", "action 0", "declare it")
        return Report(env_id, 50.0, (good, bad) if "Bad" in env_id else (good,))

    monkeypatch.setattr(check_env, "check_realtime", check_realtime)
    return asked


def found_usable(report: dict[str, Any]) -> str:
    """What the report says of whether the environment can be used."""
    checks = {check["name"]: check for check in report["checks"]}
    return str(checks["usable"]["found"])


def test_warnings_pass(run: Run, calls: list[tuple[Any, ...]]) -> None:
    shown = run("check-env", "Good-v0")
    assert shown.code == 0
    assert "warn" in shown.out
    assert "declare it" in shown.out
    assert calls == [("Good-v0", {"rate_hz": None, "kwargs": {}, "seconds": 5.0, **DEFAULTS})]


def test_a_failure_is_code_1_with_advice(run: Run, calls: list[tuple[Any, ...]]) -> None:
    shown = run("check-env", "Bad-v0", "--rate-hz", "30", "--kwargs", '{"speed": 2}')
    assert shown.code == 1
    assert "nan [3 times]" in shown.out
    assert "find it" in shown.out
    assert calls == [
        ("Bad-v0", {"rate_hz": 30.0, "kwargs": {"speed": 2}, "seconds": 5.0, **DEFAULTS})
    ]


def test_the_configuration_counts(
    run: Run, calls: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    file = tmp_path / "robot.toml"
    file.write_text('[env]\nid = "Good-v0"\nkwargs = { speed = 2 }\nstep_limit_s = 0.5\n')
    options = ["--set", "env.observation_key=front"]
    run("check-env", "--config", str(file), *options)
    run("check-env", "Other-v0", "--kwargs", "{}", "--config", str(file), *options)
    told = {
        "rate_hz": None, "kwargs": {"speed": 2}, "seconds": 5.0, "step_limit_s": 0.5,
        "reset_limit_s": 60.0, "settings": {"observation_key": "front"},
    }
    assert calls == [("Good-v0", told), ("Other-v0", {**told, "kwargs": {}})]


def test_json(run: Run, calls: list[tuple[Any, ...]]) -> None:
    report = run("check-env", "Bad-v0", "--json", "--seconds", "1").document(1)
    assert (report["ok"], report["environment"]) == (False, "Bad-v0")
    assert [check["verdict"] for check in report["checks"]] == ["warn", "fail"]


def test_sigterm_ends_it_as_ctrl_c_does(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that the environment had started ran on."""
    def signalled(*_: Any, **__: Any) -> None:
        assert callable(signal.getsignal(signal.SIGTERM)), "it would end the program at once"
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(check_env, "check_realtime", signalled)
    assert run("check-env", "CartPole-v1").code == EXIT_INTERRUPTED


@pytest.mark.parametrize("kwargs", ["[" * 5000, '{"speed": ' + "1" * 5000 + "}"])
def test_what_json_cannot_be_read_is_one_line(refused: Refused, kwargs: str) -> None:
    assert "not JSON" in refused("check-env", "CartPole-v1", "--kwargs", kwargs)


@pytest.mark.process
def test_an_unknown_environment_fails_with_a_hint(run: Run) -> None:
    report = run("check-env", "CartPol-v1", "--json").document(1)
    assert "did you mean CartPole-v1" in found_usable(report)


@pytest.mark.process
def test_what_no_configuration_takes_is_said_as_the_daemon_says_it(run: Run) -> None:
    shown = run("check-env", "CartPole-v1", "--kwargs", '{"speed": [Infinity]}', "--json")
    assert shown.code == 1
    assert "env.kwargs: speed has inf" in shown.out
    assert "ValidationError" not in shown.out


@pytest.mark.process
def test_it_says_what_the_agent_sees(run: Run) -> None:
    options = ("--rate-hz", "50", "--seconds", "0.2", "--json")
    report = run("check-env", "CartPole-v1", *options).document()
    assert found_usable(report) == "at 50 Hz; the agent sees a vector of 4 numbers"
