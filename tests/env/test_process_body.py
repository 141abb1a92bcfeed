"""The body of the environment process, from start to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import stub_worlds

from rtagent.clock import NANO, VirtualClock
from rtagent.config import MOST_SEED, Config, EnvConfig
from rtagent.env import process
from rtagent.env.wall_clock import TickSchedule
from rtagent.memory.ledger import TRUNCATED
from rtagent.memory.process_metrics import Doing, ProcessMetrics
from rtagent.staggering.arbiter import Deposited
from tests.conftest import make_blueprint
from tests.desired import make_desired
from tests.env.ticking import CAPACITY, Memory

Body = Callable[..., SimpleNamespace]


@pytest.fixture
def body(monkeypatch: pytest.MonkeyPatch) -> Body:
    """Runs the environment process's body for some ticks, on a world of 20 Hz by default."""
    monkeypatch.setattr(process, "enter_realtime", lambda mode: False)
    monkeypatch.setattr(process, "gc", SimpleNamespace(collect=int, freeze=int))
    memory = Memory(make_blueprint(frame_shape=(3,), frame_dtype="float32", frame_stack=1))

    def run(
        ticks: int, start_s: float, ready: Callable[[], None] = lambda: None,
        rate_hz: float = 20.0, stop_s: float = math.inf, resume: Path | None = None, **live: Any,
    ) -> SimpleNamespace:
        last = memory.ledger.newest + ticks

        class Context(SimpleNamespace):
            beats = 0

            @property
            def stopping(self) -> bool:
                return bool(memory.ledger.newest >= last or self.clock.now() >= stop_s)

            def beat(self) -> None:
                self.beats += 1

        context = Context(
            config=Config(env=EnvConfig(id="stub_worlds:stub/World-v0", rate_hz=rate_hz)),
            world=memory, clock=VirtualClock(start_s), record=memory.record,
            desired=make_desired(go=True, **live), ready=ready, resume=resume, events=[],
        )
        context.event = lambda kind, **said: context.events.append((kind, said))
        process.run(context)  # type: ignore[arg-type]
        return context

    run.memory = memory  # type: ignore[attr-defined]
    return run


def test_body_forgets_what_its_predecessor_was_doing(body: Body) -> None:
    seen: list[Doing] = []
    record = body.memory.record  # type: ignore[attr-defined]
    record.note_doing(Doing.RESETTING, 3 * NANO)
    body(1, start_s=5.0, ready=lambda: seen.append(record.doing[0]))
    assert seen == [Doing.WAITING]


def test_body_marks_its_end_as_truncated(body: Body) -> None:
    context = body(30, start_s=5.0)
    rows = context.world.ledger.read(0, 100)
    assert rows["flags"].tolist() == [0] * 29 + [TRUNCATED]
    assert context.beats >= 30
    record = context.record
    assert record.anchor_ns == round(5.1 * NANO)
    assert (record.anchor_tick, record.slips) == (0, 0)


def test_between_two_long_ticks_it_hears_that_it_is_to_stop(body: Body) -> None:
    context = body(3, start_s=5.0, rate_hz=0.1)
    rows = context.world.ledger.read(0, 10)
    assert rows["time_ns"].tolist() == [25 * NANO, 35 * NANO, 45 * NANO]
    assert body(3, start_s=50.0, rate_hz=0.1, stop_s=52.0).clock.now() == pytest.approx(52.0)


def test_a_world_that_raises_is_closed(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[stub_worlds.World] = []
    monkeypatch.setattr(stub_worlds.World, "close", lambda world: closed.append(world))
    body(3, start_s=5.0)
    assert len(closed) == 1
    monkeypatch.setattr(stub_worlds.World, "step", lambda world, action: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        body(3, start_s=9.0)
    assert len(closed) == 2


def test_a_run_that_goes_on_plays_other_episodes(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a saved replay its ticks begin at 0 again, like those of the run before."""
    seeds: list[int] = []

    def reset(world: stub_worlds.World, *, seed: int, options: Any = None) -> Any:
        seeds.append(seed)
        return world._see(), {}

    monkeypatch.setattr(stub_worlds.World, "reset", reset)
    body(0, start_s=5.0)
    for number in (1, 2):
        body(0, start_s=5.0, resume=Path(f"checkpoints/checkpoint-{number:06d}.safetensors"))
    assert seeds[0] == 0
    assert len(set(seeds)) == 3
    # As large as a seed of the configuration: NumPy's older generators take no more than 32 bits.
    assert max(seeds) <= MOST_SEED


def test_faults_of_the_world_are_told_now_and_then(
    body: Body, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert body(5, start_s=5.0).events == []
    monkeypatch.setattr(stub_worlds.World, "_see", lambda world: np.zeros(3, np.float32))
    rewards = iter([0.0, np.nan] * 1000)
    monkeypatch.setattr(
        stub_worlds.World, "step", lambda world,
        action: (world._see(), next(rewards), False, False, {}),
    )
    # In 15 s of 20 Hz two reports: of the first fault, and of the first after ten seconds.
    context = body(300, start_s=10.0)
    (first, said), (second, later) = context.events
    assert first == second == "environment_fault"
    assert said == {"reason": "the environment's reward is nan", "faults": 1}
    assert later["faults"] == 101
    rows = context.world.ledger.read(295, 305)
    assert (rows["reward"] == 0.0).all()
    assert rows["flags"].tolist() == [0, TRUNCATED] * 5


def test_time_between_two_lives_is_a_slip(body: Body) -> None:
    body(30, start_s=5.0)
    context = body(10, start_s=100.0)
    record, rows = context.record, context.world.ledger.read(0, 100)
    assert rows["tick"].tolist() == list(range(40))
    assert rows["episode"].tolist() == [0] * 30 + [1] * 10
    assert rows["flags"][29] == TRUNCATED
    assert (record.anchor_tick, record.slips) == (30, 1)
    # Tick 30 would have been due 1.5 s after the first anchor.
    assert record.slipped_ns == round((100.1 - 5.1 - 1.5) * NANO)


@pytest.mark.parametrize("written", range(5))
def test_a_slip_counts_once_whenever_the_process_that_notes_it_is_killed(
    body: Body, written: int
) -> None:
    record = body(30, start_s=5.0).record
    # In the order in which a successor with a first tick at 50.1 s writes them.
    words = {
        "slips": 1, "slipped_ns": round(43.5 * NANO), "anchor_ns": round(50.1 * NANO),
        "anchor_tick": 30,
    }
    for name in list(words)[:written]:
        setattr(record, name, words[name])
    assert body(10, start_s=100.0).record.slipped_ns == round((100.1 - 5.1 - 1.5) * NANO)


def test_a_row_that_a_killed_predecessor_has_not_counted_is_counted(body: Body) -> None:
    record = body(30, start_s=5.0).record
    record.default -= 1
    assert body(10, start_s=100.0).record.ticks == 40


def test_slip_of_a_restart_is_exact_after_a_day() -> None:
    """A period is not a whole number of nanoseconds; rounding it would cost 2 ms a day."""
    memory = memoryview(np.zeros(ProcessMetrics.size() // 8 + 1, np.int64)).cast("B")
    metrics = ProcessMetrics(memory).environment
    first = TickSchedule(59.7275, 7 * NANO, 0, 5)
    process._note_anchor(metrics, first, 0)
    metrics.agent, ticks = 1, 5_160_456
    later = TickSchedule(59.7275, first.due_ns(ticks) + 3 * NANO, ticks, 5)
    process._note_anchor(metrics, later, 0)
    assert abs(metrics.slipped_ns - 3 * NANO) <= 1


@pytest.mark.parametrize("ticks", [5, CAPACITY + 10])
def test_an_action_from_before_a_restart_is_not_executed_again(body: Body, ticks: int) -> None:
    world = body(5, start_s=5.0).world
    world.actions.deposit(Deposited(0, 4, 6, 1, 0, 6.0))
    record = body(ticks, start_s=9.0).record
    acted = record.agent + record.reused
    assert record.decisions == 1 <= acted
    body(5, start_s=99.0)
    assert (record.decisions, record.agent + record.reused) == (1, acted)


def test_fill_follows_the_desired_state(body: Body, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    choose = process.Arbiter.choose

    def chosen(arbiter: Any, *arguments: Any) -> Any:
        seen.append(arbiter.fill)
        return choose(arbiter, *arguments)

    monkeypatch.setattr(process.Arbiter, "choose", chosen)
    body(1, start_s=5.0, inference={"fill": 0})
    body(1, start_s=6.0, inference={"fill": 1})
    assert seen == [0, 1]


def test_default_action_follows_the_desired_state(body: Body) -> None:
    changed, refused = (body(2, start_s=s, env={"default_action": a}) for s, a in ((5, 1), (6, 9)))
    assert changed.world.ledger.read(0, 4)["action"].tolist() == [1, 1, 0, 0]
    assert changed.events == []
    ((kind, said),) = refused.events
    assert kind == "world"
    assert "env.default_action = 9" in said["news"]
