"""Explorers: from the network's answer to the action of a tick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.policy.action_selection import Explorer, explorer_for, greedy_action
from rtagent.policy.exploration import explores, smooth_noise
from rtagent.policy.heads import GaussianHead, PolicyHead

BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
POLICY = PolicyConfig(exploration_hold_ticks=4)
ANSWER = np.float32([0.5, 0.75])


def drawn(explorer: Explorer, answer: np.ndarray, rates: Sequence[float]) -> np.ndarray:
    """The actions of the ticks from 0 on, each at its rate."""
    actions = []
    for tick, rate in enumerate(rates):
        explorer.decide(tick, rate)
        actions.append(explorer.action(answer))
    return np.array(actions)


def test_discrete_actions_are_the_best_or_the_drawn_one() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY)
    assert explorer.outputs == 3
    random = [explores(5, tick, 4, 0.5, 3) for tick in range(200)]
    wanted = [1 if each is None else each for each in random]
    assert drawn(explorer, np.float32([0.0, 7.0, 1.0]), [0.5] * 200).tolist() == wanted


@pytest.mark.parametrize("rate", [0.01, 0.95])
def test_noise_is_scaled_by_the_rate_and_the_range(rate: float) -> None:
    explorer = explorer_for(BOX, 5, POLICY)
    assert explorer.outputs == 2
    noise = np.array([smooth_noise(5, tick, 4, 2) for tick in range(50)])
    within = np.clip([0.5, 0.75] + rate * noise * [2.0, 0.5], BOX.low, BOX.high)
    found = drawn(explorer, ANSWER, [rate] * 50)
    np.testing.assert_allclose(found, within, rtol=1e-5, atol=1e-6)
    assert found.dtype == np.float32


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.99, 1.0])
def test_actions_stay_within_their_bounds(rate: float) -> None:
    found = drawn(explorer_for(BOX, 1, POLICY), ANSWER, [rate] * 500)
    assert (found >= BOX.low).all()
    assert (found <= BOX.high).all()
    assert (found.std(axis=0) > 0.0).all() == (rate > 0.0)


def test_at_rate_1_actions_are_uniform_whatever_the_policy_says() -> None:
    explorer = explorer_for(BOX, 3, PolicyConfig(exploration_hold_ticks=1))
    found, other = (drawn(explorer, each, [1.0] * 8000) for each in (ANSWER, -ANSWER))
    np.testing.assert_array_equal(found, other)
    shares = (found - BOX.low) / (BOX.high - BOX.low)
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
    # Whatever the rate: the policy decides how much it explores.
    found = drawn(explorer, answer, [0.99, 0.01] * 2000)
    assert found.dtype == np.float32
    before = np.arctanh(2.0 * (found - BOX.low) / (BOX.high - BOX.low) - 1.0)
    np.testing.assert_allclose(before.mean(axis=0), [0.3, -1.0], atol=0.04)
    np.testing.assert_allclose(before.std(axis=0), [0.5, 0.1], rtol=0.05)


def test_a_random_actor_s_neighbouring_actions_differ_little() -> None:
    explorer = explorer_for(BOX, 7, PolicyConfig(exploration_hold_ticks=50), GAUSSIAN)
    found = drawn(explorer, np.zeros(4, np.float32), [0.5] * 2000)
    assert np.abs(np.diff(found, axis=0)).max() < 0.25
    assert (found.std(axis=0) > 0.2).all()


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
    actions, said = [], []
    for tick in range(6000):
        explorer.decide(tick, 0.01 if tick % 2 else 1.0)
        actions.append(explorer.action(answer))
        said.append(explorer.log_probability)
    counts = np.bincount(actions, minlength=3)
    np.testing.assert_allclose(counts / 6000, [0.1, 0.6, 0.3], atol=0.02)
    np.testing.assert_allclose(np.exp(said), np.array([0.1, 0.6, 0.3])[actions], rtol=1e-4)
    # Neighbouring ticks are independent, however long other policies hold a draw.
    same = np.mean(np.diff(actions) == 0)
    assert same == pytest.approx(0.1**2 + 0.6**2 + 0.3**2, abs=0.03)


def test_a_policy_at_rate_0_takes_the_likeliest_action() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY, POLICY_HEAD)
    assert (drawn(explorer, np.float32([1.0, 3.0, 2.9]), [0.0] * 20) == 1).all()
    assert explorer.log_probability == 0.0


def test_an_action_without_any_probability_is_never_drawn() -> None:
    explorer = explorer_for(spaces.Discrete(3), 5, POLICY, POLICY_HEAD)
    assert (drawn(explorer, np.float32([-900.0, 0.0, -900.0]), [0.5] * 500) == 1).all()


def test_greedy_actions() -> None:
    assert greedy_action(np.float32([1.0, 3.0]), spaces.Discrete(2)) == 1
    assert greedy_action(ANSWER, BOX) is ANSWER
