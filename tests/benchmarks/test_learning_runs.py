"""The benchmark of learning: when its episodes ended, and what is told meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import rtagent
from benchmarks import learning_runs
from benchmarks.learning_runs import learn, timed
from rtagent.clock import VirtualClock
from rtagent.memory.process_metrics import EPISODES as KEPT
from tests.conftest import make_blueprint
from tests.rows import private_rings, write_row

EPISODES = np.array([(130, 1.0), (160, -2.5)], [("end_tick", "<i8"), ("return", "<f8")])
START_NS, SECOND_NS = 7_000_000_000, 1_000_000_000


def world_of(first_tick: int) -> Any:
    """A world of two ticks a second whose rows are gone."""
    blueprint = make_blueprint()
    ledger = private_rings(blueprint, 64)[1]
    return SimpleNamespace(
        first_tick=first_tick, ledger=ledger, blueprint=SimpleNamespace(tick_seconds=0.5),
        metrics=SimpleNamespace(environment=SimpleNamespace(first_due_ns=START_NS)),
    )


@pytest.mark.parametrize("first_tick", [0, 100])
def test_time_begins_with_the_world_not_with_what_was_in_the_replay(first_tick: int) -> None:
    ended = timed(EPISODES, world_of(first_tick))
    assert ended == [((130 - first_tick) / 2, 1.0), ((160 - first_tick) / 2, -2.5)]


def test_time_counts_what_the_clock_slipped() -> None:
    world = world_of(100)
    for tick in range(100, 161):
        slipped_ns = 3 * SECOND_NS if tick >= 150 else 0
        due_ns = START_NS + (tick - 100) * SECOND_NS // 2 + slipped_ns
        write_row(world.ledger, tick, time_ns=due_ns + 5, lateness_ns=5)
    assert timed(EPISODES, world) == [(15.0, 1.0), (33.0, -2.5)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The time; a run is found ready 10 s after its first tick."""
    clock = VirtualClock(10.0)
    time = SimpleNamespace(monotonic=clock.now, sleep=clock.advance)
    monkeypatch.setattr(learning_runs, "time", time)
    return clock


class StandIn:
    """A run of a policy without an exploration rate, in which no episode ends."""

    def __init__(self, config: rtagent.Config) -> None:
        self.world = world_of(0)
        ended = SimpleNamespace(since=lambda seen: (EPISODES[:0], 0))
        self.world.metrics.environment.episodes = ended
        self.world.metrics.environment.first_due_ns = 0

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait_ready(self, timeout: float) -> None:
        pass

    def status(self) -> dict[str, Any]:
        return {"roles": []}

    def stats(self) -> dict[str, Any]:
        return {
            "learning": {"updates": 3, "epsilon": None},
            "actions": {"inaction_fraction": 0.0, "agent": 7}, "clock": {"ticks": 8},
        }


@pytest.mark.usefixtures("clock")
def test_progress_is_told_of_a_policy_that_draws_its_actions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With ppo, a2c and sac the exploration rate is unknown, which ended the run."""
    monkeypatch.setattr(rtagent, "Runtime", StandIn)
    found = learn(rtagent.Config(), 0.5, "seed 0: ")
    assert (found["updates"], found["decisions"]) == (3, 7)
    assert "3 updates  epsilon unknown" in capsys.readouterr().err


@pytest.mark.usefixtures("clock")
def test_a_run_whose_process_keeps_failing_has_no_figures(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial without a learner was a result like any other."""

    class Broken(StandIn):
        def status(self) -> dict[str, Any]:
            error = "ValueError: no luck"
            return {"roles": [
                {"role": "learner", "name": "learner 0", "state": "failed", "last_error": error}
            ]}

    monkeypatch.setattr(rtagent, "Runtime", Broken)
    with pytest.raises(RuntimeError, match=r"^learner 0 has failed: ValueError: no luck"):
        learn(rtagent.Config(), 0.5, "seed 0: ")


def test_no_episode_is_lost_between_two_lines_of_progress(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy that has collapsed makes more episodes in a minute than the record keeps."""
    an_s = 20

    def since(seen: int) -> tuple[Any, int]:
        count = int(clock.now() * an_s)
        return np.repeat(EPISODES[:1], count - max(seen, count - KEPT)), count

    class Busy(StandIn):
        def __init__(self, config: rtagent.Config) -> None:
            super().__init__(config)
            self.world.metrics.environment.episodes.since = since

    monkeypatch.setattr(rtagent, "Runtime", Busy)
    found = learn(rtagent.Config(), 2.5, "seed 0: ")
    assert clock.now() == 150.0
    assert len(found["episodes"]) == 150 * an_s
    told = [line.split(" min")[0][-3:] for line in capsys.readouterr().err.splitlines()]
    assert told == ["1.0", "2.0", "2.5"]
