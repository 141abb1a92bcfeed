"""Runs inside the measuring program: what is waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import runs


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
