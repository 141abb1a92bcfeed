"""What is said of the gain of an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.acting import engines
from benchmarks.acting.engines import in_turns, show


def result(network: str, times_eager: float) -> dict[str, Any]:
    call = {"cpu_ms": 1.0, "p50_ms": 1.0, "p99_ms": 1.0, "agreement": 1.0,
            "first_cpu_ms": 1.0, "first_times_eager": 1.0}
    return {"network": network, "alone": {1: {
        "parameters": 100, "first_conversion_cpu_s": 1.0, "conversion_cpu_s": 0.1,
        "calls": {"torch eager float32": {**call, "times_eager": 1.0},
                  "auto: openvino int8": {**call, "times_eager": times_eager}},
    }}}


@pytest.mark.parametrize(("network", "times_eager", "reached"), [
    ("resnet", 6.1, True), ("resnet", 4.1, False),
    # The target is that of the resnet of this width.
    ("mlp", 4.1, True),
])
def test_a_target_is_held_against_its_own_network(
    network: str, times_eager: float, reached: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(result(network, times_eager)) is reached
    assert ("MISSED" in capsys.readouterr().out) is not reached


def test_the_first_call_of_a_turn_and_the_last_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(engines.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(engines.time, "monotonic", lambda: 2.0 * now[0])
    called: list[str] = []

    def call(name: str, spent_s: float) -> engines.Call:
        def spend(observation: np.ndarray) -> np.ndarray:
            cold = called[-1:] != [name]
            called.append(name)
            now[0] += 3.0 * spent_s if cold else spent_s
            return observation

        return spend

    calls = {"slow": call("slow", 4.0), "fast": call("fast", 1.0)}
    times = in_turns(calls, [np.zeros(1)], 2)
    assert times["slow"].tolist() == [[4000.0, 8000.0, 12000.0]] * 2
    assert times["fast"].tolist() == [[1000.0, 2000.0, 3000.0]] * 2
    eager = np.array([[8000.0, 9000.0, 12000.0]])
    figures = engines._figures(times["fast"], eager, [True, False])
    assert figures == {
        "cpu_ms": 1000.0, "times_eager": 8.0, "p50_ms": 2000.0, "p99_ms": 2000.0,
        "first_cpu_ms": 3000.0, "first_times_eager": 4.0, "agreement": 0.5,
    }
