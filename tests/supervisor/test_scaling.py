"""An automatic number of inference processes: limits from the settings, and a run that grows."""

from __future__ import annotations

import os
from contextlib import closing

import pytest

from rtagent import load_config
from rtagent.clock import VirtualClock
from rtagent.config import Config
from rtagent.memory.process_metrics import Registration
from rtagent.memory.world import World, WorldMemory
from rtagent.supervisor import scaling
from rtagent.supervisor.autoscaler import Move
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.scaling import Scaling, limits_of
from tests.conftest import Runtimes, eventually, make_blueprint

TICK_S = 1 / 60


def config(*settings: str) -> Config:
    return load_config(overrides=settings)


def test_the_deadline_is_one_tick_unless_it_is_set() -> None:
    assert limits_of(config(), TICK_S, 99).deadline_s == TICK_S
    assert limits_of(config("inference.action_deadline_ms=50"), TICK_S, 99).deadline_s == 0.05


@pytest.mark.parametrize(
    "waits", ["inference.injected_latency_ms=80", "policy.remote=ws://127.0.0.1:1"]
)
def test_cores_are_the_limit_unless_inference_waits_and_the_machine_has_room(waits: str) -> None:
    cores = len(os.sched_getaffinity(0))
    assert limits_of(config(), TICK_S, 256).most == cores
    for room, most in ((256, 256), (12, 12), (-3, 1)):
        assert limits_of(config(waits, "learning.processes=0"), TICK_S, room).most == most
        assert limits_of(config(), TICK_S, room).most == min(most, cores)


@pytest.mark.parametrize(("busy", "most"), [(0.3, 1), (1.5, 2)])
def test_a_quota_of_time_is_a_limit_too(
    monkeypatch: pytest.MonkeyPatch, busy: float, most: int
) -> None:
    """In a container with `--cpus` there were as many processes as cores outside of it."""
    monkeypatch.setattr(scaling, "most_busy_cores", lambda: busy)
    assert limits_of(config(), TICK_S, 256).most == most
    assert limits_of(config("inference.injected_latency_ms=80"), TICK_S, 256).most == 256


class Run:
    """Some inference processes that never exist, with latency injected: cores are no limit."""

    def __init__(self, processes: int, latency_ms: int) -> None:
        self.processes = processes
        self.settings = f"inference.injected_latency_ms={latency_ms}", "replay.capacity=2048"
        self.set("inference.processes=auto")
        self.memory, self.clock = WorldMemory(self.config, make_blueprint()), VirtualClock(100.0)
        self.world = World(self.memory.handles)
        self.scaling = Scaling(self.world, self.clock)

    def set(self, *settings: str) -> None:
        """Change the configuration."""
        self.config = config("inference.processes=auto", *self.settings, *settings)

    def act(self, seconds: int, took_ms: int, room: int = 99) -> int:
        """Act for some seconds, and follow the moves; the number of processes after that."""
        for _ in range(seconds):
            for tenth in range(10):
                self.infer(self.clock.now() + tenth / 10, took_ms)
            self.clock.advance(1.0)
            move = self.step(room)
            if move is not None:
                self.processes = move.after
        return self.processes

    def infer(self, at_s: float, took_ms: int) -> None:
        """Each process registers an action."""
        for record in self.world.metrics.inference[: self.processes]:
            record.registrations.append(Registration(int(at_s * 1e9), took_ms * 1_000_000, 0))

    def step(self, room: int) -> Move | None:
        running = [
            Child("inference", index, lambda pipe: None, State.RUNNING)
            for index in range(self.processes)
        ]
        return self.scaling.step(self.clock.now(), self.config, self.processes, running, room)

    def close(self) -> None:
        self.world.close()
        self.memory.close()


def test_new_limits_count_at_once() -> None:
    with closing(Run(2, latency_ms=1)) as run:
        assert run.act(10, took_ms=100) == 6
        run.set("inference.action_deadline_ms=50")
        assert run.act(4, took_ms=100) in (2, 3)
        run.set("inference.algorithm=maximum-time")
        assert run.act(4, took_ms=100) == 6
        assert run.act(1, took_ms=100, room=4) == 4


def test_a_number_changed_by_hand_is_corrected_at_once() -> None:
    with closing(Run(2, latency_ms=1)) as run:
        run.act(10, took_ms=100)
        run.processes = 20
        assert run.act(4, took_ms=100) in (6, 7)
        by_hand = run.processes
        run.set(f"inference.processes={by_hand}")
        assert run.act(10, took_ms=20) == by_hand
        run.set()
        assert run.act(4, took_ms=20) in (2, 3)


def test_what_was_seen_before_a_pause_counts_no_more() -> None:
    with closing(Run(6, latency_ms=1)) as run:
        assert run.act(100, took_ms=100) == 6
        assert run.act(10, took_ms=20) == 6, "fewer only after a quiet minute"
        run.scaling.start_anew()
        assert run.act(4, took_ms=20) in (2, 3)


def test_what_was_measured_before_a_change_counts_no_more() -> None:
    with closing(Run(4, latency_ms=1)) as run:
        run.act(10, took_ms=70, room=4)
        for step in range(1, 20):
            run.infer(run.clock.now() + step / 10, 300)
        run.clock.advance(2.0)
        run.set("inference.action_deadline_ms=50")
        assert run.step(room=4) is None
        for step in range(1, 25):
            run.infer(run.clock.now() + step / 10, 5)
        run.clock.advance(2.5)
        move = run.step(room=4)
    assert (move.inputs["inference_ms"], move.after) == (5.0, 1)


def test_slow_inferences_are_looked_for_as_far_back_as_it_takes() -> None:
    move = None
    with closing(Run(2, latency_ms=6000)) as run:
        for _ in range(60):
            run.clock.advance(1.0)
            if run.clock.now() % 6.0 == 0.0:
                run.infer(run.clock.now(), 6000)
            move = move or run.step(room=200)
    assert move.after > 100


@pytest.mark.process
def test_it_grows_until_the_agent_acts_on_every_tick(run: Runtimes) -> None:
    with run(
        "env.id=CartPole-v1", "env.rate_hz=60", "inference.processes=auto",
        "inference.injected_latency_ms=82",
    ) as runtime:
        eventually(lambda: runtime.stats()["inference"]["ready"] >= 5, "it has grown")
        # The first: on a busy machine it may have gone back since.
        move = [e for e in runtime.status()["events"] if e["kind"] == "rescaled"][-1]
        assert move["by"] == "auto"
        assert move["after"] > move["before"]
        assert move["why"]
        status = runtime.status()
        assert status["config"]["inference"]["processes"] == "auto"
        # By hand it goes on from there, and stays.
        assert runtime.set_inference(processes=3)["processes"] == 3
        moves = len([e for e in runtime.status()["events"] if e["kind"] == "rescaled"])
        first = runtime.world.ledger.newest
        eventually(lambda: runtime.world.ledger.newest > first + 240, "it would have moved by now")
        assert runtime.stats()["inference"]["processes"] == 3
        events = runtime.status()["events"]
        assert len([e for e in events if e["kind"] == "rescaled"]) == moves
        change = next(event for event in events if event["kind"] == "set")
        assert (change["source"], change["by"]) == ("inference", "python")
        assert change["before"] == {"processes": "auto"}
        assert change["after"] == {"processes": 3}
