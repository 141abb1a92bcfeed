"""How many inference processes an automatic number is now: figures in, decision out.

The rule: as many as the measured inference and interaction times call for. More at once when they
have called for more during `GROW_S`; fewer after a quiet minute, with a margin. Two mistakes are
remembered, so that the number does not flap: a growth that brought less than half of what it was
worth is taken back, for the cores were taken; and a number that was too small just now is not
tried again soon.
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
"""From a change by hand, or the start, until what is measured is believed."""
FRESH_S = 5.0
"""From a change made here, or a process that was away: as far back as the measurement reaches."""
GROW_S = 6.0
"""One hold-up of the machine is forgotten by then."""
SHRINK_S = 60.0
MARGIN = 1.15
"""Inference times may vary by so much without a reason: fewer processes must do even then."""
LATE = 1.05
"""Interaction times up to so many deadlines are within the deadline: one new action in twenty may
be missing, for machines hold up a little, and re-use bridges a slow inference."""
CHANGED = 0.3
"""An inference time that differs by more is another one."""
REMEMBERED_S = 1200.0
"""So long, unless inference takes another time, nothing is tried that was wrong."""


@dataclass(frozen=True)
class Measured:
    """How acting went over the last few seconds, of the running processes.

    Attributes:
        mean_s: inference time.
        longest_s: inference time but for a few hold-ups.
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
    """What must be kept to.

    Attributes:
        deadline_s: longest interaction time, one tick or more.
        algorithm: of staggering.
        most: processes; the cores, or any number where latency is injected.
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


class _Seen(NamedTuple):
    """One moment: processes that are called for, and with the margin."""

    at: float
    mean_s: float
    needed: int
    roomy: int


class _Growth(NamedTuple):
    """A growth that is still to prove itself."""

    before: int
    measured: Measured


@dataclass
class _Ceiling:
    """More than `processes` did not help; `mean_s` is the inference time with them."""

    processes: int
    until: float
    mean_s: float | None = None


class AutoScaler:
    """Decides, about once a second; holds nothing but the memory that keeps it from flapping."""

    def __init__(self) -> None:
        self._limits: Limits | None = None
        self._expected: int | None = None
        self._stepped = -math.inf
        self._since, self._wait_s = 0.0, REACT_S
        self._at_once = True
        self._seen: deque[_Seen] = deque()
        self._growth: _Growth | None = None
        self._ceiling: _Ceiling | None = None
        self._floor, self._floor_until = 1, 0.0
        self._shrunk_at = -math.inf

    def reset(self, now: float) -> None:
        """Settings were changed by hand: what was learned before counts no more."""
        self._limits = None
        self._since, self._wait_s = now, REACT_S
        self._at_once = True
        self._seen.clear()
        self._growth = self._ceiling = None
        self._floor, self._floor_until = 1, now
        self._shrunk_at = -math.inf

    def step(
        self, now: float, current: int, measured: Measured | None, limits: Limits
    ) -> Move | None:
        """What to change now, if anything. Not asked for a while means: changed by hand.

        Args:
            now: seconds.
            current: processes in force.
            measured: None if nobody acted, or not all of the processes run yet.
            limits: to be kept to.
        """
        away, self._stepped = now - self._stepped > FRESH_S, now
        if away or limits != self._limits or current != self._expected:
            self.reset(now)
            self._limits, self._expected = limits, current
        if current > limits.most:
            why = f"at most {limits.most} may run here"
            return self._move(now, current, limits.most, why, measured)
        if measured is None:
            self._since = now
        if measured is None or measured.samples < LEAST_SAMPLES:
            self._seen.clear()
            return None
        if now - self._since < self._wait_s:
            return None
        needed, roomy = (_needed(current, measured, limits, margin) for margin in (1.0, MARGIN))
        self._seen.append(_Seen(now, measured.mean_s, needed, roomy))
        while len(self._seen) > 1 and self._seen[1].at <= now - SHRINK_S:
            self._seen.popleft()
        self._lift(now, current)
        return (
            self._undo(now, current, measured, limits)
            or self._grow(now, current, measured, limits)
            or self._shrink(now, current, measured, limits)
        )

    def _last(self, seconds: float) -> list[_Seen]:
        """What was seen in the last seconds; empty if it does not reach back that far."""
        since = self._seen[-1].at - seconds
        return [] if self._seen[0].at > since else [x for x in self._seen if x.at >= since]

    def _undo(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        """Take back a growth that only made the processes slower."""
        growth, self._growth = self._growth, None
        in_time = _late(measured, limits) <= 1.0 and self._seen[-1].needed <= current
        if growth is None or in_time:
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
        return self._move(now, current, useful, why, measured)

    def _lift(self, now: float, current: int) -> None:
        """Forget what did not help once it is long ago, or inference takes another time."""
        ceiling, last = self._ceiling, self._last(FRESH_S)
        if ceiling is None or current != ceiling.processes or not last:
            return
        known = ceiling.mean_s = ceiling.mean_s or self._seen[-1].mean_s
        changed = all(abs(seen.mean_s / known - 1.0) > CHANGED for seen in last)
        if changed or now >= ceiling.until:
            self._ceiling = None

    def _grow(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        """Follow what is called for; in both directions where nothing is known yet."""
        at_once, self._at_once = self._at_once, False
        last, newest = self._last(GROW_S), self._seen[-1]
        if at_once and newest.roomy < current:
            why = _reason(measured, limits, newest.roomy)
            return self._move(now, current, newest.roomy, why, measured)
        if not at_once and not (last and all(seen.needed > current for seen in last)):
            return None
        most = limits.most if self._ceiling is None else self._ceiling.processes
        after = min(newest.needed, most)
        if after <= current:
            return None
        if now - self._shrunk_at < 2 * SHRINK_S:
            # Having to grow so soon means that it was wrong to shrink.
            self._floor, self._floor_until = after, now + REMEMBERED_S
        move = self._move(now, current, after, _reason(measured, limits, after), measured)
        self._growth = _Growth(current, measured)
        return move

    def _shrink(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        """Give back what has not been needed for a minute."""
        last = self._last(SHRINK_S)
        if not last or any(seen.roomy >= current for seen in last):
            return None
        # Where fewer and fewer are needed, one step at the end is better than many on the way.
        enough = max(seen.roomy for seen in self._last(SHRINK_S / 2))
        if now < self._floor_until:
            enough = max(enough, self._floor)
        if enough >= current:
            return None
        self._shrunk_at = now
        why = f"{_reason(measured, limits, enough)}, for {SHRINK_S:g} s now"
        return self._move(now, current, enough, why, measured)

    def _move(
        self, now: float, before: int, after: int, why: str, measured: Measured | None
    ) -> Move:
        limits = self._limits
        assert limits is not None
        self._expected = after
        self._since, self._wait_s = now, FRESH_S
        self._at_once = False
        self._growth = None
        self._seen.clear()
        inputs = {
            "deadline_ms": _rounded_ms(limits.deadline_s),
            "algorithm": limits.algorithm,
            "most": limits.most,
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
    """How many times as often actions can come since a growth, as far as it is to blame."""
    then, more = growth.measured, current / growth.before
    slower = measured.mean_s / then.mean_s
    if slower > MARGIN * more:
        # Sharing cores makes N times as many processes N times as slow: this has another reason.
        return more
    gain = more / slower
    if then.interaction_s and measured.interaction_s:
        gain = min(gain, then.interaction_s / measured.interaction_s)
    return gain


def _needed(current: int, measured: Measured, limits: Limits, margin: float) -> int:
    """Processes that inference time and interaction time call for, within the limit."""
    needed, late = _computed(measured, limits, margin), _late(measured, limits)
    # New actions are executed once a tick at most: how much is to spare cannot be seen.
    seen = math.ceil(current * late - 1e-9) if late > 1.0 else 1
    return min(limits.most, max(needed, seen))


def _late(measured: Measured, limits: Limits) -> float:
    """The interaction time in units of what is still in time; 0 if it says nothing."""
    if measured.interaction_s is None or limits.algorithm not in LIVE:
        # Where nobody keeps a distance, processes in step act no more often than one.
        return 0.0
    return measured.interaction_s / (LATE * limits.deadline_s)


def _computed(measured: Measured, limits: Limits, margin: float) -> int:
    """Processes that the inference time calls for, within the limit."""
    mean = margin * measured.mean_s
    longest = max(mean, margin * measured.longest_s)
    # Without staggering no number is enough; the mean at least is met.
    algorithm = limits.algorithm if limits.algorithm in LIVE else "expected-time"
    return min(limits.most, processes_needed(mean, longest, limits.deadline_s, algorithm))


def _reason(measured: Measured, limits: Limits, after: int) -> str:
    noun = "process" if after == 1 else "processes"
    enough = "is enough" if after == 1 else "are enough"
    if after == limits.most < _computed(measured, replace(limits, most=1 << 30), 1.0):
        enough = "is the most" if after == 1 else "are the most"
    return (
        f"an inference takes {_ms(measured.mean_s)} (p99 {_ms(measured.longest_s)}) and actions "
        f"come {_every(measured.interaction_s)}: "
        f"for {_ms(limits.deadline_s)}, {after} {noun} {enough}"
    )


def _every(seconds: float | None) -> str:
    return "at unknown intervals" if seconds is None else f"every {_ms(seconds)}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _rounded_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)
