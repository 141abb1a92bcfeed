"""What the benchmark of adding says of times that were measured elsewhere."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from benchmarks.replay import adding


@pytest.mark.parametrize(("us", "passed"), [(4.0, True), (6.0, False)])
def test_its_figures_can_be_told_as_json(
    us: float, passed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict was a number of NumPy's, so it ended with a traceback when all was measured."""
    monkeypatch.setattr(adding, "measure_jitter", lambda seconds: {})
    monkeypatch.setattr(adding, "measure", lambda additions, seconds: {"ours": np.full(10, us)})
    monkeypatch.setattr(sys, "argv", ["adding", "--json"])
    assert adding.main() == int(not passed)
    told = json.loads(capsys.readouterr().out)
    assert told["passed"] is passed
    assert told["figures"] == {"ours": {"p50_us": us, "p99_us": us}}
