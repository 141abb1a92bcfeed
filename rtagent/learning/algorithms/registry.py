"""The algorithm that trains a network."""

from __future__ import annotations

import torch
from torch import nn

from rtagent.config import LearningConfig
from rtagent.learning.algorithms.a2c import A2C
from rtagent.learning.algorithms.algorithm import Algorithm
from rtagent.learning.algorithms.ddpg import DDPG
from rtagent.learning.algorithms.ppo import PPO
from rtagent.learning.algorithms.recurrent import RecurrentValueLearning
from rtagent.learning.algorithms.sac import SAC
from rtagent.learning.algorithms.td3 import TD3
from rtagent.learning.algorithms.value_learning import ValueLearning
from rtagent.policy.actor_critic import ActorCritic, ActorValue
from rtagent.policy.recurrent import state_size_of

ACTOR_CRITICS: dict[str, type[TD3 | DDPG | SAC]] = {
    "auto": TD3, "td3": TD3, "ddpg": DDPG, "sac": SAC,
}
POLICY_GRADIENTS: dict[str, type[PPO | A2C]] = {"ppo": PPO, "a2c": A2C}


def algorithm_for(
    network: nn.Module, learning: LearningConfig, generator: torch.Generator | None = None
) -> Algorithm:
    """The algorithm that trains a network.

    Args:
        network: float32, as `actor_critic.build_learned` builds it.
        learning: settings of the run.
        generator: source of the algorithm's noise. If None, torch's default generator.
    """
    if isinstance(network, ActorValue):
        return POLICY_GRADIENTS[learning.algorithm](network, learning)
    if isinstance(network, ActorCritic):
        return ACTOR_CRITICS[learning.algorithm](network, learning, generator)
    if state_size_of(network):
        return RecurrentValueLearning(network, learning)
    return ValueLearning(network, learning)
