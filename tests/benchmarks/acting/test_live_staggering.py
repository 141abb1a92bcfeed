"""The benchmark of staggering in the running system: its command."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.acting import live_staggering


def test_all_cases_are_measured_by_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = []
    monkeypatch.setattr(live_staggering, "measure_jitter", lambda seconds: {"p50": 7.0})
    monkeypatch.setattr(live_staggering, "measure", lambda *run: measured.append(run) or {})
    monkeypatch.setattr(live_staggering, "passed", lambda case, result: None)
    monkeypatch.setattr(sys, "argv", ["live_staggering", "--json"])
    assert live_staggering.main() == 0
    assert measured == [(case.settings, case.seconds) for case in live_staggering.CASES]
    assert json.loads(capsys.readouterr().out)["floor"] == {"p50": 7.0}, "no text of Python's"


def test_a_case_in_which_nobody_acted_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = {
        "algorithm": "adaptive", "inaction_percent": 100.0, "strict_inaction_percent": 100.0,
        "interaction_ticks": None, "gap_cv": None, "delay_mean": None, "overwritten": 0,
        "lateness_p99_us": 1.0,
    }
    monkeypatch.setattr(live_staggering, "measure_jitter", lambda seconds: "unmeasured")
    monkeypatch.setattr(live_staggering, "measure", lambda settings, seconds: result)
    monkeypatch.setattr(sys, "argv", ["live_staggering", "thirty"])
    assert live_staggering.main() == 1
    assert "interaction unknown ticks (CV unknown)  delay unknown" in capsys.readouterr().out
