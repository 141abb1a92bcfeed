"""Chooses the number of inference processes where it is automatic: figures in, decision out.

The rule: as many as the measured inference and interaction times call for. The number grows once
they have called for more during `GROW_S`; it shrinks after `SHRINK_S` in which fewer were enough,
with a margin. Two mistakes are remembered, so that the number does not flap: a growth that brought
less than half of its worth is undone, since other programs use the cores; and a number that was too
small is not tried again soon.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rtagent.staggering.figures import processes_needed
from rtagent.staggering.register import LIVE, PROMISING

LEAST_SAMPLES = 3
REACT_S = 2.0
"""Time from the start, or from a change by hand, until measurements count."""
FRESH_S = 5.0
"""Time from a change made here, or from the return of a process, until measurements count: they
reach so far back."""
GROW_S = 6.0
"""Time for which more processes must be needed before there are more: a single hold-up of the
machine affects measurements for less."""
LONG_INFERENCES = 5
"""`FRESH_S` and `GROW_S` in inferences, where these take longer: measurements reach back over four,
and new processes have to end their first."""
SHRINK_S = 60.0
MARGIN = 1.15
"""Inference times vary by so much without a cause: fewer processes must be enough even then."""
LATE = 1.05
"""Interaction times up to so many deadlines are within the deadline: one new action in twenty may
be missing, since machines are held up a little, and re-use bridges a slow inference."""
CHANGED = 0.3
"""Relative difference from which an inference time counts as another one."""
REMEMBERED_S = 1200.0
"""How long a mistake is not repeated, unless inference takes another time."""
NO_MORE = "this machine's cores or run.max_processes allow no more"


@dataclass(frozen=True)
class Measured:
    """How acting went over the last few seconds, of the running processes.

    Attributes:
        mean_s: inference time.
        longest_s: inference time that only a few inferences exceed.
        samples: inferences behind these figures.
        interaction_s: mean time between two new actions being executed, if known.
        inaction: share of default ticks, if known.
    """

    mean_s: float
    longest_s: float
    samples: int
    interaction_s: float | None
    inaction: float | None


@dataclass(frozen=True)
class Limits:
    """What the number of processes depends on, beside measurements.

    Attributes:
        deadline_s: longest interaction time, one tick or more.
        algorithm: of staggering.
        most: processes that may run; not limited by the cores where latency is injected.
    """

    deadline_s: float
    algorithm: str
    most: int


@dataclass(frozen=True)
class Move:
    """A change of the number of processes: why in one sentence, with the figures in `inputs`."""

    before: int
    after: int
    why: str
    inputs: dict[str, Any]


class _Look(NamedTuple):
    """Inference time, and the processes that it called for, without and with the margin."""

    at: float
    mean_s: float
    needed: int
    with_margin: int


class _Growth(NamedTuple):
    """A growth that has yet to prove itself: the number before it, and what was measured then."""

    before: int
    measured: Measured


@dataclass
class _Ceiling:
    """More than `processes` did not help; `mean_s` is the inference time with them."""

    processes: int
    until: float
    mean_s: float | None = None


class AutoScaler:
    """Decides about once a second.

    A new one is made when limits or number are changed by hand: what was learned no longer counts.

    Attributes:
        processes: in force, once the last move is made.
    """

    def __init__(self, now: float, processes: int, limits: Limits) -> None:
        self.processes = processes
        self._limits = limits
        self._since = now
        self._at_once = True
        self._looks: deque[_Look] = deque()
        self._growth: _Growth | None = None
        self._ceiling: _Ceiling | None = None
        self._floor, self._floor_until = 1, now
        self._shrunk_at = -math.inf

    def step(self, now: float, measured: Measured | None) -> Move | None:
        """What to change now, if anything.

        Args:
            now: seconds.
            measured: None if no process acted, or not all of them run yet.
        """
        if self.processes > self._limits.most:
            most = self._limits.most
            return self._move(now, most, f"{NO_MORE} than {most}", measured)
        if measured is None:
            self._since = now
        if measured is None or measured.samples < LEAST_SAMPLES:
            self._looks.clear()
            return None
        if now - self._since < self._settling_s(measured):
            return None
        if now - self._since < LONG_INFERENCES * measured.mean_s:
            # Few actions are known, and perhaps none of some processes.
            measured = replace(measured, interaction_s=None)
        needed, with_margin = (
            _needed(self.processes, measured, self._limits, margin) for margin in (1.0, MARGIN)
        )
        self._looks.append(_Look(now, measured.mean_s, needed, with_margin))
        while len(self._looks) > 1 and self._looks[1].at <= now - SHRINK_S:
            self._looks.popleft()
        self._lift(now)
        return self._undo(now, measured) or self._grow(now, measured) or self._shrink(now, measured)

    def _settling_s(self, measured: Measured) -> float:
        """Seconds from a change until measurements count."""
        if self._at_once:
            return REACT_S
        return max(FRESH_S, LONG_INFERENCES * measured.mean_s)

    def _last(self, seconds: float) -> list[_Look]:
        """The looks of the last seconds; none if they do not reach back that far."""
        since = self._looks[-1].at - seconds
        return [] if self._looks[0].at > since else [x for x in self._looks if x.at >= since]

    def _undo(self, now: float, measured: Measured) -> Move | None:
        """Take back a growth that only made the processes slower."""
        growth, self._growth = self._growth, None
        current, needed = self.processes, min(self._looks[-1].needed, self._limits.most)
        if growth is None or (_late(measured, self._limits) <= 1.0 and needed <= current):
            return None
        before, gain = growth.before, _gain(growth, measured, current)
        useful = max(before, math.ceil(before * gain - 0.25))
        # Chance makes figures differ a little; what is undone brought less than half its worth.
        if useful >= current or gain - 1.0 >= 0.5 * (current / before - 1.0):
            return None
        self._ceiling = _Ceiling(useful, now + REMEMBERED_S)
        then = growth.measured
        why = (
            f"with {current} processes an inference takes {_ms(measured.mean_s)} and actions come "
            f"{_every(measured.interaction_s)}, with {before} it took {_ms(then.mean_s)} "
            f"and they came {_every(then.interaction_s)}: more than {useful} do not help here"
        )
        return self._move(now, useful, why, measured)

    def _lift(self, now: float) -> None:
        """Forget the ceiling after `REMEMBERED_S`, or when inference takes another time."""
        ceiling, last = self._ceiling, self._last(FRESH_S)
        if ceiling is None or self.processes != ceiling.processes or not last:
            return
        known = ceiling.mean_s = ceiling.mean_s or self._looks[-1].mean_s
        changed = all(abs(look.mean_s / known - 1.0) > CHANGED for look in last)
        if changed or now >= ceiling.until:
            self._ceiling = None

    def _grow(self, now: float, measured: Measured) -> Move | None:
        """Grow if more are called for; the first time shrink, too, and without a wait."""
        at_once, self._at_once = self._at_once, False
        grow_s = max(GROW_S, min(SHRINK_S, LONG_INFERENCES * measured.mean_s))
        current, last, newest = self.processes, self._last(grow_s), self._looks[-1]
        if at_once and newest.with_margin < current:
            why = _reason(measured, self._limits, newest.with_margin)
            return self._move(now, newest.with_margin, why, measured)
        if not at_once and not (last and all(look.needed > current for look in last)):
            return None
        most, verdict = self._limits.most, f"not enough, but {NO_MORE}"
        if self._ceiling is not None:
            most = self._ceiling.processes
            verdict = f"not enough, but more than {most} have not helped here"
        after = min(newest.needed, most)
        if after <= current:
            return None
        if now - self._shrunk_at < 2 * SHRINK_S:
            # Having to grow so soon means that it was wrong to shrink.
            self._floor, self._floor_until = after, now + REMEMBERED_S
        why = _reason(measured, self._limits, after, verdict if after < newest.needed else None)
        move = self._move(now, after, why, measured)
        self._growth = _Growth(current, measured)
        return move

    def _shrink(self, now: float, measured: Measured) -> Move | None:
        """Give up processes that were not needed for `SHRINK_S`."""
        last = self._last(SHRINK_S)
        if not last or any(look.with_margin >= self.processes for look in last):
            return None
        # Where the need falls slowly, one step at the end is better than many on the way.
        enough = max(look.with_margin for look in self._last(SHRINK_S / 2))
        if now < self._floor_until:
            enough = max(enough, self._floor)
        if enough >= self.processes:
            return None
        self._shrunk_at = now
        why = (
            f"{_reason(measured, self._limits, enough)}, and for {SHRINK_S:g} s fewer than "
            f"{self.processes} were"
        )
        return self._move(now, enough, why, measured)

    def _move(self, now: float, after: int, why: str, measured: Measured | None) -> Move:
        before, self.processes = self.processes, after
        self._since = now
        self._at_once = False
        self._growth = None
        self._looks.clear()
        inputs = {
            "deadline_ms": _rounded_ms(self._limits.deadline_s),
            "algorithm": self._limits.algorithm,
            "most": self._limits.most,
        }
        if measured is not None:
            inputs |= {
                "inference_ms": _rounded_ms(measured.mean_s),
                "longest_ms": _rounded_ms(measured.longest_s),
                "samples": measured.samples,
                "interaction_ms": _rounded_ms(measured.interaction_s),
                "inaction": None if measured.inaction is None else round(measured.inaction, 4),
            }
        return Move(before, after, why, inputs)


def first_guess(limits: Limits) -> int:
    """Processes to start with, unmeasured: `adaptive` seldom needs less than two."""
    return min(limits.most, 2 if limits.algorithm in PROMISING else 1)


def _gain(growth: _Growth, measured: Measured, current: int) -> float:
    """How many times as often actions can come since a growth, as far as that is its effect."""
    then, more = growth.measured, current / growth.before
    slower = measured.mean_s / then.mean_s
    if slower > MARGIN * more:
        # Sharing cores makes N times as many processes at most N times as slow.
        return more
    gain = more / slower
    if then.interaction_s and measured.interaction_s:
        gain = min(gain, then.interaction_s / measured.interaction_s)
    return gain


def _needed(current: int, measured: Measured, limits: Limits, margin: float) -> int:
    """Processes that inference time and interaction time call for, even if fewer may run."""
    mean = margin * measured.mean_s
    longest = max(mean, margin * measured.longest_s)
    # Without staggering no number is enough: as many as the mean time calls for.
    algorithm = limits.algorithm if limits.algorithm in LIVE else "expected-time"
    needed = processes_needed(mean, longest, limits.deadline_s, algorithm)
    # New actions are executed once a tick at most, so that a surplus cannot be seen here.
    late = _late(measured, limits)
    return max(needed, math.ceil(current * late - 1e-9) if late > 1.0 else 1)


def _late(measured: Measured, limits: Limits) -> float:
    """The interaction time in units of the longest one in time; 0 if it says nothing."""
    if measured.interaction_s is None or limits.algorithm not in LIVE:
        # Processes that are not staggered act in step, and no more often than one.
        return 0.0
    return measured.interaction_s / (LATE * limits.deadline_s)


def _reason(measured: Measured, limits: Limits, after: int, verdict: str | None = None) -> str:
    """Why to have `after` processes: the measured times, and a verdict on that number.

    Args:
        verdict: If None, the number is what the measurements call for.
    """
    processes = "process is" if after == 1 else "processes are"
    if verdict is None:
        verdict = "enough" if limits.algorithm in LIVE else "what the inference time calls for"
    return (
        f"an inference takes {_ms(measured.mean_s)} (p99 {_ms(measured.longest_s)}) and actions "
        f"come {_every(measured.interaction_s)}: "
        f"for one every {_ms(limits.deadline_s)}, {after} {processes} {verdict}"
    )


def _every(seconds: float | None) -> str:
    return "at unknown intervals" if seconds is None else f"every {_ms(seconds)}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _rounded_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)
