"""What an environment, or a wrapper around it, says of itself: actions, rate, rewards."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any

import gymnasium as gym

from rtagent.config import EnvConfig
from rtagent.env import atari
from rtagent.errors import UserError


def declared(env: gym.Env[Any, Any], name: str) -> Any:
    """An attribute of the outermost wrapper that has it, else of the environment; None if none has.

    A wrapper may have changed what the environment says of its actions, rewards or rate.
    """
    return env.get_wrapper_attr(name) if env.has_wrapper_attr(name) else None


def noop_action(env: gym.Env[Any, Any]) -> Any:
    """The action that is declared to do nothing; None if none is, or if a wrapper around what
    declares it has other actions, among which it may do something."""
    layer = env
    while isinstance(layer, gym.Wrapper) and not hasattr(layer, "noop_action"):
        layer = layer.env
    return declared(env, "noop_action") if layer.action_space == env.action_space else None


def action_meanings(env: gym.Env[Any, Any], space: gym.Space[Any]) -> tuple[str, ...]:
    """A word for each action of a discrete space; empty if unknown."""
    ask = declared(env, "get_action_meanings")
    if ask is None or not isinstance(space, gym.spaces.Discrete):
        return ()
    words = tuple(str(word) for word in ask())
    return words if len(words) == space.n else ()


def rate_hz(env: gym.Env[Any, Any], config: EnvConfig) -> float:
    """Ticks per second: the configured ones, else those that the environment declares.

    Raises:
        UserError: it declares none.
    """
    if config.rate_hz != "auto":
        return config.rate_hz
    own = declared(env, "rate_hz") or atari.rate_hz(env)
    for rate in (own, env.metadata.get("render_fps")):
        if isinstance(rate, Real) and 0 < float(rate) < inf:
            return float(rate)
    raise UserError("the environment does not say how fast it runs; set env.rate_hz")


def reward_range(env: gym.Env[Any, Any]) -> tuple[float, float] | None:
    """Least and largest reward of a tick, widened to include 0; None if it declares none."""
    own = declared(env, "reward_range")
    found: Any = env.metadata.get("reward_range") if own is None else own
    try:
        low, high = map(float, found)
    except (TypeError, ValueError):
        return None
    # Gymnasium's old default was the whole real line.
    return (min(low, 0.0), max(high, 0.0)) if -inf < low <= high < inf else None
