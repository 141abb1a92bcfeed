"""What learners train: the acting network, and beside an actor its critics or its value.

An actor chooses the action, one critic or two estimate its value. Only the actor is published. It
comes first in the flat order of the weights, so that what acts is the beginning of the learners'
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
    """Q_i(s, a), the value of an action, by several critics.

    Each has two hidden layers of its own over the features of the observation and the action, which
    is scaled to [-1, 1]. All share one encoder of the observation, which is most of the work where
    observations are images. The layers after it compute in float32 whatever the encoder does: the
    actor follows the gradient of Q, which loses its precision sooner than Q itself.

    Args:
        encoder: from (B, *observation), and pending actions if there are any, to (B, features).
        features: number of features.
        hidden: units of each hidden layer.
        bounds: of the actions.
        count: number of critics.
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
        """(B, *observation), and pending actions if any, to (B, features) float32."""
        return self.encoder(*inputs).float()  # type: ignore[no-any-return]

    def values(self, features: Tensor, actions: Tensor, count: int | None = None) -> Tensor:
        """The values of actions by the first critics.

        Args:
            features: (B, features) of the observations.
            actions: (B, n) in the environment's units.
            count: number of critics; all if not given.

        Returns:
            (count, B) float32.
        """
        with torch.autocast(features.device.type, enabled=False):
            inputs = torch.cat([features, self._bounds.scaled(actions.float())], dim=1)
            return torch.stack([head(inputs)[:, 0] for head in self.heads[:count]])


class Flatten(nn.Module):
    """An encoder without weights: observations are flattened and scaled."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self._scale = scale

    def forward(self, observations: Tensor, pending: Tensor | None = None) -> Tensor:
        """(B, *observation), and pending actions if any, to (B, values) float32."""
        return beside(observations.flatten(1).float() * self._scale, pending)


class Temperature(nn.Module):
    """The weight of a random policy's entropy; its logarithm (1,) is learned, and begins at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.logarithm = nn.Parameter(torch.zeros(1))


class ActorCritic(nn.Module):
    """An actor and its critics; the actor's state comes first.

    Attributes:
        actor: from observations to actions, or their distributions; it has its own encoder.
        critics: from observations and actions to values.
        bounds: of the actions.
        temperature: of a random actor. If None, the actor is not random.
    """

    def __init__(
        self, actor: nn.Module, critics: Critics, bounds: Bounds, temperature: Temperature | None
    ) -> None:
        super().__init__()
        self.actor, self.critics, self.bounds = actor, critics, bounds
        self.temperature = temperature

    def values(self, actions: Tensor, *inputs: Tensor) -> Tensor:
        """The values of actions by each critic, (critics, B), given the critics' inputs."""
        return self.critics.values(self.critics.features(*inputs), actions)


class ActorValue(nn.Module):
    """A policy over discrete actions, and the value of the state; the policy comes first.

    Attributes:
        actor: from observations to logits, (B, actions).
        value: from observations to values, (B, 1); it shares nothing with the actor.
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
        policy: of the acting network. The critics have an encoder of the same kind; beside a
            factory, of the kind that `policy.network` names.
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
            "a recurrent network is learned by dqn, double-dqn and c51, and not by "
            f"{head.algorithm}, which learns these actions here; use another network"
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
    """The acting part of what learners train."""
    return learned.actor if isinstance(learned, (ActorCritic, ActorValue)) else learned


def _critics(
    policy: PolicyConfig, observation_space: spaces.Space[Any], bounds: Bounds, count: int
) -> Critics:
    named = policy.model_copy(update={"factory": None})
    name = networks.resolved_name(named, observation_space)
    shape, scale = observation_shape(observation_space), observation_scale(observation_space)
    # Both see each image through the same convolutions.
    images = name in ("lstm", "transformer") and len(shape) >= 3
    kind: networks.Name = "nature" if images else name
    pending = pending_width(observation_space)
    if kind == "resnet" or kind == "nature":
        with networks.refusing_small(name, shape):
            encoder = networks.build_convolutional(
                kind, shape, 0, policy.width, scale, FEATURES, pending
            )
        return Critics(encoder, HIDDEN, MIXING_HIDDEN, bounds, count)
    features = prod(shape) + pending
    return Critics(Flatten(scale), features, 64 * policy.width, bounds, count)
