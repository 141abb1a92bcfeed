"""How a share is rounded where it is shown."""

from __future__ import annotations


def rounded_share(share: float) -> float:
    """Kept apart from 0 and 1 in percent of two places: few lost ticks must not read as none."""
    return min(max(share, 1e-4), 0.9999) if 0.0 < share < 1.0 else share
