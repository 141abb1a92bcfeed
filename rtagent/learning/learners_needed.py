"""How many learners a run needs."""

from __future__ import annotations

from math import ceil

TOLERANCE = 1e-9
"""Subtracted before rounding up, so that a rounding error does not add a learner."""


def learners_needed(gradient_s: float, apply_s: float, tick_s: float) -> int | None:
    """The number of round-robin learners that make one update on every tick.

    N learners make min(N / (tau_L + tau_apply), 1 / tau_apply) updates per second, for gradients
    are computed in parallel and applied one after the other (Riemer et al., Realtime Reinforcement
    Learning, appendix A, with the time to apply added); so N = ceil((tau_L + tau_apply) / tau_M).

    Args:
        gradient_s: tau_L, seconds for one gradient.
        apply_s: tau_apply, seconds to apply it.
        tick_s: tau_M, seconds of one tick.

    Returns:
        At least 1; None if no number of learners is enough, because applying alone takes longer
        than a tick.
    """
    if apply_s > tick_s:
        return None
    return max(1, ceil((gradient_s + apply_s) / tick_s - TOLERANCE))
