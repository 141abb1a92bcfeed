"""What an update needs to know of an algorithm.

An algorithm is two networks and a few pure functions: what the target is, and how far the network
is from it. Who applies the gradient, and brings the target network up to date, is decided
elsewhere, for several learners share both.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from rtagent.learning.replay.batch import Batch


class Algorithm(Protocol):
    """What an update needs to know of an algorithm."""

    @property
    def network(self) -> nn.Module:
        """What learns; gradients are left in its parameters."""
        ...

    @property
    def target(self) -> nn.Module:
        """Its delayed copy."""
        ...

    @property
    def acting(self) -> nn.Module:
        """The part of the network that acts, which comes first in its flat state; or all of it."""
        ...

    @property
    def delay(self) -> int:
        """Updates for one of the acting part; above 1 only if there is another part."""
        ...

    @property
    def target_tau(self) -> float | None:
        """How far the target moves at every `delay`-th update; None if its period counts."""
        ...

    def compute_gradient(self, batch: Batch, *, acting: bool = True) -> tuple[float, Tensor]:
        """Put the gradient of the batch into the network's parameters.

        Args:
            batch: transitions.
            acting: whether the acting part gets one; always, if `delay` is 1.

        Returns:
            The loss, and how far off each sample was (B,), not negative.
        """
        ...
