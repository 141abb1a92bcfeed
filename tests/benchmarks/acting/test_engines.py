"""What is said of the gain of an engine."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.acting.engines import show


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
