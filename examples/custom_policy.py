"""A network of your own: any callable (observation_space, action_space) -> torch.nn.Module.

The module gets a batch of stacked observations, (B, stack, height, width) in uint8 for pictures or
(B, stack, n) in float32 for vectors, and returns (B, actions) action values. rtagent builds it once
in each process and moves weights between them.
"""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import Tensor, nn


def build(observation_space: gym.spaces.Box, action_space: gym.spaces.Discrete) -> nn.Module:
    """What `policy.factory = "custom_policy:build"` names."""
    return DuelingCnn(observation_space.shape, int(action_space.n))


class DuelingCnn(nn.Module):
    """Three convolutions, then the value of the state and the advantage of each action.

    Args:
        shape: (stack, height, width).
        actions: number of actions.
    """

    def __init__(self, shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(shape[0], 16, 5, stride=3),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
        )
        with torch.no_grad():
            width = self.features(torch.zeros(1, *shape)).shape[1]
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, actions)

    def forward(self, observations: Tensor) -> Tensor:
        """Action values, (B, actions)."""
        features = self.features(observations.to(self.value.weight.dtype) / 255.0)
        advantage: Tensor = self.advantage(features)
        value: Tensor = self.value(features)
        return value + advantage - advantage.mean(dim=1, keepdim=True)
