"""Losses against slow transcriptions of their equations, sample by sample."""

from __future__ import annotations

from math import ceil, exp, floor, log, pi, sqrt, tanh
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtagent.learning.algorithms.actor_critic import actor_loss, critics_loss
from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.learning.algorithms.c51 import c51_loss, c51_targets
from rtagent.learning.algorithms.dqn import double_dqn_targets, dqn_targets, huber_loss
from rtagent.learning.algorithms.sac import (
    sac_actor_loss,
    sac_targets,
    squashed_sample,
    temperature_loss,
)
from rtagent.learning.algorithms.td3 import smoothed_actions, td3_targets
from rtagent.learning.algorithms.value_learning import margin_loss

COUNT, KINDS = 33, 4
SUPPORT = torch.linspace(-2.0, 3.0, 11)
NO_TERMINAL = torch.zeros(1, dtype=torch.bool)

Array = np.ndarray[Any, Any]


@pytest.fixture(params=range(5))
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    return np.random.default_rng(request.param)


def transitions(rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Rewards, gamma**n with an n for each sample, terminals."""
    rewards = rng.normal(0, 1, COUNT).astype(np.float32)
    discounts = (0.9 ** rng.integers(1, 9, COUNT)).astype(np.float32)
    return rewards, discounts, rng.random(COUNT) < 0.3


def tensors(*arrays: Array) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays]


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(0, 2, shape).astype(np.float32)


def softmax(logits: Array) -> list[float]:
    total = sum(exp(each) for each in logits)
    return [exp(each) / total for each in logits]


def first_best(values: Any) -> int:
    return max(range(len(values)), key=lambda action: float(values[action]))


# ---- targets of one value, DQN and Double DQN


@pytest.mark.parametrize("kind", ["dqn", "double-dqn", "td3", "ddpg"])
def test_targets_are_the_equation(kind: str, rng: np.random.Generator) -> None:
    rewards, discounts, terminals = transitions(rng)
    chosen_by, values = normal(rng, COUNT, KINDS), normal(rng, COUNT, KINDS)
    end = tensors(terminals)[0]
    if kind == "dqn":
        found = dqn_targets(*tensors(rewards, discounts, values), end)
        ahead = [max(each) for each in values]
    elif kind == "double-dqn":
        found = double_dqn_targets(*tensors(rewards, discounts, chosen_by, values), end)
        ahead = [values[i][first_best(chosen_by[i])] for i in range(COUNT)]
    elif kind == "ddpg":
        found = bootstrapped(*tensors(rewards, discounts, values[:, 0]), end)
        ahead = [each[0] for each in values]
    else:
        # The least hopeful of four critics.
        found = td3_targets(*tensors(rewards, discounts, values.T), end)
        ahead = [min(each) for each in values]
    wanted = [
        rewards[i] if terminals[i] else rewards[i] + discounts[i] * ahead[i] for i in range(COUNT)
    ]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_huber_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    values, targets = normal(rng, COUNT, KINDS), normal(rng, COUNT)
    actions, weights = rng.integers(0, KINDS, COUNT), rng.random(COUNT).astype(np.float32)
    losses, errors = [], []
    for i in range(COUNT):
        error = abs(targets[i] - values[i][actions[i]])
        losses.append(weights[i] * (0.5 * error**2 if error < 1 else error - 0.5))
        errors.append(error)
    loss, found = huber_loss(*tensors(values, actions, targets, weights))
    assert float(loss) == pytest.approx(sum(losses) / COUNT, rel=1e-5)
    np.testing.assert_allclose(found.numpy(), errors, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("margin", [0.0, 0.8])
def test_margin_loss_is_the_equation(rng: np.random.Generator, margin: float) -> None:
    values, actions = normal(rng, COUNT, KINDS), rng.integers(0, KINDS, COUNT)
    demonstrated = rng.random(COUNT) < 0.5
    losses = [
        max(values[i][a] + margin * (a != actions[i]) for a in range(KINDS)) - values[i][actions[i]]
        for i in range(COUNT)
        if demonstrated[i]
    ]
    loss = float(margin_loss(*tensors(values, actions, demonstrated), margin))
    assert loss == pytest.approx(sum(losses) / COUNT, rel=1e-5)
    assert loss > 0.0


@pytest.mark.parametrize(
    ("others", "wanted"), [(0.1, [0.0, 0.0, 0.0]), (0.3, [0.0, 0.5, -0.5]), (2.0, [0.0, 0.5, -0.5])]
)
def test_a_margin_pulls_on_the_best_other_action_until_it_is_kept(
    others: float, wanted: list[float]
) -> None:
    values = torch.tensor([[0.0, others, 1.0], [0.0, 5.0, 1.0]], requires_grad=True)
    loss = margin_loss(values, torch.tensor([2, 2]), torch.tensor([True, False]), 0.8)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(max(0.0, others + 0.8 - 1.0) / 2)
    assert values.grad.tolist() == [wanted, [0.0, 0.0, 0.0]]


def test_no_gradient_through_the_target() -> None:
    next_values = torch.ones(1, 2, requires_grad=True)
    values = torch.zeros(1, 2, requires_grad=True)
    zero, one = torch.zeros(1), torch.ones(1)
    for targets in (
        dqn_targets(zero, one, next_values, NO_TERMINAL),
        double_dqn_targets(zero, one, values, next_values, NO_TERMINAL),
    ):
        assert not targets.requires_grad
    loss, errors = huber_loss(values, torch.tensor([1]), targets, one)
    loss.backward()
    assert next_values.grad is None
    assert values.grad.tolist() == [[0.0, -1.0]]
    assert not errors.requires_grad


# ---- C51


def slow_projection(
    reward: float, discount: float, terminal: bool, masses: list[float], support: Array
) -> list[float]:
    """Algorithm 1 of Bellemare et al., 2017, with the mass on an atom, which it loses, kept."""
    low, high = float(support[0]), float(support[-1])
    step = (high - low) / (len(support) - 1)
    target = [0.0] * len(support)
    for j, mass in enumerate(masses):
        value = reward + (0.0 if terminal else discount) * float(support[j])
        position = (min(max(value, low), high) - low) / step
        lower, upper = floor(position), ceil(position)
        if lower == upper:
            target[lower] += mass
        else:
            target[lower] += mass * (upper - position)
            target[upper] += mass * (position - lower)
    return target


@pytest.mark.parametrize("bounds", [(-2.0, 3.0), (-3.0, 2.0), (1.0, 4.0), (-4.0, -1.0)])
def test_c51_targets_are_the_algorithm(
    bounds: tuple[float, float], rng: np.random.Generator
) -> None:
    rewards, discounts, terminals = transitions(rng)
    rewards *= 3.0
    atoms = torch.linspace(*bounds, 11)
    support = atoms.numpy()
    logits = normal(rng, COUNT, KINDS, len(support))
    wanted = []
    for i in range(COUNT):
        each = [softmax(logits[i][action]) for action in range(KINDS)]
        best = first_best([float(np.dot(masses, support)) for masses in each])
        wanted.append(slow_projection(rewards[i], discounts[i], terminals[i], each[best], support))
    found = c51_targets(*tensors(rewards, discounts, logits, terminals), atoms)
    np.testing.assert_allclose(found.numpy(), wanted, atol=2e-5)


@settings(max_examples=60)
@given(
    reward=st.floats(-4.0, 4.0, width=32), discount=st.floats(0.0, 1.0, width=32),
    atoms=st.integers(2, 60), seed=st.integers(0, 1000),
)
@example(reward=3.0, discount=0.0, atoms=22, seed=0)  # rounded to beyond the last atom
def test_a_projection_keeps_all_mass(reward: float, discount: float, atoms: int, seed: int) -> None:
    support = torch.linspace(-2.0, 3.0, atoms)
    logits = torch.randn(1, 1, atoms, generator=torch.Generator().manual_seed(seed))
    target = c51_targets(
        torch.tensor([reward]), torch.tensor([discount]), logits, NO_TERMINAL, support
    )
    assert (target >= 0.0).all()
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    ("reward", "masses"),
    [(0.0, {4: 1.0}), (0.25, {4: 0.5, 5: 0.5}), (99.0, {10: 1.0}), (-99.0, {0: 1.0})],
)
def test_a_terminal_successor_leaves_the_reward_alone(
    reward: float, masses: dict[int, float]
) -> None:
    logits = torch.full((1, 2, 11), float("nan"))
    target = c51_targets(
        torch.tensor([reward]), torch.tensor([0.9]), logits, torch.tensor([True]), SUPPORT
    )
    wanted = [masses.get(atom, 0.0) for atom in range(11)]
    np.testing.assert_allclose(target[0].numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), float("-inf")])
def test_a_reward_that_is_not_finite_gives_a_loss_that_is_not(reward: float) -> None:
    target = c51_targets(
        torch.tensor([reward]), torch.tensor([0.9]), torch.zeros(1, 2, 11), NO_TERMINAL, SUPPORT
    )
    loss, _ = c51_loss(torch.zeros(1, 2, 11), torch.tensor([0]), target, torch.ones(1))
    assert torch.isnan(loss)


def test_c51_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    logits = normal(rng, COUNT, KINDS, 11)
    targets = rng.dirichlet(np.full(11, 0.3), COUNT).astype(np.float32)
    targets[0] = np.eye(11)[3]
    actions, weights = rng.integers(0, KINDS, COUNT), rng.random(COUNT).astype(np.float32)
    # Nothing is left to learn of it.
    targets[1] = softmax(logits[1][actions[1]])
    losses, divergences = [], []
    for i in range(COUNT):
        masses = softmax(logits[i][actions[i]])
        pairs = [(float(m), p) for m, p in zip(targets[i], masses, strict=True) if m > 0]
        losses.append(weights[i] * -sum(m * log(p) for m, p in pairs))
        divergences.append(sum(m * log(m / p) for m, p in pairs))
    loss, found = c51_loss(*tensors(logits, actions, targets, weights))
    assert float(loss) == pytest.approx(sum(losses) / COUNT, rel=1e-5)
    np.testing.assert_allclose(found.numpy(), divergences, rtol=1e-3, atol=1e-5)


# ---- TD3


def test_smoothed_actions_are_the_equation(rng: np.random.Generator) -> None:
    low, high = np.float32([-1.0, 0.0, -8.0]), np.float32([1.0, 0.5, 2.0])
    actions = rng.uniform(low, high, (COUNT, 3)).astype(np.float32)
    noise = normal(rng, COUNT, 3)
    wanted = np.empty_like(actions)
    for i in range(COUNT):
        for part in range(3):
            moved = min(max(noise[i][part], -0.5), 0.5) * (high[part] - low[part]) / 2
            wanted[i, part] = min(max(actions[i][part] + moved, low[part]), high[part])
    found = smoothed_actions(*tensors(actions, noise), 0.5, *tensors(low, high))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6, atol=1e-6)
    assert (wanted == low).any()
    assert (wanted == high).any()


def test_the_critics_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    values, targets = normal(rng, 2, COUNT), normal(rng, COUNT)
    weights = rng.random(COUNT).astype(np.float32)
    wanted = sum(
        sum(weights[i] * (targets[i] - values[critic][i]) ** 2 for i in range(COUNT)) / COUNT
        for critic in range(2)
    )
    far = [
        sum(abs(targets[i] - values[critic][i]) for critic in range(2)) / 2 for i in range(COUNT)
    ]
    loss, errors = critics_loss(*tensors(values, targets, weights))
    assert float(loss) == pytest.approx(float(wanted), rel=1e-5)
    np.testing.assert_allclose(errors.numpy(), far, rtol=1e-5, atol=1e-6)


def test_the_actor_loss_is_the_weighted_equation(rng: np.random.Generator) -> None:
    values, weights = normal(rng, COUNT), rng.random(COUNT).astype(np.float32)
    wanted = -sum(weights[i] * values[i] for i in range(COUNT)) / COUNT
    assert float(actor_loss(*tensors(values, weights))) == pytest.approx(float(wanted), rel=1e-4)


def test_no_gradient_through_the_targets_of_td3() -> None:
    next_values = torch.ones(2, 1, requires_grad=True)
    actions = torch.zeros(1, 1, requires_grad=True)
    one = torch.ones(1)
    targets = td3_targets(one, one, next_values, torch.tensor([False]))
    smoothed = smoothed_actions(actions, torch.zeros(1, 1), 0.5, -one, one)
    assert not targets.requires_grad
    assert not smoothed.requires_grad
    values = torch.zeros(2, 1, requires_grad=True)
    loss, errors = critics_loss(values, targets, one)
    loss.backward()
    assert values.grad.tolist() == [[-4.0], [-4.0]]
    assert not errors.requires_grad


# ---- SAC


def density(action: float, mean: float, deviation: float) -> float:
    """Density of a squashed normal distribution, by the derivative of its inverse."""
    before = 0.5 * log((1 + action) / (1 - action))
    normal = exp(-0.5 * ((before - mean) / deviation) ** 2) / (deviation * sqrt(2 * pi))
    return normal / (1 - action**2)


def test_squashed_samples_and_their_densities_are_the_equation(rng: np.random.Generator) -> None:
    means, noise = rng.normal(0, 0.8, (2, COUNT, 3)).astype(np.float32)
    log_stds = rng.uniform(-2, 0, (COUNT, 3)).astype(np.float32)
    actions, densities = squashed_sample(*tensors(means, log_stds, noise))
    for i in range(COUNT):
        wanted = 1.0
        for part in range(3):
            deviation = exp(log_stds[i][part])
            action = tanh(means[i][part] + deviation * noise[i][part])
            assert float(actions[i, part]) == pytest.approx(action, abs=1e-6)
            wanted *= density(action, means[i][part], deviation)
        assert float(densities[i]) == pytest.approx(log(wanted), abs=1e-3)


def test_a_squashed_density_is_finite_where_tanh_is_one() -> None:
    means = torch.tensor([[40.0, -40.0]], requires_grad=True)
    log_stds = torch.tensor([[0.0, 99.0]], requires_grad=True)
    actions, densities = squashed_sample(means, log_stds, torch.zeros(1, 2))
    assert actions.tolist() == [[1.0, -1.0]]
    # log(1 - tanh^2(40)) = log(4) - 80; the deviation is clipped to e^2.
    assert float(densities.detach()) == pytest.approx(2 * (80 - log(4)) - 2 - log(2 * pi), rel=1e-5)
    (actions.sum() + densities.sum()).backward()
    assert torch.isfinite(means.grad).all()
    assert log_stds.grad.tolist() == [[-1.0, 0.0]]


def test_soft_targets_are_the_equation(rng: np.random.Generator) -> None:
    rewards, discounts, terminals = transitions(rng)
    values, densities = normal(rng, 2, COUNT), normal(rng, COUNT)
    found = sac_targets(
        *tensors(rewards, discounts, values, densities), torch.tensor([0.3]),
        torch.from_numpy(terminals),
    )
    for i in range(COUNT):
        soft = min(values[0][i], values[1][i]) - 0.3 * densities[i]
        wanted = rewards[i] if terminals[i] else rewards[i] + discounts[i] * soft
        assert float(found[i]) == pytest.approx(float(wanted), rel=1e-4, abs=1e-5)


def test_the_losses_of_a_random_actor_are_the_weighted_equations(rng: np.random.Generator) -> None:
    values, densities = normal(rng, COUNT), normal(rng, COUNT)
    weights, logarithm = rng.random(COUNT).astype(np.float32), torch.tensor([-0.7])
    found = sac_actor_loss(
        *tensors(values, densities), torch.tensor([0.3]), torch.from_numpy(weights)
    )
    wanted = sum(weights[i] * (0.3 * densities[i] - values[i]) for i in range(COUNT)) / COUNT
    assert float(found) == pytest.approx(float(wanted), rel=1e-4, abs=1e-5)
    found = temperature_loss(
        logarithm, torch.from_numpy(densities), -2.0, torch.from_numpy(weights)
    )
    wanted = sum(weights[i] * 0.7 * (densities[i] - 2.0) for i in range(COUNT)) / COUNT
    assert float(found) == pytest.approx(float(wanted), rel=1e-4, abs=1e-5)


# ---- all


@pytest.mark.parametrize("told", [float("inf"), float("nan")])
def test_a_terminal_state_has_no_value_whatever_the_network_says(told: float) -> None:
    reward, discount, terminal = torch.tensor([2.0]), torch.tensor([0.9]), torch.tensor([True])
    values = torch.full((1, 2), told)
    assert dqn_targets(reward, discount, values, terminal).tolist() == [2.0]
    assert double_dqn_targets(reward, discount, values, values, terminal).tolist() == [2.0]
    assert td3_targets(reward, discount, values.T, terminal).tolist() == [2.0]
    assert bootstrapped(reward, discount, values[:, 0], terminal).tolist() == [2.0]
    soft = sac_targets(
        reward, discount, values.T, torch.tensor([told]), torch.ones(1), terminal
    )
    assert soft.tolist() == [2.0]
