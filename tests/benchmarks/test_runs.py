"""Runs inside the measuring program: what is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import runs
from benchmarks.experiments import r3


def test_nobody_waits_for_a_learner_that_keeps_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial never ended."""
    looks: list[float] = []
    roles = [{"role": "learner", "name": "learner 0", "state": "starting", "last_error": None}]

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            roles[0] |= {"state": "failed", "last_error": "ValueError: no luck"}

    monkeypatch.setattr(runs, "time", SimpleNamespace(sleep=sleep))
    runtime: Any = SimpleNamespace(
        stats=lambda: {"learning": {"updates": 0}}, status=lambda: {"roles": roles}
    )
    with pytest.raises(RuntimeError, match=r"^learner 0 has failed: ValueError: no luck"):
        runs.wait_learning(runtime)
    assert len(looks) == 3
    learned: Any = SimpleNamespace(stats=lambda: {"learning": {"updates": 1}})
    runs.wait_learning(learned)


def test_rows_of_a_run_whose_process_keeps_failing_are_no_result(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "time", SimpleNamespace(sleep=lambda seconds: None))
    with pytest.raises(RuntimeError, match="inference 0 has failed: no policy"):
        runs.rows_of(failing("inference"), 3.0)


def test_horizons_that_will_not_end_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r3, "clock", SimpleNamespace(sleep=lambda seconds: None))
    with pytest.raises(RuntimeError, match="learner 0 has failed: no policy"):
        r3._ends(failing("learner"), 3)


def failing(role: str) -> Any:
    """A run with a process that keeps failing."""
    failed = {"role": role, "name": f"{role} 0", "state": "failed", "last_error": "no policy"}
    world = SimpleNamespace(
        ledger=SimpleNamespace(newest=7, read=lambda first, stop: []),
        horizon=SimpleNamespace(read=lambda: SimpleNamespace(number=0)),
    )
    return SimpleNamespace(world=world, status=lambda: {"roles": [failed]})
