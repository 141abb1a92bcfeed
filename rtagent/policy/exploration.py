"""Exploration without messages: every inference process computes the same draw.

The draw is a pure function of the seed and of the tick, so staggered processes that answer
neighbouring ticks agree on when to explore and on the action, without any shared state.

Discrete actions are now and then replaced by a random one, which is held for some ticks. Continuous
ones get noise that changes smoothly: at 60 actions a second, noise that is drawn anew on every tick
averages out over the inertia of whatever is moved, shakes it, and takes it nowhere.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from statistics import NormalDist

from rtagent.config import MOST_SEED, PolicyConfig

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MANTISSA = 52
_NORMAL = NormalDist()


def epsilon(updates: int, policy: PolicyConfig) -> float:
    """The exploration rate after a number of updates: falls over `epsilon_steps`, then constant.

    Args:
        updates: gradient steps behind the weights that act.
        policy: `epsilon_start`, `epsilon_end`, `epsilon_steps`, `epsilon_schedule`.

    Returns:
        The probability that a block of ticks explores, or the scale of the noise:
        start + p (end - start) if the schedule is linear, start (end / start)^p if it is
        exponential, where p grows from 0 to 1.
    """
    progress = min(max(updates, 0) / policy.epsilon_steps, 1.0)
    start, end = policy.epsilon_start, policy.epsilon_end
    if policy.epsilon_schedule == "exponential":
        return float(start * (end / start) ** progress)
    return start + progress * (end - start)


def run_seed(seed: int, resume: Path | None) -> int:
    """The seed of a run's draws and of its world, in the bounds of `run.seed`.

    Args:
        seed: of the configuration.
        resume: the checkpoint that the run goes on from. Its ticks may begin at 0 again, and it is
            not to draw again what the run before has drawn. If None, there was none before.
    """
    return seed if resume is None else _mixed(seed, zlib.crc32(resume.name.encode())) & MOST_SEED


def explores(seed: int, tick: int, hold_ticks: int, epsilon: float, actions: int) -> int | None:
    """Whether a tick explores, and with which action.

    One draw holds for a block of `hold_ticks` ticks, so that exploration at a high tick rate still
    goes somewhere. A tick that explores at some epsilon also explores, with the same action, at
    every higher one.

    Returns:
        The random action, or None where the policy decides.
    """
    first = _mixed(seed, tick // hold_ticks)
    if (first >> (64 - _MANTISSA)) >= epsilon * (1 << _MANTISSA):
        return None
    return (_mix((first + _GOLDEN) & _MASK) * actions) >> 64


def uniform(seed: int, tick: int) -> float:
    """A number in [0, 1) for each tick, independent of those of other ticks."""
    return (_mixed(seed, tick) >> (64 - _MANTISSA)) / (1 << _MANTISSA)


def smooth_noise(seed: int, tick: int, hold_ticks: int, components: int) -> list[float]:
    """Standard normal noise that moves smoothly from draw to draw.

    Every `hold_ticks` ticks there is a new draw; between two draws they are mixed as
    cos(x) g_0 + sin(x) g_1, where x grows from 0 to pi/2. So the variance is 1 on every tick.

    Returns:
        A standard normal number for each component.
    """
    first, past = divmod(tick, hold_ticks)
    angle = math.pi / 2.0 * past / hold_ticks
    cosine, sine = math.cos(angle), math.sin(angle)
    return [
        cosine * _normal(seed, first, component)
        + (sine * _normal(seed, first + 1, component) if past else 0.0)
        for component in range(components)
    ]


def _normal(seed: int, block: int, component: int) -> float:
    """A standard normal number that depends on the seed and two counts."""
    mixed = _mix((_mixed(seed, block) + (component + 1) * _GOLDEN) & _MASK)
    # The middle of its interval, which is neither 0 nor 1: these have no finite quantile.
    return _NORMAL.inv_cdf(((mixed >> (64 - _MANTISSA)) + 0.5) / (1 << _MANTISSA))


def _mixed(seed: int, number: int) -> int:
    """64 random bits that depend on the seed and a number."""
    return _mix((_mix(seed & _MASK) + number * _GOLDEN) & _MASK)


def _mix(value: int) -> int:
    """The next output of splitmix64 (Steele, Lea and Flood, 2014) after a state."""
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
