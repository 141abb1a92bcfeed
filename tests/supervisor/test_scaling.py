"""An automatic number of inference processes: limits from the settings, and a run that grows."""

from __future__ import annotations

import os

import pytest

from rtagent import load_config
from rtagent.clock import VirtualClock
from rtagent.config import InferenceConfig
from rtagent.memory.process_metrics import Registration
from rtagent.memory.world import World, WorldMemory
from rtagent.supervisor.child import Child, State
from rtagent.supervisor.scaling import Scaling, first_number, limits_of
from tests.conftest import Runtimes, eventually, make_blueprint

TICK_S = 1 / 60


def inference(*settings: str) -> InferenceConfig:
    return load_config(overrides=[f"inference.{setting}" for setting in settings]).inference


def test_the_deadline_is_one_tick_unless_it_is_set() -> None:
    assert limits_of(inference(), TICK_S).deadline_s == TICK_S
    assert limits_of(inference("action_deadline_ms=50"), TICK_S).deadline_s == 0.05


def test_cores_are_the_limit_unless_latency_is_injected() -> None:
    assert limits_of(inference(), TICK_S).most == len(os.sched_getaffinity(0))
    assert limits_of(inference("injected_latency_ms=80"), TICK_S).most == 256


def test_who_waits_for_a_policy_server_keeps_no_core_busy() -> None:
    assert limits_of(inference(), TICK_S, waits=True).most == 256
    assert limits_of(inference(), TICK_S, 12, waits=True).most == 12


def test_no_more_than_the_machine_has_room_for() -> None:
    assert limits_of(inference("injected_latency_ms=80"), TICK_S, 12).most == 12
    assert limits_of(inference(), TICK_S, 1).most == 1
    assert limits_of(inference(), TICK_S, -3).most == 1


def test_a_given_number_is_not_touched() -> None:
    assert first_number(inference("processes=7"), TICK_S) == 7
    assert 1 <= first_number(inference("processes=auto"), TICK_S) <= 2


def test_what_was_measured_before_a_change_counts_no_more() -> None:
    # Latency is injected, so that the number of cores is no limit.
    settings = ("processes=auto", "injected_latency_ms=1")
    wanted = [f"inference.{each}" for each in settings]
    config = load_config(overrides=[*wanted, "replay.capacity=2048"])
    memory, clock = WorldMemory(config, make_blueprint()), VirtualClock(100.0)
    world = World(memory.handles)
    workers = [Child("inference", index, lambda pipe: None, State.RUNNING) for index in range(4)]
    scaling = Scaling(world, clock)

    def infer(at_s: float, took_ms: int) -> None:
        for record in world.metrics.inference[:4]:
            record.registrations.append(Registration(int(at_s * 1e9), took_ms * 1_000_000, 0))

    for step in range(20):
        infer(98.0 + step / 10, 300)
    assert scaling.step(100.0, config.inference, 4, workers, room=4) is None
    for step in range(1, 25):
        infer(100.0 + step / 10, 5)
    clock.advance(2.5)
    move = scaling.step(clock.now(), config.inference, 4, workers, room=4)
    assert move is not None
    assert (move.inputs["inference_ms"], move.after) == (5.0, 1)
    world.close()
    memory.close()


def test_slow_inferences_are_looked_for_as_far_back_as_it_takes() -> None:
    settings = ("inference.processes=auto", "inference.injected_latency_ms=6000")
    config = load_config(overrides=[*settings, "replay.capacity=2048"])
    memory, clock = WorldMemory(config, make_blueprint()), VirtualClock(100.0)
    world = World(memory.handles)
    workers = [Child("inference", index, lambda pipe: None, State.RUNNING) for index in range(2)]
    scaling, move = Scaling(world, clock), None
    for _ in range(60):
        clock.advance(1.0)
        if clock.now() % 6.0 == 0.0:
            for record in world.metrics.inference[:2]:
                at_ns = int(clock.now() * 1e9)
                record.registrations.append(Registration(at_ns, 6_000_000_000, 0))
        move = move or scaling.step(clock.now(), config.inference, 2, workers, room=200)
    assert move is not None
    assert move.after > 100
    world.close()
    memory.close()


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
