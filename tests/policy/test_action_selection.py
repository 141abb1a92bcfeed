"""Explorers: from the network's answer to the action of a tick."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.policy.action_selection import explorer_for, greedy_action
from rtagent.policy.exploration import explores, smooth_noise
from rtagent.policy.heads import GaussianHead, PolicyHead

BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
POLICY = PolicyConfig(exploration_hold_ticks=4)
ANSWER = np.float32([0.5, 0.75])


def test_discrete_actions_are_the_best_or_the_drawn_one() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY)
    assert explorer.outputs == 3
    answer = np.float32([0.0, 7.0, 1.0])
    for tick in range(200):
        explorer.decide(tick, 0.5)
        drawn = explores(5, tick, 4, 0.5, 3)
        assert explorer.action(answer) == (1 if drawn is None else drawn)


@pytest.mark.parametrize("rate", [0.01, 0.95])
def test_noise_is_scaled_by_the_rate_and_the_range(rate: float) -> None:
    explorer = explorer_for(BOX, 5, POLICY)
    assert explorer.outputs == 2
    for tick in range(50):
        explorer.decide(tick, rate)
        noise = smooth_noise(5, tick, 4, 2)
        wanted = [0.5 + rate * noise[0] * 2.0, 0.75 + rate * noise[1] * 0.5]
        within = np.clip(wanted, BOX.low, BOX.high)
        np.testing.assert_allclose(explorer.action(ANSWER), within, rtol=1e-5, atol=1e-6)
    assert explorer.action(ANSWER).dtype == np.float32


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.99, 1.0])
def test_actions_stay_within_their_bounds(rate: float) -> None:
    explorer = explorer_for(BOX, 1, POLICY)
    drawn = []
    for tick in range(500):
        explorer.decide(tick, rate)
        drawn.append(explorer.action(ANSWER))
    assert (np.array(drawn) >= BOX.low).all()
    assert (np.array(drawn) <= BOX.high).all()
    assert (np.std(drawn, axis=0) > 0.0).all() == (rate > 0.0)


def test_at_rate_1_actions_are_uniform_whatever_the_policy_says() -> None:
    explorer = explorer_for(BOX, 3, PolicyConfig(exploration_hold_ticks=1))
    drawn = []
    for tick in range(8000):
        explorer.decide(tick, 1.0)
        drawn.append(explorer.action(ANSWER))
        assert (explorer.action(-ANSWER) == drawn[-1]).all()
    shares = (np.array(drawn) - BOX.low) / (BOX.high - BOX.low)
    for part in shares.T:
        counts = np.histogram(part, 10, (0.0, 1.0))[0]
        assert ((counts - 800.0) ** 2 / 800.0).sum() < 9 + 6 * (2 * 9) ** 0.5


def test_what_was_drawn_for_one_tick_does_not_stay_for_the_next() -> None:
    explorer = explorer_for(BOX, 3, POLICY)
    explorer.decide(0, 1.0)
    explorer.decide(1, 0.0)
    np.testing.assert_array_equal(explorer.action(ANSWER), ANSWER)


GAUSSIAN = GaussianHead(tuple(BOX.low.tolist()), tuple(BOX.high.tolist()))


def test_a_random_actor_s_actions_have_its_own_distribution() -> None:
    answer = np.float32([0.3, -1.0, np.log(0.5), np.log(0.1)])
    explorer = explorer_for(BOX, 7, PolicyConfig(exploration_hold_ticks=1), GAUSSIAN)
    assert explorer.outputs == 4
    drawn = []
    for tick in range(4000):
        # Whatever the rate: how much is explored is the policy's.
        explorer.decide(tick, 0.01 if tick % 2 else 0.99)
        drawn.append(explorer.action(answer))
    assert drawn[0].dtype == np.float32
    before = np.arctanh(2.0 * (np.array(drawn) - BOX.low) / (BOX.high - BOX.low) - 1.0)
    np.testing.assert_allclose(before.mean(axis=0), [0.3, -1.0], atol=0.04)
    np.testing.assert_allclose(before.std(axis=0), [0.5, 0.1], rtol=0.05)


def test_a_random_actor_s_neighbouring_actions_differ_little() -> None:
    answer = np.float32([0.0, 0.0, 0.0, 0.0])
    explorer = explorer_for(BOX, 7, PolicyConfig(exploration_hold_ticks=50), GAUSSIAN)
    drawn = []
    for tick in range(2000):
        explorer.decide(tick, 0.5)
        drawn.append(explorer.action(answer))
    assert np.abs(np.diff(drawn, axis=0)).max() < 0.25
    assert (np.std(drawn, axis=0) > 0.2).all()


def test_a_random_actor_at_rate_0_and_at_rate_1() -> None:
    answer = np.float32([50.0, 0.0, 90.0, 0.0])
    explorer = explorer_for(BOX, 7, POLICY, GAUSSIAN)
    explorer.decide(3, 0.0)
    np.testing.assert_allclose(explorer.action(answer), [2.0, 0.5])
    other = explorer_for(BOX, 7, POLICY)
    for each in (explorer, other):
        each.decide(4, 1.0)
    np.testing.assert_array_equal(explorer.action(answer), other.action(ANSWER))
    explorer.decide(5, 0.5)
    action = explorer.action(answer)
    assert BOX.contains(action)


POLICY_HEAD = PolicyHead()


def test_a_policy_s_actions_have_its_probabilities_and_say_them() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY, POLICY_HEAD)
    answer = np.log(np.float32([0.1, 0.6, 0.3])) + 40.0
    drawn, said = [], []
    for tick in range(6000):
        explorer.decide(tick, 0.01 if tick % 2 else 1.0)
        drawn.append(explorer.action(answer))
        said.append(explorer.log_probability)
    counts = np.bincount(drawn, minlength=3)
    np.testing.assert_allclose(counts / 6000, [0.1, 0.6, 0.3], atol=0.02)
    np.testing.assert_allclose(np.exp(said), np.array([0.1, 0.6, 0.3])[drawn], rtol=1e-4)
    # Neighbouring ticks are independent, however long other policies hold a draw.
    same = np.mean(np.diff(drawn) == 0)
    assert same == pytest.approx(0.1**2 + 0.6**2 + 0.3**2, abs=0.03)


def test_a_policy_at_rate_0_takes_the_likeliest_action() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY, POLICY_HEAD)
    for tick in range(20):
        explorer.decide(tick, 0.0)
        assert explorer.action(np.float32([1.0, 3.0, 2.9])) == 1
        assert explorer.log_probability == 0.0


def test_an_action_without_any_probability_is_never_drawn() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY, POLICY_HEAD)
    for tick in range(500):
        explorer.decide(tick, 0.5)
        assert explorer.action(np.float32([-900.0, 0.0, -900.0])) == 1


def test_greedy_actions() -> None:
    assert greedy_action(np.float32([1.0, 3.0]), spaces.Discrete(2)) == 1
    assert greedy_action(ANSWER, BOX) is ANSWER
