"""Inspects what an environment returns, without changing it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rtagent.env.adapter import MOST_REWARD
from rtagent.testing.findings import Findings

NOT_FINITE = "values that are not finite"
NO_NUMBER = "which is not a number"


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Passes everything on, and keeps what the environment returned last.

    Attributes:
        seen: (observation,) after a reset; (observation, reward, terminated, truncated) after a
            step.
    """

    seen: tuple[Any, ...] = ()

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        answer = self.env.reset(**options)
        self.seen = tuple(answer[:1]) if isinstance(answer, tuple | list) else ()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One tick."""
        answer = self.env.step(action)
        self.seen = tuple(answer[:4]) if isinstance(answer, tuple | list) else ()
        return answer


def inspect(world: Watched, found: Findings) -> None:
    """Note what is wrong with what the environment returned last."""
    observation, *rest = world.seen
    space = world.observation_space
    if not space.contains(observation):
        problem = _problem(space, observation)
        if problem is None:
            found.outside_bounds += 1
        else:
            found.spaces[problem] += 1
    if not rest:
        return
    reward, *flags = rest
    problem = _reward_problem(reward)
    if problem is not None:
        found.rewards[problem] += 1
    for name, flag in zip(("terminated", "truncated"), flags, strict=True):
        if not isinstance(flag, bool | np.bool_):
            found.flags[f"{name} is {_kind(flag)}"] += 1


def digest(value: Any) -> bytes:
    """A hash that is equal for equal values, types and shapes; NaN equals NaN."""
    state = hashlib.blake2b(digest_size=16)
    _feed(state, value)
    return state.digest()


def _feed(state: Any, value: Any) -> None:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            state.update(str(key).encode())
            _feed(state, value[key])
    elif isinstance(value, tuple | list):
        for each in value:
            _feed(state, each)
    else:
        array = np.asarray(value)
        state.update(f"{array.dtype}{array.shape}".encode())
        state.update(repr(value).encode() if array.dtype == object else array.tobytes())


def _problem(space: gym.Space[Any], observation: Any) -> str | None:
    """What is wrong with an observation outside its space; None if only the size of values is."""
    parts = _parts(space, observation)
    if parts:
        found = (_problem(each, part) for each, part in parts if not each.contains(part))
        return next(filter(None, found), None)
    if not isinstance(space, gym.spaces.Box):
        return f"{_kind(observation)} not in the {type(space).__name__} space"
    if not isinstance(observation, np.ndarray):
        return f"{_kind(observation)} where an array is promised"
    if observation.shape != space.shape or not np.can_cast(observation.dtype, space.dtype):
        return (
            f"{observation.dtype} {observation.shape}, "
            f"where {space.dtype} {space.shape} is promised"
        )
    return None if np.isfinite(observation).all() else NOT_FINITE


def _parts(space: gym.Space[Any], observation: Any) -> list[tuple[gym.Space[Any], Any]]:
    """The parts of a composed observation and their spaces; [] if it has others, or none."""
    if isinstance(space, gym.spaces.Dict) and isinstance(observation, dict):
        same = observation.keys() == space.spaces.keys()
        return [(each, observation[key]) for key, each in space.spaces.items()] if same else []
    if isinstance(space, gym.spaces.Tuple) and isinstance(observation, tuple):
        same = len(observation) == len(space.spaces)
        return list(zip(space.spaces, observation, strict=True)) if same else []
    return []


def _reward_problem(reward: Any) -> str | None:
    try:
        value = float(np.asarray(reward).item())
    except (TypeError, ValueError):
        return f"{_kind(reward)}, {NO_NUMBER}"
    return None if abs(value) <= MOST_REWARD else f"{value}"


def _kind(value: Any) -> str:
    return type(value).__name__
