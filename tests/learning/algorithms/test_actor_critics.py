"""Actors with critics: gradients, what they learn alone, and in turn on shared weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.learning.algorithms.actor_critic import critics_loss
from rtagent.learning.algorithms.algorithm import bootstrapped
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.algorithms.sac import (
    SAC,
    sac_actor_loss,
    sac_targets,
    squashed_sample,
    temperature_loss,
)
from rtagent.learning.algorithms.td3 import td3_targets
from rtagent.learning.shared_update import SharedUpdate
from rtagent.memory.learner_state import Progress
from rtagent.policy import networks
from rtagent.policy.actor_critic import build_learned
from tests.learning.local_update import LocalUpdate

from .actor_critics import (
    ACTIONS,
    VECTORS,
    B,
    batch,
    generator,
    gradient,
    in_turn,
    learning,
    network,
    pair,
    with_known_best,
)

EACH = pytest.mark.parametrize("name", ["td3", "ddpg", "sac"])


# ---- gradients


@pytest.mark.parametrize(("name", "critics", "targets_of"), [
    ("td3", 2, td3_targets),
    ("ddpg", 1, lambda rewards, discounts, next_values, terminals: bootstrapped(
        rewards, discounts, next_values[0], terminals
    )),
])
def test_the_gradient_is_that_of_the_algorithm(name: str, critics: int, targets_of: Any) -> None:
    made, data = pair(name), batch(3)
    loss, errors = made.compute_gradient(data)
    of_actor, of_critics = gradient(made.network.actor), gradient(made.network.critics)
    made.network.zero_grad()
    actions = made.target.actor(data.next_observations)
    next_values = made.target.values(actions, data.next_observations)
    assert next_values.shape == (critics, B)
    targets = targets_of(data.rewards, data.discounts, next_values, data.terminals)
    values = made.network.values(data.actions, data.observations)
    wanted, wanted_errors = critics_loss(values, targets, data.weights)
    wanted.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(errors, wanted_errors)
    torch.testing.assert_close(of_critics, gradient(made.network.critics))
    made.network.zero_grad()
    actor_values = made.network.values(made.network.actor(data.observations), data.observations)[0]
    (-(data.weights * actor_values).mean()).backward()
    torch.testing.assert_close(of_actor, gradient(made.network.actor))
    assert all(p.grad is None for p in made.target.parameters())


@pytest.mark.parametrize("temperature", [None, 0.2])
def test_the_gradient_of_sac_is_that_of_the_algorithm(temperature: float | None) -> None:
    made, data = pair("sac", temperature=temperature), batch(3)
    assert isinstance(made, SAC)
    learned = made.network
    torch.nn.init.constant_(learned.temperature.logarithm, -0.5)
    alpha = torch.tensor([np.exp(-0.5) if temperature is None else temperature]).float()
    loss, errors = made.compute_gradient(data)
    parts = [gradient(each) for each in made.parts[:2]]
    of_temperature = learned.temperature.logarithm.grad
    learned.zero_grad()

    rng = generator()
    noise, next_noise = (torch.empty(B, 2).normal_(generator=rng) for _ in range(2))
    low, high = (torch.from_numpy(each) for each in (ACTIONS.low, ACTIONS.high))

    def drawn(observations: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        output = learned.actor(observations)
        actions, densities = squashed_sample(output[:, :2], output[:, 2:], noise)
        return low + (actions + 1.0) / 2.0 * (high - low), densities

    actions, densities = drawn(data.observations, noise)
    values = learned.values(actions, data.observations).min(dim=0).values
    sac_actor_loss(values, densities, alpha, data.weights).backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(parts[0], gradient(learned.actor))
    learned.zero_grad()
    with torch.no_grad():
        actions, next_densities = drawn(data.next_observations, next_noise)
        next_values = made.target.values(actions, data.next_observations)
        targets = sac_targets(
            data.rewards, data.discounts, next_values, next_densities, alpha, data.terminals
        )
    values = learned.values(data.actions, data.observations)
    wanted, wanted_errors = critics_loss(values, targets, data.weights)
    wanted.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-5)
    torch.testing.assert_close(errors, wanted_errors)
    torch.testing.assert_close(parts[1], gradient(learned.critics))
    if temperature is not None:
        assert of_temperature is None
        return
    learned.zero_grad()
    # Of two components, the wanted entropy is -2.
    temperature_loss(learned.temperature.logarithm, densities, -2.0, data.weights).backward()
    torch.testing.assert_close(of_temperature, learned.temperature.logarithm.grad)


def test_a_component_whose_bounds_are_equal_has_no_entropy() -> None:
    """It would become as random as it can, and the other less random than is wanted."""
    fixed = spaces.Box(np.float32([-2.0, 0.5]), np.float32([2.0, 0.5]))
    torch.manual_seed(0)
    learned: Any = build_learned(PolicyConfig(), VECTORS, fixed, learning("sac"))
    made, data = algorithm_for(learned, learning("sac"), generator()), batch(3)
    data.actions[:, 1] = 0.5
    made.compute_gradient(data)
    of_temperature = learned.temperature.logarithm.grad
    # Means, then deviations.
    of_outputs = learned.actor.values.bias.grad.tolist()
    assert of_outputs[1::2] == [0.0, 0.0]
    assert 0.0 not in of_outputs[::2]
    learned.zero_grad()
    output = learned.actor(data.observations)
    noise = torch.empty(B, 2).normal_(generator=generator())
    _, densities = squashed_sample(output[:, :1], output[:, 2:3], noise[:, :1])
    temperature_loss(learned.temperature.logarithm, densities, -1.0, data.weights).backward()
    torch.testing.assert_close(of_temperature, learned.temperature.logarithm.grad)


# ---- learning alone


@pytest.mark.parametrize(("name", "enough"), [("td3", -0.1), ("ddpg", -0.15), ("sac", -0.15)])
def test_it_learns_what_to_do(name: str, enough: float) -> None:
    made = network(name)
    update = LocalUpdate(made, learning(name))
    data, rewards = with_known_best(batch(999)), []
    torch.manual_seed(0)
    for seed in range(300):
        if seed in (0, 299):
            with torch.no_grad():
                actions = made.actor(data.observations)
                if name == "sac":
                    actions = made.bounds.unscaled(actions[:, :2].tanh())
            rewards.append(float(with_known_best(replace(data, actions=actions)).rewards.mean()))
        assert update.step(with_known_best(batch(seed))).applied
    first, last = rewards
    assert last > enough > -0.4 > first


def test_the_policy_s_entropy_becomes_the_wanted_one() -> None:
    made = network("sac")
    update = LocalUpdate(made, learning("sac", target_entropy=0.5, learning_rate=1e-2))
    torch.manual_seed(0)
    for seed in range(400):
        update.step(with_known_best(batch(seed)))
    observations = torch.cat([batch(seed).observations for seed in range(500, 540)])
    with torch.no_grad():
        means, log_stds = made.actor(observations).chunk(2, dim=1)
        _, densities = squashed_sample(means, log_stds, torch.randn_like(means))
    assert -float(densities.mean()) == pytest.approx(0.5, abs=0.4)


# ---- in turn, on shared weights


@pytest.mark.parametrize(("name", "settings", "of_actor"), [
    *((name, settings, (12, 7) if name == "td3" else (0, 0))
      for name in ("td3", "ddpg", "sac") for settings in ({}, {"gradient_clip": 0.05})),
    ("td3", {"policy_delay": 1}, (0, 0)),
])
def test_learners_in_turn_learn_what_one_alone_learns(
    name: str, settings: dict[str, Any], of_actor: tuple[int, int]
) -> None:
    updates = first, *_ = in_turn(3, name, **settings)
    alone = LocalUpdate(network(name), learning(name, **settings))
    for step in range(13):
        torch.manual_seed(step)
        updates[step % 3].step(batch(step))
        torch.manual_seed(step)
        alone.step(batch(step))
    first.refresh()
    for mine, theirs in (
        (first.algorithm.network, alone.algorithm.network),
        (first.algorithm.target, alone.algorithm.target),
    ):
        for (key, a), b in zip(mine.named_parameters(), theirs.parameters(), strict=True):
            assert torch.allclose(a, b, atol=1e-5), key
    assert first.state.progress == Progress(13, 13, 13 * B, *of_actor)


@EACH
def test_only_the_actor_is_published(name: str) -> None:
    update = SharedUpdate.private(network(name), learning(name))
    for step in range(3):
        update.step(batch(step))
    update.refresh()
    learned = update.algorithm.network
    wanted = networks.flattened(learned.actor)
    found = np.empty_like(wanted)
    info = update.weights.read(found)
    assert info.updates == 3
    np.testing.assert_array_equal(found, wanted)
