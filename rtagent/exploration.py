"""Exploration that needs no talking: every inference process computes the same draw.

The draw is a pure function of the seed and of the tick, so staggered processes that answer
neighbouring ticks agree on when to explore and on the action, without any shared state.
"""

from __future__ import annotations

from rtagent.config import PolicyConfig

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MANTISSA = 53


def epsilon(updates: int, policy: PolicyConfig) -> float:
    """The exploration rate after a number of updates: falls over `epsilon_steps`, then constant.

    Args:
        updates: gradient steps behind the weights that act.
        policy: `epsilon_start`, `epsilon_end`, `epsilon_steps`, `epsilon_schedule`.

    Returns:
        The probability that a block of ticks explores: linear, start + p (end - start), or
        exponential, start (end / start)^p, where p grows from 0 to 1.
    """
    progress = min(max(updates, 0) / policy.epsilon_steps, 1.0)
    start, end = policy.epsilon_start, policy.epsilon_end
    if policy.epsilon_schedule == "exponential":
        return float(start * (end / start) ** progress)
    return start + progress * (end - start)


def explores(seed: int, tick: int, hold_ticks: int, epsilon: float, actions: int) -> int | None:
    """Whether a tick explores, and with which action.

    One draw serves a block of `hold_ticks` ticks, so that exploration at a high tick rate still
    goes somewhere. A tick that explores at some rate also explores, with the same action, at
    every higher rate.

    Args:
        seed: of the run.
        tick: the tick whose action is decided.
        hold_ticks: ticks per block.
        epsilon: probability of exploring.
        actions: number of actions.

    Returns:
        The random action, or none where the policy decides.
    """
    first = _mix((_mix(seed & _MASK) + tick // hold_ticks * _GOLDEN) & _MASK)
    if (first >> (64 - _MANTISSA)) >= epsilon * (1 << _MANTISSA):
        return None
    return (_mix((first + _GOLDEN) & _MASK) * actions) >> 64


def _mix(value: int) -> int:
    """The output function of splitmix64 (Steele, Lea and Flood, 2014), one step on."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
