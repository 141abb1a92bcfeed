"""Figures of merit, from what was executed and what was registered.

Those of a simulation are counted from its ticks and actions. `interaction` and `processes_needed`
serve live runs, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from rtagent.staggering.arbiter import Source

CONVERGED_SECONDS = 1.0
BEYOND_P99 = 4.0 / 3.0
"""Distance of the 99.9th percentile of a normal distribution from its mean, as a multiple of that
of the 99th percentile."""


class TickRecord(NamedTuple):
    """One executed tick.

    Attributes:
        tick: its number.
        source: agent, re-used or default.
        delay: ticks between the frame the action was computed from and this one; 0 for default.
        frame: the frame the action was computed from; -1 for default.
        at: seconds; when it was executed.
        position: of the action in its chunk.
    """

    tick: int
    source: Source
    delay: int
    frame: int
    at: float
    position: int = 0


class ActionRecord(NamedTuple):
    """One action that was registered.

    Attributes:
        registered_at: seconds.
        executed: whether any tick used it.
    """

    registered_at: float
    executed: bool


class Interaction(NamedTuple):
    """The interaction time tau_I, see `interaction`; None where there are too few actions.

    Attributes:
        mean: in the unit of the times.
        cv: coefficient of variation; 0 is perfectly even.
    """

    mean: float | None
    cv: float | None


class Figures(TypedDict):
    """Figures of merit of a run; None where there is nothing to count.

    `inaction_fraction` is the share of ticks that executed the default behaviour; the strict one
    counts re-used actions, too. Delays are in ticks, over the ticks that executed an action (agent
    or re-used); `interaction_mean`, in ticks, and `gap_cv` are those of `interaction`;
    `overwritten_fraction` is the share of registered actions that no tick used;
    `from_chunk_fraction` is the share of ticks that executed a later action of a chunk.
    """

    inaction_fraction: float | None
    strict_inaction_fraction: float | None
    interaction_mean: float | None
    gap_cv: float | None
    delay_mean: float | None
    delay_p99: float | None
    overwritten_fraction: float | None
    from_chunk_fraction: float | None
    converged_s: float | None


def interaction(times: npt.ArrayLike) -> Interaction:
    """Time between two new actions of the agent reaching the environment, whatever the algorithm.

    A re-used action is not new, and an action that is replaced before its tick never gets there: of
    five actions that processes in step register at once, one is executed.

    Args:
        times: of the ticks that executed a new action (`Source.AGENT`), in order; any unit.
    """
    gaps = np.diff(np.asarray(times))
    if not len(gaps):
        return Interaction(None, None)
    mean = float(gaps.mean())
    return Interaction(mean, float(gaps.std()) / mean if len(gaps) > 1 and mean > 0.0 else None)


def converged_s(ticks: Sequence[TickRecord], tick_seconds: float) -> float | None:
    """Seconds from the first record to the first whole second without inaction; None if never."""
    needed = max(1, round(CONVERGED_SECONDS / tick_seconds))
    acting = 0
    for count, tick in enumerate(ticks, start=1):
        acting = 0 if tick.source == Source.DEFAULT else acting + 1
        if acting == needed:
            return (count - needed) * tick_seconds
    return None


def figures(
    ticks: Sequence[TickRecord], actions: Sequence[ActionRecord], tick_seconds: float,
    whole_run: Sequence[TickRecord],
) -> Figures:
    """All figures over one stretch of a run.

    Args:
        ticks: executed in the stretch, in order.
        actions: registered in the stretch.
        tick_seconds: tau_M.
        whole_run: ticks from the start, for `converged_s`.
    """
    delayed = [tick.delay for tick in ticks if tick.source != Source.DEFAULT]
    between = interaction([tick.at / tick_seconds for tick in ticks if tick.source == Source.AGENT])
    return Figures(
        inaction_fraction=_share([tick.source == Source.DEFAULT for tick in ticks]),
        strict_inaction_fraction=_share([tick.source != Source.AGENT for tick in ticks]),
        interaction_mean=between.mean,
        gap_cv=between.cv,
        delay_mean=float(np.mean(delayed)) if delayed else None,
        delay_p99=float(np.percentile(delayed, 99)) if delayed else None,
        overwritten_fraction=_share([not action.executed for action in actions]),
        from_chunk_fraction=_share([tick.position > 0 for tick in ticks]),
        converged_s=converged_s(whole_run, tick_seconds),
    )


def _share(facts: Sequence[bool]) -> float | None:
    """How many of all are true; None if there are none."""
    return sum(facts) / len(facts) if facts else None


def processes_needed(mean: float, maximum: float, tick: float, algorithm: str = "adaptive") -> int:
    """Inference processes with which nearly every tick has an action.

    For the slotted modes by Remark 2 of Riemer et al., "Realtime Reinforcement Learning: Towards
    Rapid Asynchronous Deployment of Large Models"; the mean that `expected-time` counts with is
    enough only where times hardly vary. `adaptive` needs as many as the mean says, and for varying
    inference times one in ten more, at least one; none more where even the 99.9th percentile takes
    no more ticks than the mean: the slack is then above the variation. Where a few times are many
    times as long as the others, some ticks are lost with so many; `rtagent simulate` says how many.

    Args:
        mean: inference time in seconds.
        maximum: longest inference time in seconds; for `adaptive` the 99th percentile, from which
            the 99.9th is estimated.
        tick: tau_M in seconds.
        algorithm: one of `register.LIVE`.
    """
    if not 0.0 < mean <= maximum or not tick > 0.0:
        raise ValueError("needs 0 < mean <= maximum and tick > 0")
    if algorithm == "maximum-time":
        return _ceil(maximum / tick)
    least = _ceil(mean / tick)
    if algorithm == "expected-time":
        return least
    if algorithm == "adaptive":
        varies = _ceil((mean + BEYOND_P99 * (maximum - mean)) / tick) > least
        return least + (max(1, _ceil(least / 10)) if varies else 0)
    raise ValueError(f"algorithm: {algorithm!r} is not a live one")


def _ceil(ratio: float) -> int:
    """The ceiling, at least 1, of a ratio whose last digits may be too large."""
    return max(1, math.ceil(ratio - 1e-9))
