"""From a frame to its action: also a late action counts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.acting import registration
from benchmarks.acting.registration import ANSWER_S, _ours


@pytest.mark.parametrize(("after_s", "counts"), [(0.0001, True), (0.02, True), (2.0, False)])
def test_an_action_that_comes_after_half_a_tick_counts(
    after_s: float, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ours were left out, so the slowest of one side alone were missing in its figures."""
    now = [5.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    class Written:
        def __getitem__(self, number: int) -> float:
            return 5.0 + after_s if now[0] >= 5.0 + after_s else 0.0

    monkeypatch.setattr(
        registration, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    )
    world: Any = SimpleNamespace(
        metrics=SimpleNamespace(environment=SimpleNamespace()),
        frames=SimpleNamespace(publish=lambda *_: None),
    )
    ticks: Any = SimpleNamespace(wait=lambda: 5.0, due=5.0)
    found = _ours(world, 0, ticks, Written())
    if counts:
        assert found == pytest.approx((1e6 * after_s, 1e6 * after_s))
    else:
        assert found is None
        assert now[0] == pytest.approx(5.0 + ANSWER_S, abs=0.01)
