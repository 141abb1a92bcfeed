"""The world in which peers act at x = 5, on the wall clock, and the figures that are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

RATE_HZ = 60.0
TICK_S = 1.0 / RATE_HZ
X = 5
STACK = (4, 84, 84)
SKIPPED_S = 1.0
"""Seconds at the start of each round that are not counted."""
START_S = 0.3
"""Seconds from the choice of the start time to the first tick."""


class Executed(NamedTuple):
    """What a tick executed.

    Attributes:
        tick: its number.
        observed: tick of the frame that the action was computed from. If None, there was no action.
    """

    tick: int
    observed: int | None


def figures(executed: list[Executed], overheads_s: list[float]) -> dict[str, float]:
    """The figures that are compared.

    Args:
        executed: consecutive ticks.
        overheads_s: overheads of the answers, seconds.
    """
    acted = [each for each in executed if each.observed is not None]
    seconds = len(executed) * TICK_S
    ages = [each.tick - each.observed for each in acted if each.observed is not None]
    return {
        "inaction_percent": 100.0 * (1.0 - len(acted) / len(executed)),
        "actions_per_s": len(acted) / seconds,
        "frames_per_s": len({each.observed for each in acted}) / seconds,
        "age_ticks": statistics.fmean(ages) if ages else float("nan"),
        "overhead_ms_p50": 1e3 * float(np.percentile(overheads_s, 50)),
        "overhead_ms_p99": 1e3 * float(np.percentile(overheads_s, 99)),
    }


def tick_loop(
    start: float, seconds: float, choose: Callable[[int], int | None],
    publish: Callable[[int, np.ndarray], None],
) -> tuple[list[Executed], dict[int, float]]:
    """Run a peer's world on the wall clock.

    Args:
        start: monotonic seconds at which tick 0 is due.
        seconds: seconds that are counted, after `SKIPPED_S`.
        choose: gives the tick of the frame behind the action that a tick executes, or None for the
            default behaviour.
        publish: publishes the frame of a tick.

    Returns:
        The ticks after the first second, and when every tick happened.
    """
    executed, times = [], {}
    for tick in range(round((SKIPPED_S + seconds) * RATE_HZ)):
        time.sleep(max(0.0, start + tick * TICK_S - time.monotonic()))
        times[tick] = time.monotonic()
        executed.append(Executed(tick, choose(tick)))
        publish(tick, np.full(STACK, tick % 256, np.uint8))
    return executed[round(SKIPPED_S * RATE_HZ) :], times


def overheads(
    registered: list[tuple[int, float]], times: dict[int, float], executed: list[Executed]
) -> list[float]:
    """Seconds that the answers behind executed actions took beyond their inference.

    Args:
        registered: of each answer, the tick of its frame, and when it was there.
        times: when every tick happened.
        executed: the ticks that are counted.
    """
    behind = {each.observed for each in executed}
    return [at - times[frame] - X * TICK_S for frame, at in registered if frame in behind]
