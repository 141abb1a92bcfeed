"""Explorers: from the network's answer to the action of a tick.

Their draws are those of `exploration.py`, which every process computes alike.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from statistics import NormalDist
from typing import Any

import numpy as np
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.memory.array_buffer import Floats
from rtagent.policy import exploration
from rtagent.policy.heads import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    PLAIN,
    GaussianHead,
    OutputHead,
    PolicyHead,
)

_NORMAL = NormalDist()


class Explorer(ABC):
    """Makes actions of the network's answers, with exploration that depends on the tick.

    Args:
        outputs: length of an answer.
        seed: of the run.
        policy: says how long a draw is held.

    Attributes:
        outputs: length of an answer.
        log_probability: logarithm of the probability with which a policy that gives its actions
            probabilities drew the last action; 0 of other policies.
        excludes: whether an answer may have -inf for some actions, which then are never taken.
    """

    log_probability = 0.0
    excludes = False

    def __init__(self, outputs: int, seed: int, policy: PolicyConfig) -> None:
        self.outputs = outputs
        self._seed, self._hold_ticks = seed, policy.exploration_hold_ticks

    @abstractmethod
    def decide(self, tick: int, rate: float) -> None:
        """Draw what the tick explores with; the answer need not be known yet.

        Args:
            tick: whose action is decided.
            rate: the exploration rate, see `exploration.epsilon`.
        """

    @abstractmethod
    def action(self, answer: Floats) -> Any:
        """The action of the tick decided last: an index, or (n,) float32.

        Args:
            answer: (outputs,) the network's.
        """


class DiscreteExplorer(Explorer):
    """Epsilon-greedy: the best action, or a random one."""

    _explored: int | None = None

    def decide(self, tick: int, rate: float) -> None:
        self._explored = exploration.explores(
            self._seed, tick, self._hold_ticks, rate, self.outputs
        )

    def action(self, answer: Floats) -> int:
        return int(answer.argmax()) if self._explored is None else self._explored


class ContinuousExplorer(Explorer):
    """The policy's action and smooth noise, within the bounds; at rate 1 a random action instead.

    Args:
        space: a flat Box with bounds.
        seed: of the run.
        policy: says how fast the noise changes.
    """

    def __init__(self, space: spaces.Box, seed: int, policy: PolicyConfig) -> None:
        self._low: Floats = np.asarray(space.low, np.float32)
        self._high: Floats = np.asarray(space.high, np.float32)
        super().__init__(len(self._low), seed, policy)
        self._random: Floats | None = None
        self._moved: Floats = np.zeros(self.outputs, np.float32)

    def decide(self, tick: int, rate: float) -> None:
        noise = self._draw(tick, rate)
        self._moved = np.float32(rate / 2.0) * noise * (self._high - self._low)

    def action(self, answer: Floats) -> Floats:
        return self._within(answer + self._moved) if self._random is None else self._random

    def _draw(self, tick: int, rate: float) -> Floats:
        """The tick's noise, (n,); at rate 1 it makes a random action."""
        noise = exploration.smooth_noise(self._seed, tick, self._hold_ticks, len(self._low))
        self._random = None
        if rate >= 1.0:
            shares = np.array([_NORMAL.cdf(each) for each in noise], np.float32)
            self._random = self._within(self._low + shares * (self._high - self._low))
        return np.array(noise, np.float32)

    def _within(self, action: Floats) -> Floats:
        clipped: Floats = np.clip(action, self._low, self._high)
        return clipped


class GaussianExplorer(ContinuousExplorer):
    """Actions drawn from a random actor's distributions; at rate 0 their means.

    The draw is the smooth noise, which is standard normal on each tick: so an action has the
    policy's own distribution, and actions of neighbouring ticks differ little. At rate 1 the action
    is uniformly random; all rates between are alike, for the policy learns how much to explore.
    """

    def __init__(self, space: spaces.Box, seed: int, policy: PolicyConfig) -> None:
        super().__init__(space, seed, policy)
        self._noise: Floats = np.zeros(self.outputs, np.float32)
        self.outputs *= 2

    def decide(self, tick: int, rate: float) -> None:
        noise = self._draw(tick, rate)
        self._noise = noise if rate > 0.0 else np.zeros_like(noise)

    def action(self, answer: Floats) -> Floats:
        if self._random is not None:
            return self._random
        means, log_stds = np.split(answer, 2)
        deviations = np.exp(np.clip(log_stds, LOG_STD_MIN, LOG_STD_MAX))
        shares = (1.0 + np.tanh(means + deviations * self._noise)) / 2.0
        return self._within(self._low + shares * (self._high - self._low))


class CategoricalExplorer(Explorer):
    """Actions drawn from a policy's probabilities, anew on every tick; at rate 0 the likeliest.

    No draw is held for several ticks: a policy that learns from its own actions must know their
    probabilities, and those of a held draw would depend on what the earlier ticks have led to.
    """

    excludes = True
    _drawn: float | None = None

    def decide(self, tick: int, rate: float) -> None:
        self._drawn = exploration.uniform(self._seed, tick) if rate > 0.0 else None

    def action(self, answer: Floats) -> int:
        if self._drawn is None:
            self.log_probability = 0.0
            return int(answer.argmax())
        logits = answer.astype(np.float64) - float(answer.max())
        logarithms = logits - np.log(np.exp(logits).sum())
        reached = np.cumsum(np.exp(logarithms))
        # The sum of all may fall short of 1 by rounding.
        action = min(int(np.searchsorted(reached, self._drawn, side="right")), self.outputs - 1)
        self.log_probability = float(logarithms[action])
        return action


def explorer_for(
    space: spaces.Space[Any], seed: int, policy: PolicyConfig, head: OutputHead = PLAIN
) -> Explorer:
    """The explorer of a policy.

    Args:
        space: Discrete, or a flat Box with bounds.
        seed: of the run.
        policy: says how to explore.
        head: of the network.
    """
    if isinstance(head, GaussianHead):
        assert isinstance(space, spaces.Box)
        return GaussianExplorer(space, seed, policy)
    if isinstance(space, spaces.Box):
        return ContinuousExplorer(space, seed, policy)
    assert isinstance(space, spaces.Discrete)
    if isinstance(head, PolicyHead):
        return CategoricalExplorer(int(space.n), seed, policy)
    return DiscreteExplorer(int(space.n), seed, policy)


def greedy_action(answer: Floats, space: spaces.Space[Any]) -> Any:
    """The action that an answer means without exploration: the best one's index, or the answer."""
    return answer if isinstance(space, spaces.Box) else int(answer.argmax())
