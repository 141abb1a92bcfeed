"""Against Stable-Baselines3, with the same weights and the same batches: the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from stable_baselines3.common.logger import Logger
from torch import nn
from torch.nn import functional

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.dqn import dqn_targets
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import build_learned
from tests.learning.local_update import LocalUpdate

STEPS, BATCH = 8, 32
COMMON: dict[str, Any] = {
    "n_step": 1, "learning_rate": 1e-3, "gamma": 0.97, "precision": "float32"
}
DQN = LearningConfig(gradient_clip=0.5, target_period=3, **COMMON)
TD3 = LearningConfig(gradient_clip=0.0, policy_delay=3, target_noise=0.3, **COMMON)
DDPG = LearningConfig(gradient_clip=0.0, algorithm="ddpg", **COMMON)
SAC = LearningConfig(gradient_clip=0.0, algorithm="sac", target_tau=0.02, **COMMON)
TORQUE = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)


def trained(agent: Any, targets: list[nn.Module], spread: float) -> Any:
    """Their agent, its replay filled with random play, its targets different from its networks."""
    agent.set_logger(Logger(None, []))  # by default it leaves a folder in /tmp
    agent.learn(400)
    for module in targets:
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=spread)
    return agent


def ours_for(values: int, actions: gym.Space[Any], learning: LearningConfig) -> LocalUpdate:
    space = gym.spaces.Box(-np.inf, np.inf, (1, values), np.float32)
    network = build_learned(PolicyConfig(network="mlp"), space, actions, learning)
    return LocalUpdate(network, learning)


def load(mine: nn.Module, other: nn.Module) -> None:
    values = list(other.state_dict().values())
    mine.load_state_dict(dict(zip(mine.state_dict(), values, strict=True)))


def assert_same(mine: nn.Module, other: nn.Module) -> None:
    for one, two in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


def as_batch(samples: Any, actions: torch.Tensor) -> Batch:
    return Batch(
        observations=samples.observations[:, None], actions=actions,
        rewards=samples.rewards[:, 0], discounts=torch.full((BATCH,), COMMON["gamma"]),
        next_observations=samples.next_observations[:, None], terminals=samples.dones[:, 0].bool(),
        weights=torch.ones(BATCH),
    )


def test_updates_of_dqn(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", learning_rate=DQN.learning_rate, gamma=DQN.gamma,
        max_grad_norm=DQN.gradient_clip, learning_starts=1000, seed=0, device="cpu",
        policy_kwargs={"net_arch": [64, 64]},
    )
    trained(theirs, [theirs.policy.q_net_target], 0.3)
    ours = ours_for(4, gym.spaces.Discrete(2), DQN)
    load(ours.network, theirs.policy.q_net)
    load(ours.algorithm.target, theirs.policy.q_net_target)
    seen: list[list[torch.Tensor]] = []
    plain_loss = functional.smooth_l1_loss

    def recorded(values: torch.Tensor, targets: torch.Tensor, **options: Any) -> torch.Tensor:
        seen.append([values.detach().flatten(), targets.detach().flatten()])
        return plain_loss(values, targets, **options)

    terminals = 0
    for step in range(1, STEPS + 1):
        samples = theirs.replay_buffer.sample(BATCH)
        batch = as_batch(samples, samples.actions[:, 0])
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
        assert result.gradient_norm > DQN.gradient_clip
        assert_same(ours.network, theirs.policy.q_net)
        if step % DQN.target_period == 0:
            theirs.policy.q_net_target.load_state_dict(theirs.policy.q_net.state_dict())
        assert_same(ours.algorithm.target, theirs.policy.q_net_target)
    assert terminals > 0


class StepLater:
    """Their critics' optimizer: its step is put off until the actor has its gradient.

    They take the actor's gradient after the critics' step, we take both at the same weights.

    Args:
        optimizer: the real one.
        scale: of the gradient.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, scale: float) -> None:
        self._optimizer, self._scale = optimizer, scale
        self.param_groups = optimizer.param_groups
        self._kept: list[torch.Tensor] = []

    def zero_grad(self) -> None:
        self._optimizer.zero_grad()

    def step(self) -> None:
        self._kept = [p.grad.clone() for p in self._parameters()]

    def finish(self) -> None:
        for parameter, gradient in zip(self._parameters(), self._kept, strict=True):
            parameter.grad = self._scale * gradient
        self._optimizer.step()

    def _parameters(self) -> list[Any]:
        return [p for group in self.param_groups for p in group["params"]]


def step_both(
    theirs: Any, module: Any, ours: LocalUpdate, monkeypatch: pytest.MonkeyPatch,
    scale: float = 1.0,
) -> Iterator[tuple[float, dict[str, float]]]:
    """Update both sides with the same batches and the same noise.

    Args:
        theirs: an agent on Pendulum with a critic.
        module: where its `train` finds `polyak_update`.
        ours: with the same weights.
        monkeypatch: puts off what their critics and targets do.
        scale: of our loss of the critics, relative to theirs.

    Yields:
        After each step our loss, and what their logger was told.
    """
    plain: Callable[..., None] = module.polyak_update
    later = StepLater(theirs.critic.optimizer, scale)
    monkeypatch.setattr(theirs.critic, "optimizer", later)
    waiting: list[tuple[Any, ...]] = []
    # Their targets follow inside `train`, which is before the step that is put off.
    monkeypatch.setattr(module, "polyak_update", lambda *given: waiting.append(given))
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
        result = ours.step(as_batch(samples, 2.0 * samples.actions))
        assert result.applied
        yield result.loss, theirs.logger.name_to_value


@pytest.mark.parametrize("kind", ["td3", "ddpg"])
def test_updates_of_a_deterministic_actor(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = TD3 if kind == "td3" else DDPG
    settings: dict[str, Any] = {
        "learning_rate": learning.learning_rate, "gamma": learning.gamma, "tau": 0.005,
        "learning_starts": 1000, "seed": 0, "device": "cpu",
        "policy_kwargs": {"net_arch": [64, 64]},
    }
    if kind == "td3":
        settings |= {"policy_delay": 3, "target_policy_noise": 0.3}
    theirs = getattr(stable_baselines3, kind.upper())("MlpPolicy", "Pendulum-v1", **settings)
    trained(theirs, [theirs.actor_target, theirs.critic_target], 0.2)
    ours = ours_for(3, TORQUE, learning)
    network, target = ours.algorithm.network, ours.algorithm.target
    pairs = (
        (network.actor, theirs.actor), (network.critics, theirs.critic),
        (target.actor, theirs.actor_target), (target.critics, theirs.critic_target),
    )
    for mine, other in pairs:
        load(mine, other)
    for loss, said in step_both(theirs, stable_baselines3.td3.td3, ours, monkeypatch):
        assert loss == pytest.approx(said["train/critic_loss"], rel=1e-4)
        for mine, other in pairs:
            assert_same(mine, other)


def random_actor(theirs: Any) -> nn.Sequential:
    """Their squashed Gaussian actor with its two last layers side by side, as ours has them."""
    last = nn.Linear(theirs.mu.in_features, 2)
    with torch.no_grad():
        last.weight.copy_(torch.cat([theirs.mu.weight, theirs.log_std.weight]))
        last.bias.copy_(torch.cat([theirs.mu.bias, theirs.log_std.bias]))
    return nn.Sequential(theirs.latent_pi, last)


def test_updates_of_sac(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = stable_baselines3.SAC(
        "MlpPolicy", "Pendulum-v1", learning_rate=SAC.learning_rate, gamma=SAC.gamma,
        learning_starts=1000, seed=0, device="cpu", tau=SAC.target_tau, ent_coef="auto_1.0",
        policy_kwargs={"net_arch": [64, 64]},
    )
    trained(theirs, [theirs.critic_target], 0.2)
    ours = ours_for(3, TORQUE, SAC)
    network, target = ours.algorithm.network, ours.algorithm.target
    pairs = ((network.critics, theirs.critic), (target.critics, theirs.critic_target))
    for mine, other in pairs:
        load(mine, other)
    load(network.actor, random_actor(theirs.actor))
    # Theirs keeps clear of the logarithm of 0 by this much, where ours needs no such thing.
    monkeypatch.setattr(theirs.actor.action_dist, "epsilon", 1e-9)
    # Theirs has the factor 1/2 of the paper's Eq. 5, which to Adam is all the same, but for its
    # epsilon.
    for loss, said in step_both(theirs, stable_baselines3.sac.sac, ours, monkeypatch, 2.0):
        assert loss == pytest.approx(2.0 * said["train/critic_loss"], rel=1e-4)
        for mine, other in pairs:
            assert_same(mine, other)
        assert_same(network.actor, random_actor(theirs.actor))
        torch.testing.assert_close(network.temperature.logarithm, theirs.log_ent_coef)
    assert float(network.temperature.logarithm.detach()) != 0.0
