"""An automatic number of inference processes: limits from the settings, and a run that grows."""

from __future__ import annotations

import os

import pytest

from rtagent import load_config
from rtagent.config import InferenceConfig
from rtagent.supervisor.scaling import first_number, limits_of
from tests.conftest import Runtimes, eventually

TICK_S = 1 / 60


def inference(*settings: str) -> InferenceConfig:
    return load_config(overrides=[f"inference.{setting}" for setting in settings]).inference


def test_the_deadline_is_one_tick_unless_it_is_set() -> None:
    assert limits_of(inference(), TICK_S).deadline_s == TICK_S
    assert limits_of(inference("action_deadline_ms=50"), TICK_S).deadline_s == 0.05


def test_cores_are_the_limit_unless_latency_is_injected() -> None:
    assert limits_of(inference(), TICK_S).most == len(os.sched_getaffinity(0))
    assert limits_of(inference("injected_latency_ms=80"), TICK_S).most == 256


def test_no_more_than_the_machine_has_room_for() -> None:
    assert limits_of(inference("injected_latency_ms=80"), TICK_S, 12).most == 12
    assert limits_of(inference(), TICK_S, 1).most == 1
    assert limits_of(inference(), TICK_S, -3).most == 1


def test_a_given_number_is_not_touched() -> None:
    assert first_number(inference("processes=7"), TICK_S) == 7
    assert 1 <= first_number(inference("processes=auto"), TICK_S) <= 2


@pytest.mark.process
@pytest.mark.alone
def test_it_grows_until_the_agent_acts_on_every_tick(run: Runtimes) -> None:
    with run(
        "env.id=CartPole-v1", "env.rate_hz=60", "inference.processes=auto",
        "inference.injected_latency_ms=82",
    ) as runtime:
        eventually(lambda: runtime.stats()["inference"]["ready"] >= 5, 30, "it has grown")
        move = next(
            event for event in runtime.status()["events"] if event["kind"] == "rescaled"
        )
        assert move["by"] == "auto"
        assert move["after"] > move["before"]
        assert move["why"]
        status = runtime.status()
        assert status["config"]["inference"]["processes"] == "auto"
        # By hand it goes on from there, and stays.
        assert runtime.set_inference(processes=3)["processes"] == 3
        moves = len([e for e in runtime.status()["events"] if e["kind"] == "rescaled"])
        first = runtime.world.ledger.newest
        eventually(lambda: runtime.world.ledger.newest > first + 150, 20, "time goes by")
        assert runtime.stats()["inference"]["processes"] == 3
        events = runtime.status()["events"]
        assert len([e for e in events if e["kind"] == "rescaled"]) == moves
        change = next(event for event in events if event["kind"] == "set")
        assert (change["source"], change["by"]) == ("inference", "python")
        assert change["before"] == {"processes": "auto"}
        assert change["after"] == {"processes": 3}
