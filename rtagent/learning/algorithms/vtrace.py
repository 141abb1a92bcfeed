"""V-trace (Espeholt et al., IMPALA, arXiv 1802.01561): a policy's returns from another's actions.

On a wall clock no learner is quite on-policy: a decision was made with weights that are older by
the time that their publication, the inference and the delay of the action take. V-trace corrects
for that, as far as truncated importance weights can, with the probability that the acting policy
gave its action.
"""

from __future__ import annotations

import torch
from torch import Tensor


def vtrace(
    values: Tensor, next_values: Tensor, rewards: Tensor, discounts: Tensor, log_ratios: Tensor,
    continues: Tensor, trace: float,
) -> tuple[Tensor, Tensor]:
    """Targets of the values, and advantages, of decisions in the order of their execution.

    With rho_t = min(1, pi/mu), c_t = lambda rho_t and delta_t = rho_t (r_t + d_t V'_t - V_t), the
    target is v_t = V_t + delta_t + d_t c_t (v_{t+1} - V_{t+1}) (Remark 1 of the paper, with the
    lambda of its Remark 2). The advantage is rho_t (r_t + d_t w - V_t), where w is V'_t + lambda
    (v_{t+1} - V_{t+1}): as c_t is lambda rho_t, it is v_t - V_t. Where pi is mu, it is that of GAE
    (Schulman et al., arXiv 1506.02438).

    Args:
        values: (T,) V of the states.
        next_values: (T,) V' of the successors; of terminal ones they may be anything.
        rewards: (T,).
        discounts: (T,) of the successors' values; 0 where they are terminal.
        log_ratios: (T,) log(pi/mu) of the actions, mu being the policy that acted.
        continues: (T,) bool, whether the successor is the next decision's state; elsewhere the
            chain ends, and the value of the successor stands for what comes after.
        trace: lambda.

    Returns:
        Targets and advantages, (T,) each, float32.
    """
    rho = log_ratios.exp().clamp(max=1.0)
    ahead = torch.where(discounts > 0.0, discounts * next_values, torch.zeros_like(rewards))
    deltas = rho * (rewards + ahead - values)
    passed_on = torch.where(continues, trace * discounts, torch.zeros_like(discounts))
    gains = torch.zeros(len(values) + 1)
    for at in range(len(values) - 1, -1, -1):
        gains[at] = deltas[at] + passed_on[at] * rho[at] * gains[at + 1]
    return values + gains[:-1], gains[:-1]
