"""What the benchmark of the arm is judged by; nothing is learned and nothing acts here."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import benchmarks.acting
from benchmarks.acting import arm


@pytest.mark.parametrize(("inaction", "code"), [
    ((0.0, 0.0), 0), ((0.0, 0.25), 1), ((0.25, 0.0), 1),
])
def test_the_policy_must_act_on_every_tick_of_both_runs(
    monkeypatch: pytest.MonkeyPatch, inaction: tuple[float, float], code: int
) -> None:
    def drive(folder: Path, processes: int, seconds: float) -> dict[str, Any]:
        return {"inaction": inaction[processes - 1], "rows": None, "frames": None}

    saved = SimpleNamespace(save=lambda policy, folder: None)
    monkeypatch.setattr(benchmarks.acting, "tiny_lerobot", saved, raising=False)
    monkeypatch.setattr(arm, "imitate", lambda updates: (None, 0.0))
    monkeypatch.setattr(arm, "drive", drive)
    monkeypatch.setattr(sys, "argv", ["arm", "--json"])
    assert arm.main() == code
