"""The networks of DDPG in AP-DRL's Table III, which no setting can describe."""

from __future__ import annotations

from torch import nn

from rtagent.config import Config
from rtagent.learning.beginning import build_network
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.actor_critic import ActorCritic
from rtagent.policy.architectures import Mlp

HIDDEN = 400, 300


def ddpg(config: Config, blueprint: Blueprint) -> ActorCritic:
    """Actor and critic of DDPG over numbers, with two hidden layers of `HIDDEN` units.

    The action joins the observation before the first layer of the critic; the paper does not say
    where.
    """
    made = build_network(config, blueprint)
    assert isinstance(made, ActorCritic)
    assert isinstance(made.actor, Mlp)
    narrow = [*made.actor.modules(), *made.critics.heads.modules()]
    inputs = [each.in_features for each in narrow if isinstance(each, nn.Linear)]
    components = len(made.bounds.low)
    made.actor.layers = _hidden(inputs[0])
    assert isinstance(made.actor.values, nn.Sequential)
    made.actor.values[0] = nn.Linear(HIDDEN[-1], components)
    made.critics.heads[0] = nn.Sequential(
        *_hidden(inputs[0] + components), nn.Linear(HIDDEN[-1], 1)
    )
    return made


def _hidden(inputs: int) -> nn.Sequential:
    first, second = HIDDEN
    return nn.Sequential(nn.Linear(inputs, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU())
