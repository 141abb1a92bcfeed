"""Settings that change while the run goes on: whole or not at all."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rtagent import load_config
from rtagent.env.actions import BoxActions, DiscreteActions
from rtagent.errors import UserError
from rtagent.live_config import live_values
from rtagent.memory.control import DesiredState
from rtagent.supervisor.live_settings import (
    change,
    check_default_action,
    check_size,
    first_state,
    scaled,
)


@pytest.fixture
def desired() -> DesiredState:
    return first_state(load_config(overrides=["learning.processes=1", "learning.batch_size=32"]))


def test_the_first_state_follows_the_configuration() -> None:
    config = load_config(
        overrides=[
            "inference.processes=3", "learning.processes=2", "learning.order=first-come",
            "learning.batch_size=64", "r3.mode=step", "r3.deadline_s=7", "r3.data_budget=6400",
        ]
    )
    desired = first_state(config)
    assert (desired.processes, desired.rows) == (3, 3)
    assert desired.config is config
    assert not desired.go


@pytest.mark.parametrize(("setting", "named"), [
    (f"env.kwargs.rom={'r' * 200_000}", "takes .* bytes as JSON"),
    ("run.state_dir=\udcff", "is not UTF-8"),
])
def test_what_the_status_cannot_hold_is_refused(setting: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        check_size(load_config(None, [setting], {}))


@pytest.mark.parametrize(("section", "name", "value"), [
    ("inference", "processes", 4),
    ("inference", "injected_latency_ms", 82.5),
    ("learning", "processes", 5),
    ("learning", "paused", True),
    ("r3", "data_budget", 999),
    ("env", "default_action", [0.5, -1.0]),
    ("env", "default_action", "repeat"),
])
def test_a_change_reaches_the_state(
    desired: DesiredState, section: str, name: str, value: Any
) -> None:
    changed = change(desired, {section: {name: value}})
    assert getattr(getattr(changed, section), name) == value
    before = live_values(desired.config)
    before[section][name] = value
    assert live_values(changed.config) == before


def test_an_automatic_number_begins_with_what_there_is(desired: DesiredState) -> None:
    three = change(desired, {"inference": {"processes": 3}})
    auto = change(three, {"inference": {"processes": "auto"}})
    assert (auto.processes, auto.inference.processes) == (3, "auto")
    more = scaled(auto, 7)
    assert (more.processes, more.rows, more.config) == (7, 7, auto.config)
    fewer = scaled(more, 2)
    assert (fewer.processes, fewer.rows) == (2, 7)
    by_hand = change(fewer, {"inference": {"processes": 5}})
    # Rows never shrink.
    assert (by_hand.processes, by_hand.rows, by_hand.inference.processes) == (5, 7, 5)


def test_an_automatic_number_starts_with_one() -> None:
    config = load_config(overrides=["inference.processes=auto"])
    assert first_state(config).processes == 1


@pytest.mark.parametrize(("section", "arguments", "reason"), [
    ("learning", {"processes": 65}, "learning.processes = 65"),
    ("learning", {"processes": -1}, "learning.processes = -1"),
    ("learning", {"batch_size": 0}, "learning.batch_size = 0"),
    ("learning", {"paused": 1}, "learning.paused = 1"),
    ("learning", {"gamma": 0.5}, "learning.gamma: cannot be changed"),
    ("r3", {"deadline_s": 0}, "r3.deadline_s = 0"),
    ("r3", {"deadline_s": 1e-320}, "r3.deadline_s = 1e-320"),
    ("r3", {"deadline_s": -2.0}, "r3.deadline_s = -2.0"),
    ("r3", {"data_budget": 31}, "r3.data_budget = 31 is smaller than one batch"),
    ("r3", {"mode": "step"}, "needs r3.data_budget"),
    ("r3", {"mode": "step", "deadline_s": None, "data_budget": 64}, "needs r3.deadline_s"),
    ("r3", {"memory_budget_mb": 0}, "r3.memory_budget_mb = 0"),
    ("inference", {"processes": 0}, "inference.processes = 0"),
    ("env", {"default_action": "os:abort"}, "env.default_action = 'os:abort'"),
    ("env", {"rate_hz": 5}, "env.rate_hz: cannot be changed"),
])
def test_a_bad_change_is_refused_whole(
    desired: DesiredState, section: str, arguments: dict[str, Any], reason: str
) -> None:
    good = {"r3": {"deadline_s": 5.0}, "env": {}}.get(section, {"processes": 2})
    with pytest.raises(UserError, match=reason):
        change(desired, {section: good | arguments})
    assert desired == first_state(desired.config)


def test_a_batch_larger_than_the_budget_is_refused(desired: DesiredState) -> None:
    limited = change(desired, {"r3": {"mode": "step", "deadline_s": 5.0, "data_budget": 64}})
    with pytest.raises(UserError, match="smaller than one batch"):
        change(limited, {"learning": {"batch_size": 65}})
    both = {"learning": {"batch_size": 65}, "r3": {"data_budget": 100}}
    assert change(limited, both).learning.batch_size == 65


THREE = DiscreteActions(gym.spaces.Discrete(3, start=1))
PLANE = BoxActions(gym.spaces.Box(-1.0, 1.0, (2,), np.float32))


@pytest.mark.parametrize(("value", "actions", "reason"), [
    (99, THREE, "99: 99 is outside 1 to 3"),
    ([0.0, 1.5], PLANE, r"\[0\.0, 1\.5\]: .*is outside"),
])
def test_a_default_action_that_the_environment_does_not_have_is_refused(
    value: Any, actions: Any, reason: str
) -> None:
    config = load_config(overrides=[f"env.default_action={value}"])
    with pytest.raises(UserError, match=rf"^env\.default_action = {reason}"):
        check_default_action(config, actions)


@pytest.mark.parametrize(("value", "actions"), [
    (3, THREE), ("noop", THREE), ("repeat", PLANE), ([0.5, -1], PLANE),
    # A function is the environment's to call, and of an unknown environment nothing is known.
    ("stub_worlds:brightest", THREE), (99, None),
])
def test_a_default_action_that_may_be_the_environments_is_not_refused(
    value: Any, actions: Any
) -> None:
    check_default_action(load_config(overrides=[f"env.default_action={value}"]), actions)
