"""TD3 (Fujimoto et al., 2018): gradients of an actor and its two critics.

Three things keep the critics from believing their own errors: the smaller of two target values
counts, target actions are smoothed by noise, and the actor follows only every few updates of the
critics. The targets follow with it.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning import losses
from rtagent.learning.precision import uses_bfloat16
from rtagent.learning.replay.batch import Batch
from rtagent.policy.actor_critic import ActorCritic
from rtagent.policy.networks import channels_last

TARGET_TAU = 0.005


class TD3:
    """Gradients of TD3, for `SharedUpdate` or `LocalUpdate` to apply.

    Actor and critics get theirs at the same weights, so that one array is one update; the paper's
    code takes the actor's after the critics' step.

    Args:
        network: float32.
        learning: noise, delay, precision.
        generator: of the noise of the target actions; torch's own if none.

    Attributes:
        network: what learns; gradients are left in its parameters.
        target: its delayed copy.
        acting: the actor.
        delay: updates of the critics for one of the actor.
        target_tau: how far the target moves each time.
    """

    def __init__(
        self,
        network: ActorCritic,
        learning: LearningConfig,
        generator: torch.Generator | None = None,
    ) -> None:
        channels_last(network)
        self.network = network
        self.target = copy.deepcopy(network).requires_grad_(False)
        self.acting = network.actor
        self.delay = learning.policy_delay
        self.target_tau = learning.target_tau or TARGET_TAU
        self._learning = learning
        self._generator = generator
        self._bfloat16 = uses_bfloat16(network, learning)

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Args:
            batch: transitions.
            acting: whether the actor gets one, too; otherwise it has none.

        Returns:
            The critics' loss, and their absolute errors (B,).
        """
        self.network.zero_grad(set_to_none=True)
        # All passes with gradient come first, see `ValueLearning.compute_gradient`.
        with torch.autocast("cpu", torch.bfloat16, enabled=self._bfloat16):
            features = self.network.critics.features(batch.observations)
            values = self.network.critics.values(features, batch.actions)
            if acting:
                self._follow_critic(batch, features.detach())
            targets = self._targets(batch)
        loss, errors = losses.critics_loss(values, targets, batch.weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach()), errors

    def _follow_critic(self, batch: Batch, features: Tensor) -> None:
        """Put the policy gradient into the actor, and nothing into the critic it climbs."""
        actor, critics = self.network.actor, self.network.critics
        values = critics.values(features, actor(batch.observations), 1)[0]
        learned = [each for each in actor.parameters() if each.requires_grad]
        if not learned:
            return
        loss = losses.actor_loss(values, batch.weights)
        slopes = torch.autograd.grad(loss, learned, allow_unused=True)
        for parameter, slope in zip(learned, slopes, strict=True):
            parameter.grad = slope

    def _targets(self, batch: Batch) -> Tensor:
        bounds, learning = self.network.bounds, self._learning
        with torch.no_grad():
            actions = self.target.actor(batch.next_observations).float()
            noise = torch.empty_like(actions)
            noise.normal_(0.0, learning.target_noise, generator=self._generator)
            actions = losses.smoothed_actions(
                actions, noise, learning.target_noise_clip, bounds.low, bounds.high
            )
            next_values = self.target.values(batch.next_observations, actions)
        return losses.td3_targets(batch.rewards, batch.discounts, next_values, batch.terminals)
