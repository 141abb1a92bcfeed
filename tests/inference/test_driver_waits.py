"""What a driver waits for: a time, a frame, an update."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from rtagent.clock import NANO
from rtagent.inference.driver import Driver
from rtagent.inference.frame_wait import SLICE_S
from rtagent.staggering.instructions import Deposit, Infer, Learn, WaitFrame, WaitUntil
from tests.desired import with_changes
from tests.inference.driver_bench import START_S, Bench


def test_wait_until_beats_all_the_while(bench: Bench) -> None:
    (reply,) = bench.follow(WaitUntil(START_S + 5.0))
    assert reply.now == pytest.approx(START_S + 5.0, abs=1e-3)
    assert bench.beats >= 5.0 / SLICE_S


def test_time_that_is_past_is_not_waited_for(bench: Bench) -> None:
    (reply,) = bench.follow(WaitUntil(START_S - 5.0))
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_wait_for_a_frame(bench: Bench) -> None:
    bench.bell.during = lambda: bench.show(5)
    (reply,) = bench.follow(WaitFrame(5))
    assert reply.newest == 5


def test_wait_for_a_frame_ends_with_its_slice(bench: Bench) -> None:
    bench.show(0)
    (reply,) = bench.follow(WaitFrame(1))
    assert reply.newest == 0
    assert reply.now <= START_S + 2 * SLICE_S


class World:
    """Frames that come on a steady clock, and a bell whose waits end `late_s` late."""

    def __init__(self, bench: Bench, late_s: float) -> None:
        self.bench = bench
        self.late_s = late_s
        bench.frames.bell = self  # type: ignore[assignment]
        self.tick_s = bench.blueprint.tick_seconds
        self.start_s = START_S + 0.001
        bench.metrics.environment.anchor_ns = round(self.start_s * NANO)
        look = bench.clock.now
        bench.clock.now = lambda: self._show(look())  # type: ignore[method-assign]

    def due(self, frame: int) -> float:
        return self.start_s + frame * self.tick_s

    def _show(self, now: float) -> float:
        while self.due(self.bench.frames.newest + 1) <= now:
            self.bench.show(self.bench.frames.newest + 1)
        return now

    def ring(self) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], clock: Any, timeout: float) -> bool:
        end = clock.now() + timeout
        while not condition() and clock.now() < end:
            clock.sleep_until(min(end, self.due(self.bench.frames.newest + 1)))
        clock.advance(self.late_s)
        return clock.now() > 0.0 and condition()


@pytest.mark.parametrize("late_s", [30e-6, 600e-6])
def test_the_driver_is_awake_when_a_frame_comes(bench: Bench, late_s: float) -> None:
    """Also on a machine that wakes up so late that no constant time ahead would do."""
    frames = 120
    world = World(bench, late_s)
    replies = bench.follow(*[WaitFrame(frame) for frame in range(frames)])
    seen_late = [reply.now - world.due(frame) for frame, reply in enumerate(replies)][40:]
    assert max(seen_late) < 30e-6
    ahead_s, awake_s = bench.awake
    assert late_s < ahead_s < late_s + 150e-6
    assert awake_s < 0.03 * frames * world.tick_s


def test_what_numpy_does_with_an_answer_is_rehearsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that has not run since the last tick takes three times as long."""
    monkeypatch.setattr("tests.inference.driver_bench.TAU_S", 1e-4)
    World(bench, 30e-6)
    called: dict[str, set[str]] = {"_rehearse": set(), "_carry_out": set()}

    def count(name: str) -> None:
        run = getattr(Driver, name)

        def counted(driver: Driver, argument: Any) -> Any:
            def profile(frame: Any, event: str, callee: Any) -> None:
                if event == "c_call":
                    called[name].add(callee.__qualname__)

            if not isinstance(argument, WaitFrame):
                sys.setprofile(profile)
            try:
                return run(driver, argument)
            finally:
                sys.setprofile(None)

        monkeypatch.setattr(Driver, name, counted)

    for name in called:
        count(name)
    bench.follow(
        *(each for n in range(9) for each in (WaitFrame(n), Infer(n), Deposit(n + 20, n)))
    )
    arithmetic = {each for each in called["_carry_out"] if each.startswith(("ndarray.", "ufunc."))}
    assert arithmetic
    assert arithmetic <= called["_rehearse"]


SEQUENTIAL = {"algorithm": "sequential-infer-learn"}


@pytest.fixture
def waiting(bench: Bench) -> Bench:
    """A driver that waits for updates of a learner that has just beaten."""
    bench.desired = with_changes(
        bench.desired, inference=SEQUENTIAL, learner_ring=[0], learning={"lease_s": 1.0}
    )
    bench.metrics.learners[0].heartbeat_ns = round(START_S * NANO)
    return bench


def test_an_update_is_permitted_and_waited_for(waiting: Bench) -> None:
    shared = waiting.alternation
    shared._answers.during = lambda: shared.answer(shared.permitted)  # type: ignore[attr-defined]
    (reply,) = waiting.follow(Learn())
    assert (shared.permitted, shared.answered) == (1, 1)
    assert reply.now == pytest.approx(START_S, abs=1e-3)


def test_a_learner_that_shows_no_life_is_waited_for_as_long_as_its_lease(waiting: Bench) -> None:
    (reply,) = waiting.follow(Learn())
    assert START_S + 1.0 <= reply.now <= START_S + 1.0 + 2 * SLICE_S


def test_a_slow_update_is_waited_for(waiting: Bench) -> None:
    waiting.metrics.learners[0].update_ns = 2 * NANO
    shared, begun = waiting.alternation, waiting.clock.now()

    def answer() -> None:
        if waiting.clock.now() > begun + 5.0:
            shared.answer(1)

    shared._answers.during = answer  # type: ignore[attr-defined]
    (reply,) = waiting.follow(Learn())
    assert reply.now > begun + 5.0
    assert shared.answered == 1


@pytest.mark.parametrize(
    "changes", [{"learner_ring": []}, {"inference": {"algorithm": "adaptive"}}]
)
def test_nobody_is_waited_for_where_nobody_learns_in_turn(
    waiting: Bench, changes: dict[str, Any]
) -> None:
    waiting.desired = with_changes(waiting.desired, **changes)
    (reply,) = waiting.follow(Learn())
    assert reply.now == pytest.approx(START_S, abs=1e-3)
