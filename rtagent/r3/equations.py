"""Deadlines and memory: the equations of R3 (Li et al., 2023), one function each.

Pure functions of numbers. `controller.py` applies Eqs. 1 and 2 to a running horizon,
`division.py` Eqs. 3 to 6 to the memory. Where the paper is ambiguous, the docstring says which
reading the function takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

LARGEST_IN_SMALLEST = 4
"""The largest batch in units of the smallest (Eq. 1)."""


def next_batch_size(
    current: int, time_ratio: float, data_ratio: float, factor: float, b_min: int
) -> int:
    """The batch size of the next episode or update (Eq. 1).

    The batch grows if learning is behind time, and shrinks if it is ahead; `b_i` on the right of
    the printed equation is read as the size after that. A grown size is rounded up and a shrunk
    size down, so that a factor close to 1 still changes it.

    Args:
        current: size in force, transitions.
        time_ratio: a, elapsed time over the deadline.
        data_ratio: b, consumed samples over the data budget.
        factor: c > 1.
        b_min: smallest size.

    Returns:
        A size in [b_min, 4 b_min].
    """
    if time_ratio > data_ratio:
        current = math.ceil(current * factor)
    elif time_ratio < data_ratio:
        current = math.floor(current / factor)
    return clamp_batch_size(current, b_min)


def clamp_batch_size(size: int, b_min: int) -> int:
    """The nearest size in [b_min, 4 b_min] (Eq. 1)."""
    return min(max(size, b_min), LARGEST_IN_SMALLEST * b_min)


def memory_cap(batch_bytes: float, b_base: int, base_bytes: float) -> int:
    """The largest batch that fits into the memory reserved for batches (Eq. 2).

    Part of the measured memory does not grow with the batch, so above `b_base` this is cautious.

    Args:
        batch_bytes: M_batch, reserved.
        b_base: batch size of the measurement.
        base_bytes: M_base, measured with it; positive.
    """
    return int(batch_bytes * b_base / base_bytes)


def batch_memory(size: int, b_base: int, base_bytes: float) -> float:
    """Bytes that a batch needs: the inverse of Eq. 2; 0 if nothing was measured."""
    return base_bytes * size / b_base if b_base else 0.0


def replay_ticks(replay_bytes: float, frames: int, state_bytes: int, metadata_bytes: int) -> int:
    """The largest replay that fits into its reservation (Eq. 3, read as a budget).

    The largest r with (frames + r - 1) state_bytes + r metadata_bytes <= replay_bytes, but at least
    0. Consecutive frames need no links to one another: S_link is 0.

    Args:
        replay_bytes: M_replay.
        frames: N_frames, frames of one observation.
        state_bytes: S_state, of one frame.
        metadata_bytes: S_metadata, of all other data of one tick.
    """
    older = (frames - 1) * state_bytes
    return max(0, int((replay_bytes - older) // (state_bytes + metadata_bytes)))


def alpha(seconds: float, window: Sequence[float]) -> float:
    """The duration t_i of an episode over the mean of the gamma before it (Eq. 4); 1 if none."""
    total = math.fsum(window)
    return len(window) * seconds / total if total > 0.0 else 1.0


def beta(value: float, window: Sequence[float]) -> float:
    """The return of an episode compared with those before it (Eq. 4).

    If all returns are positive, this is the paper's ratio to the mean. Otherwise that ratio has no
    meaning, and the result is 1 plus the distance to the mean in units of max(|mean|, standard
    deviation). Both agree for positive returns whose mean is larger than their deviation.

    Args:
        value: R_i, return of the episode.
        window: returns of the gamma episodes before it, or of as many as there are.

    Returns:
        beta; 1 without a window. If all returns of the window are 0: 0, 1 or 2 for a return below,
        equal to or above 0.
    """
    if not window:
        return 1.0
    mean = math.fsum(window) / len(window)
    if value > 0.0 and min(window) > 0.0:
        return value / mean
    scale = max(abs(mean), float(np.std(window)))
    distance = value - mean
    return 1.0 + (distance / scale if scale > 0.0 else float(np.sign(distance)))


def reserve(batch: float, replay: float, alpha: float, beta: float) -> tuple[float, float]:
    """The wanted reservations after an episode (Eq. 5).

    As printed: nothing grows for beta >= 1, although the prose says otherwise. Batch and replay are
    M_batch and M_replay, bytes.
    """
    grown = batch * (1.0 + max(alpha - 1.0, 0.0) * (1.0 - min(beta, 1.0)))
    return grown, replay * (1.0 + min(alpha, 1.0) * max(1.0 - beta, 0.0))


def scale_reservations(
    scales: tuple[float, float], alpha: float, beta: float, window: int
) -> tuple[float, float]:
    """The factors of the configured reservations after an episode (Eq. 5).

    Eq. 5 multiplies the reservations of the episode before. No factor is below 1, and only with
    alpha above 2 is the factor of the batches the larger one: applied for ever, it would leave
    nothing to the batches. So the scales also decay towards 1, by 1 / window of their logarithm: an
    episode has an effect for about as many episodes as the window of Eq. 4 has.

    Args:
        scales: those before the episode, of batches and of replay; both positive.
        alpha: of the episode.
        beta: of the episode.
        window: gamma, episodes.
    """
    kept = 1.0 - 1.0 / window
    batch, replay = scales
    return reserve(batch**kept, replay**kept, alpha, beta)


def fit(batch: float, replay: float, total: float) -> tuple[float, float]:
    """Scale both wanted reservations so that their sum is M, the memory there is (Eq. 6)."""
    share = batch / (batch + replay)
    return total * share, total * (1.0 - share)


def episode_deadline(deadline_s: float, samples: int, data_budget: int) -> float:
    """The share of the deadline D that belongs to an episode of so many samples (Sec. III-B)."""
    return deadline_s * samples / data_budget


def good_in_a_row(before: int, returns: Sequence[float], target: float | None) -> int:
    """Consecutive episodes that reached the target R* (Sec. III-E); 0 without a target.

    `before` is the count before these returns, which are in the order of their episodes.
    """
    if target is None:
        return 0
    for value in returns:
        before = before + 1 if value >= target else 0
    return before
