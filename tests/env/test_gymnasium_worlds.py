"""Environments of other packages, through the adapter and through a whole daemon."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest

from rtagent.clock import NANO, MonotonicClock
from rtagent.config import EnvConfig
from rtagent.env import atari
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.wall_clock import TickSchedule
from rtagent.errors import UserError
from rtagent.staggering.arbiter import Source
from tests.conftest import Runtimes, eventually

TICKS = 200
FAST_HZ = 500.0
"""Ticks per second, so that some hundred ticks take a short time."""

WORLDS = [
    # id, arguments, own rate, frame, actions, action that does nothing
    ("CartPole-v1", {}, 50.0, (4,), 2, 0),
    ("Acrobot-v1", {}, 15.0, (6,), 3, 0),
    ("MountainCar-v0", {}, 30.0, (2,), 3, 0),
    ("MountainCarContinuous-v0", {}, 30.0, (2,), None, [0.0]),
    ("Pendulum-v1", {}, 30.0, (3,), None, [0.0]),
    ("LunarLander-v3", {}, 50.0, (8,), 4, 0),
    ("LunarLander-v3", {"continuous": True}, 50.0, (8,), None, [0.0, 0.0]),
    ("CarRacing-v3", {}, 50.0, (84, 84), None, [0.0, 0.0, 0.0]),
    ("ALE/Breakout-v5", {}, 15.0, (84, 84), 4, 0),
    ("ALE/Breakout-v5", {"obs_type": "ram", "frameskip": 1}, 60.0, (128,), 4, 0),
]


def play(adapter: Adapter, ticks: int, rate_hz: float) -> None:
    """Random actions on the wall clock."""
    clock = MonotonicClock()
    adapter.action_space.seed(0)
    adapter.reset(seed=0)
    schedule = TickSchedule(rate_hz, round(clock.now() * NANO), 0, 5)
    for tick in range(ticks):
        clock.sleep_until(schedule.due_ns(tick) / NANO)
        step = adapter.step(adapter.action_space.sample())
        shown = step.frame
        assert (shown.shape, shown.dtype.name) == (adapter.frame_shape, adapter.frame_dtype)
        if step.terminated or step.truncated:
            adapter.reset()
    assert clock.now() * NANO >= schedule.due_ns(ticks - 1)


@pytest.mark.parametrize(("name", "kwargs", "rate_hz", "frame", "actions", "noop"), WORLDS)
def test_some_hundred_ticks(name, kwargs, rate_hz, frame, actions, noop) -> None:
    adapter = open_environment(EnvConfig(id=name, kwargs=kwargs))
    assert (adapter.rate_hz, adapter.frame_shape) == (rate_hz, frame)
    assert np.asarray(adapter.noop_action).tolist() == noop
    if actions is not None:
        assert adapter.action_space == gym.spaces.Discrete(actions)
    slow = name == "CarRacing-v3"
    play(adapter, TICKS // 4 if slow else TICKS, rate_hz if slow else FAST_HZ)
    assert adapter.faults == 0
    adapter.close()


def test_an_atari_game_says_what_its_actions_mean() -> None:
    adapter = open_environment(EnvConfig(id="ALE/Breakout-v5", kwargs={"frameskip": (2, 5)}))
    assert adapter.action_meanings == ("NOOP", "FIRE", "RIGHT", "LEFT")
    assert adapter.rate_hz == 20.0
    assert (adapter.screen, adapter.frame_stack) == (True, 4)
    adapter.close()


def breakout(skip: int) -> gym.Env:
    atari.register("ALE/Breakout-v5")
    return gym.make("ALE/Breakout-v5", frameskip=skip)


def preprocessed(skip: int) -> gym.Env:
    return gym.wrappers.AtariPreprocessing(breakout(1), noop_max=0, frame_skip=skip)


def skipping(skip: int) -> gym.Env:
    return gym.wrappers.MaxAndSkipObservation(breakout(2), skip)


def unlike(skip: int) -> gym.Env:
    """A wrapper of somebody else's, to which the names mean something else."""
    wrapper = gym.Wrapper(breakout(skip))
    wrapper._skip, wrapper.frame_skip = False, None
    return wrapper


@pytest.mark.parametrize(
    ("name", "rate_hz"), [("preprocessed", 20.0), ("skipping", 10.0), ("unlike", 20.0)]
)
def test_frames_that_a_wrapper_skips_count_for_the_rate(name: str, rate_hz: float) -> None:
    adapter = open_environment(EnvConfig(id=f"{__name__}:{name}", kwargs={"skip": 3}))
    assert adapter.rate_hz == rate_hz
    adapter.close()


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"pip install 'rtagent\[atari\]'"):
        atari.register("ALE/Breakout-v5")
    atari.register("CartPole-v1")


@pytest.mark.process
def test_a_whole_daemon_acts_in_it(run: Runtimes) -> None:
    with run("env.id=ALE/Breakout-v5", "inference.processes=1") as runtime:
        ledger = runtime.world.ledger
        start = ledger.newest + 1
        eventually(lambda: ledger.newest >= start + 30, "30 ticks")
        rows = ledger.read(start, start + 30)
        assert (rows["source"] != Source.DEFAULT).any()
        assert runtime.stats()["clock"]["target_rate_hz"] == 15.0
        assert runtime.stats()["episodes"]["faults"] == 0
        assert runtime.world.blueprint.screen
