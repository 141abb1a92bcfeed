"""The benchmark of placement: what it reports of the cases that it has measured."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.learning import placement
from rtagent.placement.step import place
from tests.placement.steps import made_profile


@pytest.fixture(autouse=True)
def _other_tests_measure_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "keep_freed_memory", lambda: None)


def test_each_case_is_in_the_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(name: str, width: int, size: int, *_: Any) -> dict[str, Any]:
        return {
            "error": 0.1 if size < 64 else -0.2, "error_first": 0.2, "error_busy": 0.05,
            "speedup": size / 20.0, "two_cores": name == "nature",
        }

    monkeypatch.setattr(placement, "measure", measured)
    assert placement.main(["--cases", "2", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert list(report["cases"]) == ["nature, B=16", "nature, B=64"]
    assert (report["within"], report["within_first"], report["within_busy"]) == (1, 0, 2)
    assert report["of"] == 2
    assert report["slower"] == ["nature, B=16"]


def test_a_plan_for_one_core_is_not_compared_with_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"error": 0.0, "error_first": 0.0, "error_busy": 0.0, "speedup": 0.9, "two_cores": False}
    monkeypatch.setattr(placement, "measure", lambda *_: row)
    assert placement.main(["--cases", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["slower"] == []


@pytest.mark.parametrize("cores", [1, 2])
def test_a_plan_takes_the_times_of_another_profile(cores: int) -> None:
    profile = made_profile(cores=cores, beside=1.2)
    chosen = place(profile)
    assert placement.with_times(chosen, profile).plan == chosen.plan
    parts = [
        replace(part, alone_us=_twice(part.alone_us), beside_us=_twice(part.beside_us))
        for part in profile.parts
    ]
    slow = replace(profile, parts=tuple(parts), handover_us=2.0 * profile.handover_us,
                   step_us=_twice(profile.step_us), split_us=_twice(profile.split_us))
    again = placement.with_times(chosen, slow)
    assert [each.unit for each in again.plan.placed] == [each.unit for each in chosen.plan.placed]
    assert again.predicted_us == pytest.approx(2.0 * chosen.predicted_us)
    assert again.predicted_single_us == pytest.approx(2.0 * chosen.predicted_single_us)


def _twice(times: dict[str, float]) -> dict[str, float]:
    return {precision: 2.0 * us for precision, us in times.items()}


def test_ddpg_is_measured_with_the_networks_of_the_paper() -> None:
    name, width, size = placement.CASES["ddpg, B=16"]
    row = placement.measure(name, width, size, 0.04, 2, None)
    assert row["error_least"] <= row["error"] <= row["error_most"]
    assert min(row["predicted_ms"], row["measured_ms"], row["single_ms"]) > 0.0
