"""Networks, batches and a task for the tests of actors with critics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.actor_critic import ActorCriticLearning
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.replay.batch import Batch
from rtagent.learning.shared_update import SharedUpdate
from rtagent.policy.actor_critic import ActorCritic, build_learned
from tests.learning.test_shared_update import beside

B = 16
ACTIONS = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)


def learning(name: str, **values: Any) -> LearningConfig:
    """Settings of an algorithm without noise in its targets."""
    settings: dict[str, Any] = {
        "algorithm": name, "precision": "float32", "learning_rate": 3e-3, "publish_every": 3,
        "target_noise": 0.0, **values,
    }
    return LearningConfig(**settings)


def network(name: str, seed: int = 0) -> ActorCritic:
    torch.manual_seed(seed)
    made = build_learned(PolicyConfig(), VECTORS, ACTIONS, learning(name))
    assert isinstance(made, ActorCritic)
    return made


def batch(seed: int = 0, *, terminal: float = 0.2) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    low, high = torch.from_numpy(ACTIONS.low), torch.from_numpy(ACTIONS.high)
    frames = torch.rand(2, B, *VECTORS.shape, generator=rng)
    return Batch(
        observations=frames[0], actions=low + torch.rand(B, 2, generator=rng) * (high - low),
        rewards=torch.randn(B, generator=rng), discounts=torch.full((B,), 0.9),
        next_observations=frames[1], terminals=torch.rand(B, generator=rng) < terminal,
        weights=torch.linspace(0.1, 1.0, B),
    )


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pair(name: str, **values: Any) -> ActorCriticLearning:
    """An algorithm whose target differs from the network that learns."""
    made = algorithm_for(network(name), learning(name, **values), generator())
    assert isinstance(made, ActorCriticLearning)
    made.target.load_state_dict(network(name, seed=1).state_dict())
    return made


def gradient(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.reshape(-1) for p in module.parameters() if p.grad is not None])


def with_known_best(data: Batch) -> Batch:
    """The batch of a task of one step, whose best action is a function of the observation."""
    best = torch.stack([4.0 * data.observations[:, 0, 0] - 2.0, data.observations[:, 0, 1]], dim=1)
    errors = (data.actions - best) / torch.tensor([2.0, 0.5])
    return replace(
        data, rewards=-errors.square().sum(dim=1), terminals=torch.ones(B, dtype=torch.bool),
        weights=torch.ones(B),
    )


def in_turn(count: int, name: str, **settings: Any) -> list[SharedUpdate]:
    """Learners that share what they learn."""
    config = learning(name, **settings)
    first = SharedUpdate.private(network(name), config)
    return [first] + [beside(first, network(name)) for _ in range(count - 1)]
