"""How many inference processes an automatic number is now: figures in, decision out.

Growing is quick where actions come too late and the inference time says why; where only one of
the two is seen, it takes longer. Shrinking is slow, and leaves a margin. Two mistakes are
remembered, so that the number does not flap: processes that only made each other slower, because
the cores were taken, are sent away again; and a number that was too small just now is not tried
again soon.
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
FAR = 1.5
FAR_S = 2.0
"""So long must both signs call for more where so many times as many are needed ..."""
NEAR_S = 6.0
"""... and so long where it is less: one hold-up of the machine is forgotten by then."""
DOUBT_S = 15.0
"""So long must one sign alone, the inference time or the interaction time, call for more."""
SHRINK_S = 60.0
FALLING_S = 15.0
"""While fewer and fewer are needed, one step at the end is better than many on the way."""
MARGIN = 1.15
"""Fewer processes must do even if inference took so many times as long."""
LATE = 1.05
"""Interaction times up to so many deadlines are within the deadline: one new action in twenty may
be missing, for machines hold up a little, and re-use bridges a slow inference."""
SLOWER = 1.2
"""More processes that share cores make inference so many times as slow, or more."""
STEADY = 0.15
STEADY_S = 2.0
CHANGED = 0.3
REMEMBERED_S = 1200.0
REGRET_S = 120.0
"""Having to grow so soon after shrinking means that it was wrong."""


@dataclass(frozen=True)
class Measured:
    """How acting went over the last few seconds, of the running processes.

    Attributes:
        mean_s: inference time.
        longest_s: inference time but for a few hold-ups.
        samples: inferences behind these figures.
        interaction_s: mean time between two new actions being executed; None: unknown.
        inaction: share of default ticks; None: unknown.
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
    """A change of the number of processes.

    Attributes:
        before: processes.
        after: processes.
        why: one sentence with the figures.
        inputs: the figures.
    """

    before: int
    after: int
    why: str
    inputs: dict[str, Any]


class _Seen(NamedTuple):
    """One moment: processes that the inference time, and all signs together, call for."""

    at: float
    mean_s: float
    late: bool
    computed: int
    wanted: int
    roomy: int


class _Growth(NamedTuple):
    """A growth that is still to prove itself."""

    before: int
    after: int
    mean_s: float
    interaction_s: float | None
    computed: int


@dataclass
class _Ceiling:
    """More than `processes` did not help."""

    processes: int
    until: float
    mean_s: float | None = None


class AutoScaler:
    """Decides, about once a second; holds nothing but the memory that keeps it from flapping."""

    def __init__(self) -> None:
        self._limits: Limits | None = None
        self._expected: int | None = None
        self._held_s = REMEMBERED_S
        self._stepped = -math.inf
        self._since, self._wait_s = 0.0, REACT_S
        self._at_once = True
        self._seen: deque[_Seen] = deque()
        self._growth: _Growth | None = None
        self._ceiling: _Ceiling | None = None
        self._floor, self._floor_until = 1, 0.0
        self._shrunk: tuple[float, int] | None = None

    def reset(self, now: float) -> None:
        """Settings were changed by hand: what was learned before counts no more.

        Args:
            now: seconds.
        """
        self._limits = None
        self._forget(now)

    def step(
        self, now: float, current: int, measured: Measured | None, limits: Limits
    ) -> Move | None:
        """What to change now; None: nothing. Not asked for a while means: changed by hand.

        Args:
            now: seconds.
            current: processes in force.
            measured: None if nobody acted, or not all of the processes run yet.
            limits: to be kept to.
        """
        away = now - self._stepped > FRESH_S
        self._stepped = now
        if away or limits != self._limits or current != self._expected:
            self._forget(now)
            self._limits, self._expected = limits, current
        if current > limits.most:
            why = f"at most {limits.most} may run here"
            return self._move(now, current, limits.most, why, measured)
        if measured is None:
            self._seen.clear()
            self._since = now
            return None
        if measured.samples < LEAST_SAMPLES:
            self._seen.clear()
            return None
        if now - self._since < self._wait_s:
            return None
        seen = _look(now, current, measured, limits)
        self._seen.append(seen)
        while len(self._seen) > 1 and self._seen[1].at <= now - SHRINK_S:
            self._seen.popleft()
        self._lift(now, current)
        return (
            self._undo(now, current, measured, limits)
            or self._grow(now, current, measured, limits)
            or self._shrink(now, current, measured, limits)
        )

    def _forget(self, now: float) -> None:
        self._since, self._wait_s = now, REACT_S
        self._at_once = True
        self._seen.clear()
        self._growth = self._ceiling = self._shrunk = None
        self._floor, self._floor_until = 1, now

    def _last(self, seconds: float) -> list[_Seen]:
        """What was seen in the last seconds; empty if it does not reach back that far."""
        now = self._seen[-1].at
        if self._seen[0].at > now - seconds:
            return []
        return [seen for seen in self._seen if seen.at >= now - seconds]

    def _steady(self) -> bool:
        """Whether the inference time has stood still."""
        mean = self._seen[-1].mean_s
        last = self._last(STEADY_S)
        return bool(last) and all(abs(seen.mean_s / mean - 1.0) <= STEADY for seen in last)

    def _undo(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        """Send away processes that only made each other slower."""
        growth = self._growth
        if growth is None or not self._steady():
            return None
        self._growth = None
        newest = self._seen[-1]
        if not (newest.late or newest.computed > current):
            return None
        gain = _gain(growth, measured, newest.late)
        useful = max(growth.before, math.ceil(growth.before * gain - 0.25))
        # Chance makes figures differ a little; what is undone brought less than half its worth.
        if useful >= current or gain - 1.0 >= 0.5 * (growth.after / growth.before - 1.0):
            return None
        self._ceiling = _Ceiling(useful, now + self._held_s)
        self._held_s *= 2.0
        why = (
            f"with {current} processes an inference takes {_ms(measured.mean_s)} and actions come "
            f"{_every(measured.interaction_s)}, with {growth.before} it took {_ms(growth.mean_s)} "
            f"and they came {_every(growth.interaction_s)}: more than {useful} do not help here"
        )
        return self._move(now, current, useful, why, measured)

    def _lift(self, now: float, current: int) -> None:
        """Forget what did not help once it is long ago, or inference takes another time."""
        ceiling = self._ceiling
        if ceiling is None or current != ceiling.processes:
            return
        if ceiling.mean_s is None:
            ceiling.mean_s = self._seen[-1].mean_s if self._steady() else None
            return
        known = ceiling.mean_s
        last = self._last(FRESH_S)
        changed = last and all(abs(seen.mean_s / known - 1.0) > CHANGED for seen in last)
        if changed or now >= ceiling.until:
            self._ceiling = None

    def _grow(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        at_once, self._at_once = self._at_once, False
        newest = self._seen[-1]
        slow = self._last(DOUBT_S)
        if at_once or self._both_signs(FAR_S, FAR * current) or self._both_signs(NEAR_S, current):
            after = newest.computed
        elif slow:
            after = min(seen.wanted for seen in slow)
        else:
            return None
        most = limits.most if self._ceiling is None else self._ceiling.processes
        if at_once and newest.roomy < current:
            after = newest.roomy
        elif min(after, most) <= current:
            return None
        after = min(after, most)
        growth = None
        if after > current and (at_once or self._steady()):
            growth = _Growth(
                current, after, measured.mean_s, measured.interaction_s, newest.computed
            )
        if self._shrunk is not None and now - self._shrunk[0] < REGRET_S:
            self._floor, self._floor_until = after, now + REMEMBERED_S
        move = self._move(now, current, after, _reason(measured, limits, after), measured)
        self._growth = growth
        return move

    def _both_signs(self, seconds: float, processes: float) -> bool:
        """Whether actions came too late, and inference took too long for so many processes."""
        last = self._last(seconds)
        return bool(last) and all(seen.late and seen.computed > processes for seen in last)

    def _shrink(self, now: float, current: int, measured: Measured, limits: Limits) -> Move | None:
        last = self._last(SHRINK_S)
        if not last:
            return None
        enough = max(seen.roomy for seen in last)
        if enough > max(seen.roomy for seen in self._last(SHRINK_S - FALLING_S)):
            return None
        if now < self._floor_until:
            enough = max(enough, self._floor)
        if enough > current - max(1, current // 10):
            return None
        why = f"{_reason(measured, limits, enough)}, for {SHRINK_S:g} s now"
        move = self._move(now, current, enough, why, measured)
        self._shrunk = (now, current)
        return move

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
    """Processes to start with, before anything is measured: `adaptive` seldom needs less than two.

    Args:
        limits: to be kept to.
    """
    return min(limits.most, 2 if limits.algorithm in PROMISING else 1)


def _gain(growth: _Growth, measured: Measured, late: bool) -> float:
    """How many times as often actions can come since a growth, as far as it is to blame."""
    slower, more = measured.mean_s / growth.mean_s, growth.after / growth.before
    # Sharing cores makes N processes at most N times as slow; whatever is slower still has another
    # reason.
    shared = SLOWER <= slower <= SLOWER * more
    unexplained = late and growth.computed <= growth.before
    gain = more / slower if shared else more
    if (shared and late) or unexplained:
        before_s, after_s = growth.interaction_s, measured.interaction_s
        gain = min(gain, before_s / after_s) if before_s and after_s else gain
    return gain


def _look(now: float, current: int, measured: Measured, limits: Limits) -> _Seen:
    computed = _computed(measured, limits, 1.0)
    roomy = _computed(measured, limits, MARGIN)
    wanted = computed
    late = False
    if measured.interaction_s is not None:
        ratio = measured.interaction_s / (LATE * limits.deadline_s)
        late = ratio > 1.0
        # New actions are executed once a tick at most: how much is to spare cannot be seen.
        # Where nobody keeps a distance, processes in step act no more often than one.
        if late and limits.algorithm in LIVE:
            seen = min(limits.most, max(1, math.ceil(current * ratio - 1e-9)))
            wanted, roomy = max(wanted, seen), max(roomy, seen)
    return _Seen(now, measured.mean_s, late, computed, wanted, roomy)


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
