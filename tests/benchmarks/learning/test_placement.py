"""The benchmark of placement: what it reports of the cases that it has measured."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.learning import placement
from rtagent.learning.placed import StepTimes
from rtagent.placement.profile import Profile
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


def test_each_turn_is_compared_with_its_own_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is half as fast in the second turn, and the measured time alone in the third."""
    profile, slow = made_profile(), slower(made_profile())
    predicted_ms = 1e-3 * place(profile).predicted_us
    profiles = iter([profile, slow, profile])
    lengths = iter([1.1 * predicted_ms, 2.4 * predicted_ms, 1.5 * predicted_ms])
    single_ms = 3.0 * predicted_ms

    def measured(*_: Any, **__: Any) -> StepTimes:
        planned_ms = next(lengths)
        return StepTimes((planned_ms,), (single_ms,), (planned_ms,))

    monkeypatch.setattr(placement, "take_profile", lambda *_, **__: next(profiles))
    monkeypatch.setattr(placement, "measure_placement", measured)
    row = placement.measure("mlp", 1, 32, 1.0, 3, None)
    errors = [row[f"error{which}"] for which in ("", "_least", "_most", "_first")]
    assert errors == pytest.approx([0.2, 0.1, 0.5, 0.1])
    assert row["predicted_ms"] == pytest.approx(predicted_ms)
    assert row["measured_ms"] == pytest.approx(1.5 * predicted_ms)
    assert row["speedup"] == pytest.approx(2.0)


@pytest.mark.parametrize("cores", [1, 2])
def test_a_plan_takes_the_times_of_another_profile(cores: int) -> None:
    profile = made_profile(cores=cores, beside=1.2)
    chosen = place(profile)
    assert placement.with_times(chosen, profile).plan == chosen.plan
    again = placement.with_times(chosen, slower(profile))
    assert [each.unit for each in again.plan.placed] == [each.unit for each in chosen.plan.placed]
    assert again.predicted_us == pytest.approx(2.0 * chosen.predicted_us)
    assert again.predicted_single_us == pytest.approx(2.0 * chosen.predicted_single_us)


def slower(profile: Profile) -> Profile:
    """The same step on a machine that takes twice as long."""
    parts = tuple(
        replace(part, alone_us=twice(part.alone_us), beside_us=twice(part.beside_us))
        for part in profile.parts
    )
    return replace(
        profile, parts=parts, handover_us=2.0 * profile.handover_us,
        step_us=twice(profile.step_us), split_us=twice(profile.split_us),
    )


def twice(times: dict[str, float]) -> dict[str, float]:
    return {precision: 2.0 * us for precision, us in times.items()}


def test_ddpg_is_measured_with_the_networks_of_the_paper() -> None:
    name, width, size = placement.CASES["ddpg, B=16"]
    row = placement.measure(name, width, size, 0.04, 2, None)
    assert row["turns"] == 2
    assert min(row["predicted_ms"], row["measured_ms"], row["single_ms"]) > 0.0
