"""Explorers: from what the network answers to the action of a tick.

They draw what `exploration.py` says, which every process computes alike.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rtagent.config import PolicyConfig
from rtagent.policy import exploration

Floats = npt.NDArray[np.float32]


class Explorer(Protocol):
    """Makes actions of the network's answers, exploring as its tick demands.

    Attributes:
        outputs: length of an answer.
    """

    outputs: int

    def decide(self, tick: int, rate: float) -> None:
        """Draw what the tick explores with; the answer need not be known yet.

        Args:
            tick: whose action is decided.
            rate: the exploration rate, see `exploration.epsilon`.
        """
        ...

    def action(self, answer: Floats) -> Any:
        """The action of the tick decided last: an index, or (n,) float32.

        Args:
            answer: (outputs,) of the network.
        """
        ...


class DiscreteExplorer:
    """Epsilon-greedy: the best action, or a random one.

    Args:
        seed: of the run.
        policy: how long a draw is held.
        actions: their number.
    """

    def __init__(self, seed: int, policy: PolicyConfig, actions: int) -> None:
        self.outputs = actions
        self._seed = seed
        self._hold_ticks = policy.exploration_hold_ticks
        self._explored: int | None = None

    def decide(self, tick: int, rate: float) -> None:
        """See `Explorer`."""
        self._explored = exploration.explores(
            self._seed, tick, self._hold_ticks, rate, self.outputs
        )

    def action(self, answer: Floats) -> int:
        """See `Explorer`."""
        return int(answer.argmax()) if self._explored is None else self._explored


class ContinuousExplorer:
    """The policy's action and smooth noise, within the bounds; at rate 1 a random action alone.

    Args:
        seed: of the run.
        policy: how fast the noise changes.
        space: a flat Box with bounds.
    """

    def __init__(self, seed: int, policy: PolicyConfig, space: spaces.Box) -> None:
        self._low: Floats = np.asarray(space.low, np.float32)
        self._high: Floats = np.asarray(space.high, np.float32)
        self.outputs = len(self._low)
        self._seed = seed
        self._hold_ticks = policy.exploration_hold_ticks
        self._random: Floats | None = None
        self._moved: Floats = np.zeros(self.outputs, np.float32)

    def decide(self, tick: int, rate: float) -> None:
        """See `Explorer`."""
        noise = exploration.smooth_noise(self._seed, tick, self._hold_ticks, self.outputs)
        span = self._high - self._low
        self._random = None
        if rate >= 1.0:
            shares = np.array([exploration.quantile(each) for each in noise], np.float32)
            self._random = self._within(self._low + shares * span)
        self._moved = np.float32(rate / 2.0) * np.array(noise, np.float32) * span

    def action(self, answer: Floats) -> Floats:
        """See `Explorer`."""
        if self._random is not None:
            return self._random
        return self._within(answer + self._moved)

    def _within(self, action: Floats) -> Floats:
        clipped: Floats = np.clip(action, self._low, self._high)
        return clipped


def explorer_for(space: spaces.Space[Any], seed: int, policy: PolicyConfig) -> Explorer:
    """The explorer of an action space.

    Args:
        space: Discrete, or a flat Box with bounds.
        seed: of the run.
        policy: how exploratory choices are held.
    """
    if isinstance(space, spaces.Box):
        return ContinuousExplorer(seed, policy, space)
    assert isinstance(space, spaces.Discrete)
    return DiscreteExplorer(seed, policy, int(space.n))


def greedy_action(answer: Floats, space: spaces.Space[Any]) -> Any:
    """The action that an answer means without exploration: the best one's index, or the answer."""
    return answer if isinstance(space, spaces.Box) else int(answer.argmax())
