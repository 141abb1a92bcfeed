"""How a sum of rewards, such as a return, is written."""

from __future__ import annotations


def reward_text(reward: float, sign: str = "") -> str:
    """Two places; of less, two digits: a small return must not read as nothing."""
    form = ".2f" if reward == 0.0 or abs(reward) >= 0.1 else ".2g"
    # Adding 0 takes the sign from a zero, which a sum of such zeros has, too.
    return f"{reward + 0.0:{sign}{form}}"
