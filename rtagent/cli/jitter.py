"""How late this machine wakes up: a loop like the environment's, with nothing to do.

Runs in a process of its own, because realtime priority and locked memory stay with a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TypedDict

import numpy as np

from rtagent.clock import NANO, MonotonicClock
from rtagent.config import GAME_BOY_HZ
from rtagent.env.wall_clock import TickSchedule
from rtagent.errors import LIMITS, UserError
from rtagent.processes.launch import module_command
from rtagent.processes.scheduling import die_with_parent, enter_realtime
from rtagent.processes.wake_ahead import WakeAhead

PROGRESS_EVERY_S = 0.5
"""Seconds between two reports of progress; more of them would themselves keep a core busy."""


class Jitter(TypedDict):
    """What was measured; times are in microseconds.

    Attributes:
        realtime: whether realtime priority was granted.
        ticks: number of ticks.
        p50, p99, max: lateness of the ticks, after sleeping and spinning.
        sleep_p50, sleep_p99: lateness of the sleeps before them.
        ahead: how long before a tick the process woke up at the end of the measurement.
        share: share of a core that was spent awake ahead of ticks.
    """

    realtime: bool
    ticks: int
    p50: float
    p99: float
    max: float
    sleep_p50: float
    sleep_p99: float
    ahead: float
    share: float


class WakeUps(WakeAhead):
    """Remembers how late every sleep ended."""

    def __init__(self, period_s: float) -> None:
        super().__init__(period_s)
        self.late_s: list[float] = []

    def note(self, late_s: float, ready_s: float, awake_s: float) -> None:
        """Remember a wake-up."""
        super().note(late_s, ready_s, awake_s)
        self.late_s.append(late_s)


def measure_jitter(seconds: float, progress: Callable[[float], object] = float) -> Jitter:
    """Measure in a fresh process, with the priority that the environment process would get.

    Args:
        seconds: how long.
        progress: called now and then with the seconds that have passed.

    Raises:
        UserError: the process failed.
    """
    command, variables = module_command(__name__)
    clock = MonotonicClock()
    began = clock.now()
    with subprocess.Popen(
        [*command, str(seconds), str(os.getpid())], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=variables,
    ) as process:
        while True:
            try:
                out, errors = process.communicate(timeout=PROGRESS_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                progress(clock.now() - began)
            except BaseException:
                process.kill()
                raise
    if process.returncode != 0:
        reason = (errors.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"no process could measure the jitter: {reason}; {LIMITS}")
    measured: Jitter = json.loads(out)
    return measured


def _measure_here(seconds: float) -> Jitter:
    realtime = enter_realtime("auto")
    ahead = WakeUps(1.0 / GAME_BOY_HZ)
    clock = MonotonicClock(ahead)
    ticks = max(1, int(seconds * GAME_BOY_HZ))
    schedule = TickSchedule(GAME_BOY_HZ, round(clock.now() * NANO), 0, 0)
    late_us = np.zeros(ticks)
    for tick in range(ticks):
        due = schedule.due_ns(tick + 1)
        clock.sleep_until(due / NANO)
        late_us[tick] = (clock.now() * NANO - due) / 1e3
    p50, p99 = np.percentile(late_us, (50, 99))
    sleep_p50, sleep_p99 = np.percentile(1e6 * np.array(ahead.late_s or [0.0]), (50, 99))
    return Jitter(
        realtime=realtime, ticks=ticks, p50=float(p50), p99=float(p99), max=float(late_us.max()),
        sleep_p50=float(sleep_p50), sleep_p99=float(sleep_p99), ahead=1e6 * ahead.seconds,
        share=ahead.awake_s * GAME_BOY_HZ / ticks,
    )


if __name__ == "__main__":
    die_with_parent(int(sys.argv[2]))
    print(json.dumps(_measure_here(float(sys.argv[1]))))
