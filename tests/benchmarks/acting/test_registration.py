"""From a frame to its action: also a late action counts."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.acting import registration
from benchmarks.acting.registration import ANSWER_S, _ours, _over_queues
from rtagent.clock import VirtualClock


@pytest.mark.parametrize(("after_s", "counts"), [(0.0001, True), (0.02, True), (2.0, False)])
def test_an_action_that_comes_after_half_a_tick_counts(
    after_s: float, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only ours were left out, so the slowest of one side alone were missing in its figures."""
    clock = VirtualClock(5.0)

    class Written:
        def __getitem__(self, number: int) -> float:
            return 5.0 + after_s if clock.now() >= 5.0 + after_s else 0.0

    monkeypatch.setattr(
        registration, "time", SimpleNamespace(monotonic=clock.now, sleep=clock.advance)
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
        assert clock.now() == pytest.approx(5.0 + ANSWER_S, abs=0.01)


def test_the_action_of_a_frame_that_was_given_up_is_not_that_of_the_next() -> None:
    """Each frame after it had the action before its own, at once, and the queue looked fast."""
    frames: Any = SimpleNamespace(put=lambda item: None)
    ticks: Any = SimpleNamespace(wait=lambda: 5.0)
    actions: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    for number in (6, 7, 8):
        actions.put((number, 0))
    assert _over_queues(frames, actions, 7, ticks) is not None
    assert actions.get_nowait() == (8, 0)
