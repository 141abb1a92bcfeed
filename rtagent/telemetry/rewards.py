"""How a sum of rewards, such as a return, is written."""

from __future__ import annotations


def reward_text(reward: float, sign: str = "") -> str:
    """Two places; of less, two digits: a small return must not read as nothing.

    From 1e9 on it has an exponent: the return of a world that diverges must fit into a line.
    """
    size = abs(reward)
    form = ".2e" if size >= 1e9 else ".2f" if size >= 0.1 or reward == 0.0 else ".2g"
    # Adding 0 takes the sign from a zero, which a sum of such zeros has, too.
    return f"{reward + 0.0:{sign}{form}}"
