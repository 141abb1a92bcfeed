"""Learning from demonstrations: the margin by which a demonstrated action should lead."""

from __future__ import annotations

import torch
from torch import Tensor

from rtagent.policy.heads import of_actions


def margin_loss(values: Tensor, actions: Tensor, demonstrated: Tensor, margin: float) -> Tensor:
    """The large margin classification loss of demonstrated actions (Hester et al., 2018).

    J_E = max_a [Q(s, a) + l(a_E, a)] - Q(s, a_E), with l = margin where a is not a_E, and 0 where
    it is. It is 0 once every other action's value is that much smaller.

    Args:
        values: (B, actions) of the network that learns.
        actions: (B,) int64; a_E where demonstrated.
        demonstrated: (B,) bool, or (1,) for all; J_E of the others counts as 0.
        margin: not negative.

    Returns:
        The mean over all B: its share is that of the demonstrations.
    """
    values = values.float()
    margins = torch.full_like(values, margin).scatter_(1, actions[:, None], 0.0)
    gaps = (values + margins).max(dim=1).values - of_actions(values, actions)
    return (demonstrated * gaps).mean()
