"""DQN against Stable-Baselines3: the same weights, the same batches, the same numbers."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from torch import nn
from torch.nn import functional

from benchmarks.local_update import LocalUpdate
from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.dqn import dqn_targets
from rtagent.learning.replay.batch import Batch
from rtagent.policy import networks

STEPS, BATCH = 8, 32
LEARNING = LearningConfig(
    n_step=1, learning_rate=1e-3, gamma=0.97, gradient_clip=0.5, target_period=3,
    precision="float32",
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their agent, its replay filled with random play, its two networks different."""
    agent = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", learning_rate=LEARNING.learning_rate, gamma=LEARNING.gamma,
        max_grad_norm=LEARNING.gradient_clip, learning_starts=1000, seed=0, device="cpu",
        policy_kwargs={"net_arch": [64, 64]},
    )
    agent.learn(400)
    for parameter in agent.policy.q_net_target.parameters():
        nn.init.normal_(parameter, std=0.3)
    return agent


def ours_like(theirs: Any) -> LocalUpdate:
    """Our agent with the weights of theirs."""
    space = gym.spaces.Box(-np.inf, np.inf, (1, 4), np.float32)
    network = networks.build(PolicyConfig(network="mlp"), space, gym.spaces.Discrete(2))
    ours = LocalUpdate(network, LEARNING)
    for mine, other in (
        (ours.network, theirs.policy.q_net), (ours.algorithm.target, theirs.policy.q_net_target)
    ):
        values = list(other.state_dict().values())
        mine.load_state_dict(dict(zip(mine.state_dict(), values, strict=True)))
    return ours


def as_batch(samples: Any) -> Batch:
    return Batch(
        observations=samples.observations[:, None], actions=samples.actions[:, 0],
        rewards=samples.rewards[:, 0], discounts=torch.full((BATCH,), LEARNING.gamma),
        next_observations=samples.next_observations[:, None], terminals=samples.dones[:, 0].bool(),
        weights=torch.ones(BATCH),
    )


def test_updates_are_those_of_stable_baselines3(
    theirs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ours_like(theirs)
    seen: list[list[torch.Tensor]] = []
    plain_loss = functional.smooth_l1_loss

    def recorded(values: torch.Tensor, targets: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.append([values.detach().flatten(), targets.detach().flatten()])
        return plain_loss(values, targets, **options)

    terminals = 0
    for step in range(1, STEPS + 1):
        samples = theirs.replay_buffer.sample(BATCH)
        batch = as_batch(samples)
        terminals += int(batch.terminals.sum())
        with monkeypatch.context() as patch:
            patch.setattr(theirs.replay_buffer, "sample", lambda *_, kept=samples, **__: kept)
            patch.setattr(functional, "smooth_l1_loss", recorded)
            theirs.train(gradient_steps=1, batch_size=BATCH)
        with torch.no_grad():
            ahead = ours.algorithm.target(batch.next_observations)
        targets = dqn_targets(batch.rewards, batch.discounts, ahead, batch.terminals)
        result = ours.step(batch)
        values, their_targets = seen.pop()
        torch.testing.assert_close(targets, their_targets)
        torch.testing.assert_close(result.errors, (their_targets - values).abs())
        assert result.loss == pytest.approx(theirs.logger.name_to_value["train/loss"], rel=1e-5)
        assert result.gradient_norm > LEARNING.gradient_clip
        assert_same(ours.network, theirs.policy.q_net)
        if step % LEARNING.target_period == 0:
            theirs.policy.q_net_target.load_state_dict(theirs.policy.q_net.state_dict())
        assert_same(ours.algorithm.target, theirs.policy.q_net_target)
    assert terminals > 0


def assert_same(mine: nn.Module, other: nn.Module) -> None:
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
