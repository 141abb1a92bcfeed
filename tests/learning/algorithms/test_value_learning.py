"""Algorithms: gradients, what they learn, and an optimizer that survives what is not finite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rtagent.config import LearningConfig
from rtagent.errors import UserError
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.algorithms.c51 import c51_loss, c51_targets
from rtagent.learning.algorithms.dqn import double_dqn_targets, dqn_targets, huber_loss
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.value_learning import margin_loss
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy.heads import expected_values

from .actor_critics import gradient

ALGORITHMS = ["dqn", "double-dqn", "c51"]
COUNT, ATOMS = 16, 11


def learning(algorithm: str = "dqn", **values: Any) -> LearningConfig:
    return LearningConfig.model_validate(
        {
            "algorithm": algorithm, "atoms": ATOMS, "v_min": -3.0, "v_max": 3.0,
            "target_period": 5, "learning_rate": 1e-2, "precision": "float32", **values,
        }
    )


def network(algorithm: str = "dqn", seed: int = 0, *, norm: bool = True) -> nn.Module:
    torch.manual_seed(seed)
    last: list[nn.Module] = [nn.Linear(32, 2)]
    if algorithm == "c51":
        last = [nn.Linear(32, 2 * ATOMS), nn.Unflatten(1, (2, ATOMS))]
    middle: list[nn.Module] = [nn.BatchNorm1d(32)] if norm else []
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), *middle, *last)


def batch(seed: int = 0, reward: float = 1.0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        observations=torch.rand(COUNT, 1, 4, 4, generator=rng),
        actions=torch.randint(0, 2, (COUNT,), generator=rng), rewards=torch.full((COUNT,), reward),
        discounts=torch.full((COUNT,), 0.9),
        next_observations=torch.rand(COUNT, 1, 4, 4, generator=rng),
        terminals=torch.ones(COUNT, dtype=torch.bool), weights=torch.ones(COUNT),
    )


def private(algorithm: str = "dqn", **values: Any) -> SharedUpdate:
    return SharedUpdate.private(network(algorithm), learning(algorithm, **values))


def pair(algorithm: str, **values: Any) -> Algorithm:
    """An algorithm whose target network differs from the one that learns."""
    made = algorithm_for(network(algorithm, norm=False), learning(algorithm, **values))
    made.target.load_state_dict(network(algorithm, seed=1, norm=False).state_dict())
    return made


# ---- gradients


def expected_loss(algorithm: str, made: Algorithm, data: Batch, margin: float) -> torch.Tensor:
    """The algorithm's loss and that of the margin, out of the tested ones."""
    values = made.network(data.observations)
    if algorithm == "c51":
        values = values.softmax(dim=2) @ torch.linspace(-3.0, 3.0, ATOMS)
    above = margin_loss(values, data.actions, data.demonstrated, margin)
    return expected_td_loss(algorithm, made, data) + (above if margin else 0.0)


def expected_td_loss(algorithm: str, made: Algorithm, data: Batch) -> torch.Tensor:
    """Each algorithm in one line, out of the tested losses."""
    online, target = made.network, made.target
    common = (data.rewards, data.discounts)
    next_values = target(data.next_observations)
    if algorithm == "c51":
        support = torch.linspace(-3.0, 3.0, ATOMS)
        masses = c51_targets(*common, next_values, data.terminals, support)
        return c51_loss(online(data.observations), data.actions, masses, data.weights)[0]
    if algorithm == "double-dqn":
        chosen_by = online(data.next_observations)
        targets = double_dqn_targets(*common, chosen_by, next_values, data.terminals)
    else:
        targets = dqn_targets(*common, next_values, data.terminals)
    return huber_loss(online(data.observations), data.actions, targets, data.weights)[0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("margin", [0.0, 0.7])
def test_the_gradient_is_that_of_the_algorithm(algorithm: str, margin: float) -> None:
    made = pair(algorithm, demonstration_margin=margin)
    data = replace(
        batch(3, reward=0.2), weights=torch.linspace(0.1, 1.0, COUNT),
        demonstrated=torch.arange(COUNT) % 2 == 0, terminals=torch.arange(COUNT) % 3 == 0,
    )
    loss, errors = made.compute_gradient(data)
    found = gradient(made.network)
    made.network.zero_grad()
    wanted = expected_loss(algorithm, made, data, margin)
    wanted.backward()
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(found, gradient(made.network))
    assert errors.shape == (COUNT,)
    assert (errors >= 0).all()
    assert all(p.grad is None for p in made.target.parameters())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_priorities_know_nothing_of_the_margin(algorithm: str) -> None:
    data = replace(batch(3), demonstrated=torch.ones(COUNT, dtype=torch.bool))
    plain, above = pair(algorithm), pair(algorithm, demonstration_margin=0.7)
    without, with_margin = plain.compute_gradient(data), above.compute_gradient(data)
    assert with_margin[0] > without[0]
    assert torch.equal(with_margin[1], without[1])


# ---- learning alone


def demonstration(seed: int) -> Batch:
    """Action 1 where the picture's first half is the brighter one, else 0; rewards are noise.

    Without noise C51's distributions shrink to one atom, and their means move no more.
    """
    data, noise = batch(seed), torch.Generator().manual_seed(seed)
    halves = data.observations.flatten(1).unflatten(1, (2, -1)).mean(dim=2)
    return replace(
        data, actions=(halves[:, 0] > halves[:, 1]).long(),
        rewards=0.5 * torch.randn(COUNT, generator=noise),
        demonstrated=torch.ones(COUNT, dtype=torch.bool),
    )


@pytest.mark.parametrize("algorithm", ["dqn", "c51"])
@pytest.mark.parametrize(("margin", "least", "most"), [(0.0, 0.0, 0.7), (0.5, 0.85, 1.0)])
def test_with_a_margin_demonstrations_are_imitated(
    algorithm: str, margin: float, least: float, most: float
) -> None:
    module = network(algorithm, norm=False)
    update = SharedUpdate.private(module, learning(algorithm, demonstration_margin=margin))
    for seed in range(250):
        update.step(demonstration(seed))
    update.refresh()
    agreed = []
    for seed in range(1000, 1020):
        data = demonstration(seed)
        with torch.no_grad():
            values = module(data.observations)
        if algorithm == "c51":
            values = expected_values(values, torch.linspace(-3.0, 3.0, ATOMS))
        agreed.append(float((values.argmax(dim=1) == data.actions).float().mean()))
    assert least <= np.mean(agreed) <= most


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_the_value_of_a_certain_reward(algorithm: str, precision: str) -> None:
    update = private(algorithm, precision=precision)
    errors = [float(update.step(batch(seed)).errors.mean()) for seed in range(200)]
    assert np.mean(errors[-10:]) < 0.2 * np.mean(errors[:3])
    assert update.state.progress.updates == 200
    assert all(p.dtype == torch.float32 for p in update.algorithm.network.parameters())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_is_not_applied(algorithm: str, bad: float) -> None:
    update = private(algorithm)
    update.step(batch(0))
    before = update.state.current.weights.copy()
    assert not update.step(batch(1, reward=bad)).finite
    assert update.state.progress.updates == 1
    np.testing.assert_array_equal(update.state.current.weights, before)
    assert update.step(batch(2)).finite
    assert np.isfinite(update.state.current.weights).all()


def test_a_network_that_keeps_its_weights_is_refused_in_one_line() -> None:
    """It was a traceback of torch's, at each start of a learner."""
    made = network()
    algorithm_for(made, learning())
    with pytest.raises(UserError, match=r"nothing to learn.*learning\.processes = 0"):
        algorithm_for(made.requires_grad_(False), learning())
