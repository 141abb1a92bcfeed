"""What learners train: the acting network, and beside an actor its critics or its value.

An actor says what to do, one critic or two say what that is worth. Only the actor is published. It
comes first in the flat order of the whole, so that what acts is the beginning of the learners'
array.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.errors import UserError
from rtagent.policy import networks
from rtagent.policy.architectures import HIDDEN, beside
from rtagent.policy.heads import FEATURES, ActionHead, Bounds, GaussianHead, PolicyHead
from rtagent.policy.inputs import observation_scale, observation_shape, pending_width
from rtagent.policy.recurrent import state_size_of

MIXING_HIDDEN = 256
"""Units of a critic's hidden layers behind the features of an image."""


class Critics(nn.Module):
    """Q_i(s, a): what an action is worth, said by several critics.

    Each has two hidden layers of its own over the features of the observation and the action, which
    enters scaled to [-1, 1]. The encoder of the observation is common to them: it is most of the
    work where observations are images. The layers behind it compute in float32 whatever the encoder
    does: the actor climbs the slope of Q, and that is lost sooner than Q itself.

    Args:
        encoder: from (B, *observation), and what is pending if anything is, to (B, features).
        features: their number.
        hidden: units of each hidden layer.
        bounds: of the actions.
        count: of critics.
    """

    def __init__(
        self, encoder: nn.Module, features: int, hidden: int, bounds: Bounds, count: int
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(features + len(bounds.low), hidden), nn.ReLU(),
                nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1),
            )
            for _ in range(count)
        )
        self._bounds = bounds

    def features(self, *inputs: Tensor) -> Tensor:
        """(B, *observation), and what is pending if anything is, to (B, features) float32."""
        return self.encoder(*inputs).float()  # type: ignore[no-any-return]

    def values(self, features: Tensor, actions: Tensor, count: int | None = None) -> Tensor:
        """What the first critics say.

        Args:
            features: (B, features) of the observations.
            actions: (B, n) in the environment's units.
            count: of critics; all if not given.

        Returns:
            (count, B) float32.
        """
        with torch.autocast(features.device.type, enabled=False):
            inputs = torch.cat([features, self._bounds.scaled(actions.float())], dim=1)
            return torch.stack([head(inputs)[:, 0] for head in self.heads[:count]])


class Flatten(nn.Module):
    """Observations as they are, side by side, times a scale."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale = scale

    def forward(self, observations: Tensor, pending: Tensor | None = None) -> Tensor:
        """(B, *observation), and what is pending if anything is, to (B, values) float32."""
        return beside(observations.flatten(1).float() * self._scale, pending)


class Temperature(nn.Module):
    """What entropy is worth to a random policy; its logarithm (1,) is learned, and begins at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(1))


class ActorCritic(nn.Module):
    """An actor and its critics; the actor's state comes first.

    Attributes:
        actor: from observations to what its head says; its encoder is its own.
        critics: from observations and actions to values.
        bounds: of the actions.
        temperature: of an actor that is random.
    """

    def __init__(
        self, actor: nn.Module, critics: Critics, bounds: Bounds,
        temperature: Temperature | None = None,
    ) -> None:
        super().__init__()
        self.actor, self.critics, self.bounds = actor, critics, bounds
        self.temperature = temperature

    def values(self, observations: Tensor, actions: Tensor, *pending: Tensor) -> Tensor:
        """What each critic says: (critics, B)."""
        return self.critics.values(self.critics.features(observations, *pending), actions)


class ActorValue(nn.Module):
    """A policy over discrete actions, and the value that it is compared with; the policy first.

    Attributes:
        actor: from observations to logits, (B, actions).
        value: from observations to values, (B, 1); nothing of it is shared with the actor.
    """

    def __init__(self, actor: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.actor, self.value = actor, value


def build_learned(
    policy: PolicyConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
    learning: LearningConfig,
) -> nn.Module:
    """Build what learners train, in float32.

    Args:
        policy: of the acting network. The critics have the same encoder; beside a factory, the one
            that `policy.network` names.
        observation_space: Box of a stacked observation, or as `inputs.py` says.
        action_space: Discrete, or a flat Box with bounds.
        learning: algorithm and head.

    Returns:
        For values of discrete actions the acting network itself, for a policy over them an
        `ActorValue`, otherwise an `ActorCritic`.

    Raises:
        UserError: as `networks.build` and `networks.head_of`.
    """
    head = networks.head_of(learning, action_space)
    acting = networks.build(policy, observation_space, action_space, head)
    if state_size_of(acting) and isinstance(head, PolicyHead | ActionHead):
        raise UserError(
            "a recurrent network is learned by dqn, double-dqn and c51, and learning.algorithm = "
            f"{learning.algorithm!r} means {head.algorithm} for these actions; use another network"
        )
    if isinstance(head, PolicyHead):
        named = policy.model_copy(update={"factory": None})
        value = networks.build(named, observation_space, spaces.Discrete(1))
        if state_size_of(value):
            raise UserError(
                f"policy.network = {policy.network!r} beside policy.factory is the network of the "
                f"value that {head.algorithm} learns, which cannot be recurrent; use 'auto'"
            )
        return ActorValue(acting, value)
    if not isinstance(head, ActionHead):
        return acting
    bounds = Bounds(head.low, head.high)
    critics = _critics(policy, observation_space, bounds, head.critics)
    temperature = Temperature() if isinstance(head, GaussianHead) else None
    return ActorCritic(acting, critics, bounds, temperature)


def acting_part(learned: nn.Module) -> nn.Module:
    """The part that acts of what learners train."""
    return learned.actor if isinstance(learned, (ActorCritic, ActorValue)) else learned


def _critics(
    policy: PolicyConfig, observation_space: spaces.Space[Any], bounds: Bounds, count: int
) -> Critics:
    named = policy.model_copy(update={"factory": None})
    name = networks.resolved_name(named, observation_space)
    if name == "transformer" and len(observation_shape(observation_space)) >= 3:
        name = "nature"
    shape, scale = observation_shape(observation_space), observation_scale(observation_space)
    pending = pending_width(observation_space)
    if name == "resnet" or name == "nature":
        encoder = networks.build_convolutional(
            name, shape, 0, policy.width, scale, FEATURES, pending
        )
        return Critics(encoder, HIDDEN, MIXING_HIDDEN, bounds, count)
    features = prod(shape) + pending
    return Critics(Flatten(scale), features, 64 * policy.width, bounds, count)
