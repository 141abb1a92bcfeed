"""The benchmark of placement: what it reports of the cases that it has measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.learning import placement


@pytest.fixture(autouse=True)
def _other_tests_measure_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "keep_freed_memory", lambda: None)


def test_each_case_is_in_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(name: str, width: int, size: int, *_: Any) -> dict[str, Any]:
        return {
            "error": 0.1 if size < 64 else -0.2, "error_busy": 0.05, "speedup": size / 20.0,
            "two_cores": name == "nature",
        }

    monkeypatch.setattr(placement, "measure", measured)
    assert placement.main(["--cases", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert list(report["cases"]) == ["nature, B=16", "nature, B=64"]
    assert (report["within"], report["within_busy"], report["of"]) == (1, 2, 2)
    assert report["slower"] == ["nature, B=16"]


def test_a_plan_for_one_core_is_not_compared_with_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"error": 0.0, "error_busy": 0.0, "speedup": 0.9, "two_cores": False}
    monkeypatch.setattr(placement, "measure", lambda *_: row)
    assert placement.main(["--cases", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slower"] == []


def test_ddpg_is_measured_with_the_networks_of_the_paper() -> None:
    name, width, size = placement.CASES["ddpg, B=16"]
    row = placement.measure(name, width, size, 0.04, None)
    assert min(row["predicted_ms"], row["measured_ms"], row["single_ms"]) > 0.0
