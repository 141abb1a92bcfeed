"""The experiment with pending actions: what it compares."""

from __future__ import annotations

import pytest

from benchmarks.experiments import pending_actions
from benchmarks.experiments.pending_actions import WORLDS, settings
from rtagent.config_sources import load_config


@pytest.mark.parametrize("name", WORLDS)
def test_the_contenders_differ_in_one_setting(name: str) -> None:
    world = WORLDS[name]
    told, deaf = (
        load_config(world.file, settings(world, count, 3), {}).model_dump() for count in (8, 0)
    )
    assert told["env"].pop("pending_actions") == 8
    assert deaf["env"].pop("pending_actions") == 0
    assert told == deaf
    assert told["run"]["seed"] == 3


def test_a_trial_says_what_the_difference_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(calls, at_once):  # type: ignore[no-untyped-def]
        yield from (call() for call in calls.values())

    def play(world: str, time: str, minutes: float, contender: str, seed: int) -> dict[str, float]:
        return {f"return_{contender}": 12.0 if contender == "with" else 2.5}

    monkeypatch.setattr(pending_actions, "side_by_side", in_turn)
    monkeypatch.setattr(pending_actions, "play", play)
    assert pending_actions.run("cartpole", "virtual", 1.0, 0)["difference"] == 9.5
