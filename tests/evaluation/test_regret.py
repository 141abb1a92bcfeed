"""Regret in worlds whose answer is known by hand; its bounds beside a slow transcription."""

from __future__ import annotations

import math
import random
import threading
from itertools import count
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rtagent.config import EnvConfig
from rtagent.env.adapter import Adapter
from rtagent.errors import UserError
from rtagent.evaluation import regret
from rtagent.evaluation.intervals import jackknife, student
from rtagent.evaluation.regret import PausedWorld
from rtagent.memory.ledger import row_dtype
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint

LENGTH = 10


class TwoStates(gym.Env[Any, Any]):
    """Pays for the action that is the number of the present state, which then may change.

    Args:
        stays: probability with which it does not.
        length: of an episode.
    """

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    metadata = MappingProxyType({"render_fps": 20})

    def __init__(self, stays: float = 0.0, length: int = LENGTH) -> None:
        self.stays, self.length = stays, length
        self.state = self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.steps = 0
        return self._see(), {}

    def step(self, action: Any) -> Any:
        assert self.steps < self.length, "the episode is over"
        reward = float(int(action) == self.state)
        self.steps += 1
        if self._draw() >= self.stays:
            self.state = 1 - self.state
        return self._see(), reward, self.steps == self.length, False, {}

    def _draw(self) -> float:
        return self.np_random.random()

    def _see(self) -> Any:
        return np.array([self.state], np.float32)


class OwnChance(TwoStates):
    """Draws from a generator of its own."""

    def __init__(self, stays: float, generator: Any) -> None:
        super().__init__(stays)
        self.generators = [generator]

    def _draw(self) -> float:
        return float(self.generators[0].random())


class Locked(TwoStates):
    """Holds what cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Silent(TwoStates):
    """Refuses to be copied without a word."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise ValueError


class Elsewhere(TwoStates):
    """Goes on somewhere else, whatever becomes of this object."""

    elsewhere = count()

    def _see(self) -> Any:
        return np.array([next(self.elsewhere)], np.float32)


def adapter_of(env: gym.Env[Any, Any]) -> Adapter:
    return Adapter(env, EnvConfig())


def right_action(observation: Any) -> Any:
    """The values of the policy that is right without delay."""
    state = int(observation[-1, 0])
    return np.array([1 - state, state], np.float32)


def play(env: TwoStates, *delays: int, episodes: int = 3) -> Any:
    return PausedWorld(adapter_of(env), right_action, 0, delays).play(episodes)


@pytest.mark.parametrize(("delay", "returns"), [
    # The first ticks of all have nothing but the first frame to act on.
    (1, [10, 10, 10]), (2, [1, 0, 0]), (3, [9, 10, 10]), (4, [2, 0, 0]),
])
def test_a_world_that_alternates_pays_every_other_delay(delay: int, returns: list[int]) -> None:
    found = play(TwoStates(stays=0.0), delay)
    assert found.returns.tolist() == returns
    assert found.ticks.tolist() == [LENGTH] * 3


@pytest.mark.parametrize("delay", [1, 2, 4])
def test_what_delay_costs_in_the_two_state_world_is_known(delay: int) -> None:
    stays, ticks = 0.9, 10_000
    found = play(TwoStates(stays, ticks), delay, episodes=1)
    expected = (1.0 - (2.0 * stays - 1.0) ** (delay - 1)) / 2.0
    lost = 1.0 - float(found.returns[0]) / ticks
    assert lost == pytest.approx(expected, abs=0.02)
    assert lost <= regret.delay_bound(np.array([delay]), stays, 1.0) + 0.02


def test_delays_begin_again_after_the_last_one() -> None:
    # As long as an episode: each of its ticks has the same delay in every episode.
    found = play(TwoStates(), *[1] * 5, *[2] * 5)
    assert found.returns.tolist() == [5] * 3


def test_only_a_world_without_delay_shows_the_frame_of_a_reset() -> None:
    # An episode of an odd length ends in the state that the next one does not begin with.
    odd = TwoStates(length=5)
    assert PausedWorld(adapter_of(odd), right_action, 0).play(3).returns.tolist() == [5] * 3
    assert play(odd, 1).returns.tolist() == [5, 4, 4]


def test_the_seed_is_given_to_the_first_reset_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int | None] = []
    reset = TwoStates.reset

    def noted(self: TwoStates, *, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(TwoStates, "reset", noted)
    world = PausedWorld(adapter_of(TwoStates()), right_action, 7)
    played: list[int] = []
    world.play(3, lambda: played.append(len(world.starts)))
    assert seeds == [7, None, None]
    assert played == [1, 2, 3]


@pytest.mark.parametrize(("delay", "rewards"), [(1, (0.0, 0.25)), (2, (-0.75, 0.25))])
def test_the_range_of_rewards_has_0_in_it(delay: int, rewards: tuple[float, float]) -> None:
    class Losing(TwoStates):
        def step(self, action: Any) -> Any:
            frame, reward, *rest = super().step(action)
            return frame, reward - 0.75, *rest

    world = PausedWorld(adapter_of(Losing()), right_action, 0, (delay,))
    world.play(2)
    assert world.rewards == rewards


def test_a_live_episode_begins_with_its_first_frame_repeated() -> None:
    seen: list[list[float]] = []

    def values(observation: Any) -> Any:
        seen.append(observation[:, 0].tolist())
        return right_action(observation)

    adapter = Adapter(TwoStates(length=3), EnvConfig(frame_stack=2))
    PausedWorld(adapter, values, 0, (1,)).play(2)
    assert seen == [[0, 0], *[[1, 1], [1, 0], [0, 1]] * 2]


def test_an_episode_has_a_tick_however_long_a_tick_is() -> None:
    slow = Adapter(TwoStates(), EnvConfig(rate_hz=1e-4))
    assert PausedWorld(slow, right_action, 0).play(2).ticks.tolist() == [1, 1]


def test_it_ends_in_the_middle_when_told_to() -> None:
    ticks = iter([True] * 14 + [False])
    world = PausedWorld(adapter_of(TwoStates()), right_action, 0, go_on=lambda: next(ticks))
    assert world.play(3).ticks.tolist() == [LENGTH]


def test_the_bounds_are_those_of_the_theorem() -> None:
    rng = np.random.default_rng(0)
    delays, p, span = rng.integers(1, 9, 500), 0.93, 2.5
    lost = 0.0
    for delay in delays:
        usual = 1.0
        for _ in range(1, delay):
            usual *= p
        lost += span * (1.0 - usual)
    assert regret.delay_bound(delays, p, span) == pytest.approx(lost / 500)
    assert regret.delay_bound(delays, 1.0, span) == 0.0
    assert regret.delay_bound(np.ones(5, int), 0.1, span) == 0.0
    assert regret.inaction_bound(0.25, span) == 0.625


@pytest.mark.parametrize(("stays", "expected"), [(1.0, 1.0), (0.0, 1.0), (0.8, 0.8)])
def test_predictability_is_the_share_of_the_usual_next_frame(
    stays: float, expected: float
) -> None:
    world = PausedWorld(adapter_of(TwoStates(stays)), right_action, 0)
    found = regret.predictability(world, 3.0, 40, 100, np.random.default_rng(1))
    assert (found.states, found.clones) == (40, 100)
    assert found.mean == pytest.approx(expected, abs=0.03)
    assert expected - 0.15 <= found.minimum <= found.mean


@pytest.mark.parametrize(
    "kind", [np.random.default_rng, np.random.RandomState, random.Random]
)
def test_predictability_is_that_of_generators_that_are_not_gymnasiums(kind: Any) -> None:
    # All clones drew the same, so p was 1, and the bound of the delay regret 0.
    world = PausedWorld(adapter_of(OwnChance(0.8, kind(3))), right_action, 0)
    found = regret.predictability(world, 3.0, 20, 100, np.random.default_rng(1))
    assert found.mean == pytest.approx(0.8, abs=0.03)


def test_a_frame_that_comes_after_the_end_of_the_episode_is_not_waited_for() -> None:
    world = PausedWorld(adapter_of(TwoStates()), right_action, 0)
    world.adapter.picture_lag = LENGTH
    found = regret.predictability(world, 1.0, 9, 2, np.random.default_rng(1))
    assert (found.states, found.mean) == (9, 1.0)


@pytest.mark.parametrize("states", [0, 2])
def test_predictability_is_that_of_the_states_until_it_was_ended(states: int) -> None:
    world, more = PausedWorld(adapter_of(TwoStates()), right_action, 0), [False, *[True] * states]
    found = regret.predictability(world, 1.0, 9, 2, np.random.default_rng(1), go_on=more.pop)
    assert (found.states if found else 0) == states


@pytest.mark.parametrize("gap", [1.0, 2.0, 8.0])
def test_states_lie_as_far_apart_as_they_should(gap: float) -> None:
    world = PausedWorld(adapter_of(TwoStates()), right_action, 0)
    played = 0
    step = world.step

    def counted() -> tuple[float, bool]:
        nonlocal played
        played += 1
        return step()

    world.step = counted  # type: ignore[method-assign]
    regret.predictability(world, gap, 400, 1, np.random.default_rng(1))
    assert played / 400 == pytest.approx(gap, rel=0.15)


def test_a_state_that_cannot_be_saved_is_refused_in_one_line() -> None:
    regret.check_cloning(adapter_of(TwoStates(0.5)), "two")
    for env, said in (
        (Locked(), "cannot be saved: cannot pickle"), (Silent(), "cannot be saved: ValueError"),
        (Elsewhere(), "second time"),
    ):
        with pytest.raises(UserError, match=said):
            regret.check_cloning(adapter_of(env), "two")


def test_what_the_ledger_says() -> None:
    rows = np.zeros(8, row_dtype(make_blueprint()))
    rows["tick"] = np.arange(8)
    rows["observed"] = [-1, -1, 0, 1, -1, 2, 2, 6]
    rows["source"] = np.where(rows["observed"] < 0, Source.DEFAULT, Source.AGENT)
    rows["reward"] = [1, 2, 3, 4, 5, 6, 7, 8]
    rows["flags"][[2, 5]] = 1
    assert regret.recorded_delays(rows).tolist() == [2, 2, 2, 2, 2, 3, 4, 1]
    found = regret.live_episodes(rows)
    assert (found.returns.tolist(), found.ticks.tolist()) == ([6, 15], [3, 3])
    assert found.ended.all()
    assert len(regret.live_episodes(rows[:2]).returns) == 0
    with pytest.raises(UserError, match="no action came in time"):
        regret.recorded_delays(rows[:2])


def test_the_interval_of_a_mean_is_students_and_pairs_are_left_out_together() -> None:
    values = np.random.default_rng(2).normal(size=9)
    for number in (2, 9):
        some = values[:number]
        found = jackknife(lambda each: float(each.mean()), some)
        error = some.std(ddof=1) / math.sqrt(number)
        assert found.half_interval == pytest.approx(student(number) * error)
    same = jackknife(lambda a, b: float(a.mean() - b.mean()), values + 5.0, values)
    assert same == pytest.approx((5.0, 0.0))
    assert jackknife(lambda each: float(each.mean()), values[:1]).half_interval is None
