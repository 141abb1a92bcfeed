"""How many learners it takes: pure functions of times."""

from __future__ import annotations

from math import ceil

TOLERANCE = 1e-9
"""Rounding must not ask for one learner more."""


def learners_needed(gradient_s: float, apply_s: float, tick_s: float) -> int | None:
    """Round-robin learners that make one update on every tick.

    N learners make min(N / (tau_L + tau_apply), 1 / tau_apply) updates per second, for gradients
    are computed side by side and applied one after the other (Realtime RL, appendix A, with the
    time to apply counted); N = ceil((tau_L + tau_apply) / tau_M).

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
