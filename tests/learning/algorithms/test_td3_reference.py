"""TD3 against Stable-Baselines3: the same weights, the same batches, the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from torch import nn

from benchmarks.local_update import LocalUpdate
from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.td3 import TD3
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic, build_learned

STEPS, BATCH = 7, 32
LEARNING = LearningConfig(
    n_step=1, learning_rate=1e-3, gamma=0.97, gradient_clip=0.0, policy_delay=3,
    target_noise=0.3, precision="float32",
)


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their agent, its replay filled with random play, its networks and targets different."""
    agent = stable_baselines3.TD3(
        "MlpPolicy", "Pendulum-v1", learning_rate=LEARNING.learning_rate, gamma=LEARNING.gamma,
        learning_starts=1000, seed=0, device="cpu", tau=0.005, policy_delay=3,
        target_policy_noise=0.3, policy_kwargs={"net_arch": [64, 64]},
    )
    agent.learn(400)
    for module in (agent.actor_target, agent.critic_target):
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.2)
    return agent


def load(mine: nn.Module, other: nn.Module) -> None:
    values = list(other.state_dict().values())
    mine.load_state_dict(dict(zip(mine.state_dict(), values, strict=True)))


def ours_like(theirs: Any) -> tuple[LocalUpdate, TD3]:
    """Our agent with the weights of theirs."""
    space = gym.spaces.Box(-np.inf, np.inf, (1, 3), np.float32)
    actions = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
    network = build_learned(PolicyConfig(network="mlp"), space, actions, LEARNING)
    ours = LocalUpdate(network, LEARNING)
    assert isinstance(ours.algorithm, TD3)
    for mine, actor, critic in (
        (ours.algorithm.network, theirs.actor, theirs.critic),
        (ours.algorithm.target, theirs.actor_target, theirs.critic_target),
    ):
        load(mine.actor, actor)
        load(mine.critics, critic)
    return ours, ours.algorithm


def as_batch(samples: Any) -> Batch:
    return Batch(
        observations=samples.observations[:, None], actions=2.0 * samples.actions,
        rewards=samples.rewards[:, 0], discounts=torch.full((BATCH,), LEARNING.gamma),
        next_observations=samples.next_observations[:, None], terminals=samples.dones[:, 0].bool(),
        weights=torch.ones(BATCH),
    )


class StepLater:
    """Their critics' optimizer: its step is put off until the actor has its gradient.

    They take the actor's gradient after the critics' step, we take both at the same weights.

    Args:
        optimizer: the real one.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self.param_groups = optimizer.param_groups
        self._kept: list[torch.Tensor] = []

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def step(self) -> None:
        self._kept = [p.grad.clone() for p in self._parameters()]

    def finish(self) -> None:
        for parameter, slope in zip(self._parameters(), self._kept, strict=True):
            parameter.grad = slope
        self._optimizer.step()

    def _parameters(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]


def test_updates_are_those_of_stable_baselines3(
    theirs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, algorithm = ours_like(theirs)
    plain: Callable[..., None] = stable_baselines3.td3.td3.polyak_update
    later = StepLater(theirs.critic.optimizer)
    monkeypatch.setattr(theirs.critic, "optimizer", later)
    waiting: list[tuple[Any, ...]] = []
    # Their targets follow inside `train`, which is before the step that is put off.
    monkeypatch.setattr(
        stable_baselines3.td3.td3, "polyak_update", lambda *given: waiting.append(given)
    )
    for step in range(1, STEPS + 1):
        samples = theirs.replay_buffer.sample(BATCH)
        # Nothing in a pendulum's life is final.
        samples = samples._replace(dones=(torch.arange(BATCH)[:, None] % 5 == step % 5).float())
        with monkeypatch.context() as patch:
            patch.setattr(theirs.replay_buffer, "sample", lambda *_, kept=samples, **__: kept)
            torch.manual_seed(step)
            theirs.train(gradient_steps=1, batch_size=BATCH)
        later.finish()
        for given in waiting:
            plain(*given)
        waiting.clear()
        torch.manual_seed(step)
        result = ours.step(as_batch(samples))
        assert result.applied
        said = theirs.logger.name_to_value
        assert result.loss == pytest.approx(said["train/critic_loss"], rel=1e-4)
        for mine, actor, critic in (
            (algorithm.network, theirs.actor, theirs.critic),
            (algorithm.target, theirs.actor_target, theirs.critic_target),
        ):
            assert_same(mine, actor, critic)


def assert_same(mine: ActorCritic, actor: nn.Module, critic: nn.Module) -> None:
    for ours, theirs in ((mine.actor, actor), (mine.critics, critic)):
        for one, two in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)
