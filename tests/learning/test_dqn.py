"""DQN: it learns, follows with its target, survives what is not finite, and can be resumed."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rtagent import checkpoint as checkpoints
from rtagent.config import LearningConfig
from rtagent.learning.dqn import DqnUpdate
from rtagent.learning.replay import Batch
from rtagent.learning.state import collect, restore

SIGNATURE = checkpoints.Signature("e", "n", "o", "a")
LEARNING = LearningConfig(target_period=5, learning_rate=1e-2)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.BatchNorm1d(32), nn.Linear(32, 2)
    )


def batch(seed: int = 0, reward: float = 1.0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    count = 16
    return Batch(
        observations=torch.rand(count, 1, 4, 4, generator=rng),
        actions=torch.randint(0, 2, (count,), generator=rng),
        rewards=torch.full((count,), reward),
        discounts=torch.full((count,), 0.9),
        next_observations=torch.rand(count, 1, 4, 4, generator=rng),
        terminals=torch.ones(count, dtype=torch.bool),
    )


def weights(update: DqnUpdate) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in update.network.parameters()])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns_the_value_of_a_certain_reward(precision: str) -> None:
    learning = LearningConfig.model_validate({"learning_rate": 1e-2, "precision": precision})
    update = DqnUpdate(network(), learning)
    losses = [update.step(batch(seed)).loss for seed in range(150)]
    assert np.mean(losses[-10:]) < 0.05 * np.mean(losses[:3])
    assert update.updates == 150
    assert all(p.dtype == torch.float32 for p in update.network.parameters())


def test_the_target_follows_in_its_period() -> None:
    update = DqnUpdate(network(), LEARNING)
    before = copy.deepcopy(update.target.state_dict())
    for seed in range(4):
        update.step(batch(seed))
    assert torch.equal(update.target.state_dict()["4.weight"], before["4.weight"])
    update.step(batch(4))
    mine = update.network.state_dict()["4.weight"]
    assert torch.equal(update.target.state_dict()["4.weight"], mine)
    assert not torch.equal(before["4.weight"], mine)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_not_applied(bad: float) -> None:
    update = DqnUpdate(network(), LEARNING)
    update.step(batch(0))
    before = weights(update)
    result = update.step(batch(1, reward=bad))
    assert not result.applied
    assert update.updates == 1
    assert torch.equal(weights(update), before)
    assert update.step(batch(2)).applied
    assert torch.isfinite(weights(update)).all()


def test_the_gradient_is_clipped() -> None:
    update = DqnUpdate(network(), LearningConfig(gradient_clip=1e-3))
    update.compute_gradient(batch(0, reward=100.0))
    assert update.clip() > 1e-3
    norms = [p.grad.norm() for p in update.network.parameters() if p.grad is not None]
    assert torch.stack(norms).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_a_resumed_learner_goes_on_exactly(tmp_path: Path) -> None:
    update = DqnUpdate(network(), LEARNING)
    for seed in range(7):
        update.step(batch(seed))
    saved = checkpoints.Checkpoint(
        SIGNATURE, checkpoints.Counters(updates=update.updates), collect(update)
    )
    resumed = DqnUpdate(network(1), LEARNING)
    restore(resumed, checkpoints.load(checkpoints.save(tmp_path, saved)))
    assert resumed.updates == 7
    for seed in range(7, 14):
        assert update.step(batch(seed)).loss == resumed.step(batch(seed)).loss
    assert torch.equal(weights(update), weights(resumed))


def test_a_checkpoint_without_optimizer_state_resumes(tmp_path: Path) -> None:
    update = DqnUpdate(network(), LEARNING)
    saved = checkpoints.Checkpoint(SIGNATURE, checkpoints.Counters(), collect(update))
    resumed = DqnUpdate(network(1), LEARNING)
    restore(resumed, saved)
    assert torch.equal(weights(update), weights(resumed))
    assert resumed.step(batch()).applied


def test_a_missing_tensor_is_named() -> None:
    update = DqnUpdate(network(), LEARNING)
    tensors = collect(update)
    del tensors["target.0.bias"]
    with pytest.raises(checkpoints.CheckpointError, match=r"target\.0\.bias"):
        restore(update, checkpoints.Checkpoint(SIGNATURE, checkpoints.Counters(), tensors))
