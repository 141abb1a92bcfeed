"""How often an engine chooses torch's action on recent frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rtagent.memory.frames import FrameRing
from rtagent.policy.heads import LOG_STD_MAX, LOG_STD_MIN

TOLERANCE = 0.01
"""Share of a continuous action's range by which each component may differ."""
STRIDE = 8
"""Most ticks between two of the compared frames."""

Answers = Sequence[npt.NDArray[np.float32]]


def recent_observations(frames: FrameRing, count: int) -> list[npt.NDArray[Any]]:
    """Observations out of the frame ring, evenly over the newest ticks; the newest first.

    Args:
        frames: the ring.
        count: how many are wanted.

    Returns:
        `count` observations, each (stack, ...); fewer where the ring has fewer frames, or where
        some are overwritten meanwhile.
    """
    newest, held = frames.newest, frames.newest - frames.oldest + 1
    count = min(count, held)
    # With enough frames only the newer half is used: the oldest slots are written over next.
    stride = max(1, min(STRIDE, held // (2 * max(1, count))))
    found = []
    for number in range(newest, newest - count * stride, -stride):
        observation = np.empty((frames.stack, *frames.frames.shape[1:]), frames.frames.dtype)
        if frames.observation(number, observation):
            found.append(observation)
    return found


def are_numbers(found: Answers, *, draws: bool) -> bool:
    """Whether an engine's answers are finite, so that a process can act by them.

    Logits of -inf exclude actions; the largest one is a number unless there is none, or a nan.
    """
    answers = np.array(found)
    return bool(np.isfinite(answers.max(axis=1) if draws else answers).all())


def agreement(
    expected: Answers, found: Answers, action_space: spaces.Space[Any], *, draws: bool = False
) -> float:
    """Share of answers that mean the same action, 0 to 1.

    Args:
        expected: (actions,) each, answers of torch in float32.
        found: answers of the engine to the same observations.
        action_space: Discrete: the largest value decides; else each component may differ by
            `TOLERANCE` of its range, and of a random actor the mean and the deviation may.
        draws: whether discrete actions are drawn from the probabilities that the answers mean as
            logits; then it is the expected share of draws that give the same action.
    """
    first, second = np.array(expected), np.array(found)
    if not are_numbers(found, draws=draws):
        return 0.0
    if draws:
        return float(_drawn_alike(first, second).mean())
    if isinstance(action_space, spaces.Discrete):
        return float((first.argmax(axis=1) == second.argmax(axis=1)).mean())
    assert isinstance(action_space, spaces.Box)
    low, span = action_space.low.reshape(-1), (action_space.high - action_space.low).reshape(-1)
    if first.shape[1] == 2 * len(span):
        near = np.abs(_drawn_from(first) - _drawn_from(second)) <= 2.0 * TOLERANCE
    else:
        span = np.maximum(span, np.finfo(np.float32).eps * np.maximum(np.abs(low), 1.0))
        near = np.abs(first - second) <= TOLERANCE * span
    return float(near.all(axis=1).mean())


def _drawn_alike(
    first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """For each frame, the share of draws that give the same action by both logits.

    A draw is a number in [0, 1); each action has an interval of them, see `CategoricalExplorer`.
    """
    lower, upper = zip(*map(_intervals, (first, second)), strict=True)
    shared = np.minimum(*upper) - np.maximum(*lower)
    alike: npt.NDArray[np.float64] = shared.clip(0.0).sum(axis=1)
    return alike


def _intervals(
    logits: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Where the interval of each action begins and ends."""
    weights = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    upper = np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)
    return np.concatenate([np.zeros_like(upper[:, :1]), upper[:, :-1]], axis=1), upper


def _drawn_from(answers: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Mean actions in [-1, 1], and deviations before they are squashed, of a random actor."""
    means, log_stds = np.split(answers, 2, axis=1)
    deviations = np.exp(np.clip(log_stds, LOG_STD_MIN, LOG_STD_MAX))
    return np.concatenate([np.tanh(means), deviations], axis=1)
