"""Where learning stands in its training horizon, what memory is reserved, and why.

Why it is correct. There are two records, each in a double buffer with one writer at a time: the
horizon belongs to the holder of the apply lock (`turns.py`), the reservations to the supervisor. A
writer killed at any instant leaves the state before or the state after, and never, say, a horizon
counted as met whose samples are still there. The decisions are an `EntryList` (`ring.py`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from rtagent.memory.double_buffer import RecordDoubleBuffer
from rtagent.memory.records import Layout
from rtagent.memory.ring import EntryList

UNKNOWN = math.nan
DECISIONS = 1024
"""Newest decisions that are kept."""
MODES = ("off", "max-a", "max-p", "episode", "step")
KINDS = (
    "episode", "step", "settings", "memory", "out-of-memory", "recovery", "met", "missed",
    "early-exit",
)
OUTCOMES = frozenset({"met", "missed", "early-exit"})


@dataclass(slots=True)
class Horizon:
    """The horizon that is running. Writer: the holder of the apply lock.

    Attributes:
        number: horizons that ended before it.
        mode: in force; index into `MODES`.
        deadline_s: D in force, seconds; 0: none.
        data_budget: B in force, samples; 0: none.
        b_min: the smallest batch in force.
        seen_ns: when it was last brought up to date, monotonic.
        running: 1 once the first update was applied, which starts the clock.
        elapsed_ns: time used, without the time in which learning was paused.
        consumed: samples used.
        updates: applied over the whole run.
        batch_size: in force for the next update.
        batch_cap: largest batch that the reserved memory allows (Eq. 2); 0: no limit.
        safe_size: largest batch after memory ran out; 0: no limit.
        safe_since_ns: when `safe_size` was set.
        base_bytes: M_base, measured; 0: unknown.
        base_size: b_base, the batch size of that measurement.
        time_ratio: a, elapsed over the deadline without its margin; NaN: unknown.
        data_ratio: b, consumed over the budget; NaN: unknown.
        due: 1 if an episode or a horizon has ended since the last decision.
        part_ns: time since the last decision.
        part_samples: samples since the last decision.
        samples_per_s: over the part before the last decision; NaN: unknown.
        episode: finished episodes seen.
        episode_ns: time used in the running episode.
        episode_samples: samples used in it.
        good_episodes: consecutive episodes of this horizon that reached the target return.
        met: horizons that ended in time.
        missed: horizons that did not.
        early_exits: those met because the target return was reached.
        episode_met: episodes within their share of the deadline.
        episode_missed: episodes beyond it.
    """

    number: int = 0
    mode: int = 0
    deadline_s: float = 0.0
    data_budget: int = 0
    b_min: int = 0
    seen_ns: int = 0
    running: int = 0
    elapsed_ns: int = 0
    consumed: int = 0
    updates: int = 0
    batch_size: int = 0
    batch_cap: int = 0
    safe_size: int = 0
    safe_since_ns: int = 0
    base_bytes: int = 0
    base_size: int = 0
    time_ratio: float = UNKNOWN
    data_ratio: float = UNKNOWN
    due: int = 0
    part_ns: int = 0
    part_samples: int = 0
    samples_per_s: float = UNKNOWN
    episode: int = 0
    episode_ns: int = 0
    episode_samples: int = 0
    good_episodes: int = 0
    met: int = 0
    missed: int = 0
    early_exits: int = 0
    episode_met: int = 0
    episode_missed: int = 0


@dataclass(slots=True)
class Reservations:
    """What memory is for. Writer: the supervisor. -1 and NaN: unknown, or no limit.

    Attributes:
        budget_bytes: of all processes together.
        used_bytes: measured, of all processes and the shared memory.
        baseline_bytes: of it, what is neither replay nor batches.
        batch_bytes: reserved for the batches of all learners.
        replay_bytes: reserved for the replay.
        ticks_limit: ticks that the replay may keep.
        alpha: of the newest episode (Eq. 4).
        beta: of the newest episode (Eq. 4).
        pressure_events: how often memory became so short that the reservations were halved.
    """

    budget_bytes: int = -1
    used_bytes: int = -1
    baseline_bytes: int = -1
    batch_bytes: int = -1
    replay_bytes: int = -1
    ticks_limit: int = -1
    alpha: float = UNKNOWN
    beta: float = UNKNOWN
    pressure_events: int = 0


@dataclass(slots=True)
class Decision:
    """Why the batch size is what it is, or how a horizon ended.

    Attributes:
        number: of the decision; set by `HorizonRecord.add`.
        time_ns: when, monotonic.
        kind: index into `KINDS`.
        mode: index into `MODES`.
        horizon: its number.
        episode: episodes finished before it.
        updates: applied before it.
        elapsed_s: time used of the horizon.
        deadline_s: D, seconds; 0: none.
        consumed: samples used of the horizon.
        data_budget: B, samples; 0: none.
        time_ratio: a as compared; in mode `episode` as expected at the next decision.
        data_ratio: b as compared.
        samples_per_s: measured since the decision before; NaN: unknown.
        b_min: the smallest batch.
        cap: the largest batch that memory allows; 0: no limit.
        before: batch size before.
        after: batch size after.
    """

    number: int = 0
    time_ns: int = 0
    kind: int = 0
    mode: int = 0
    horizon: int = 0
    episode: int = 0
    updates: int = 0
    elapsed_s: float = 0.0
    deadline_s: float = 0.0
    consumed: int = 0
    data_budget: int = 0
    time_ratio: float = UNKNOWN
    data_ratio: float = UNKNOWN
    samples_per_s: float = UNKNOWN
    b_min: int = 0
    cap: int = 0
    before: int = 0
    after: int = 0

    def describe(self) -> dict[str, Any]:
        """The fields, with names instead of indices, and None for what is unknown."""
        values = {name: None if value != value else value for name, value in asdict(self).items()}
        return values | {"kind": KINDS[self.kind], "mode": MODES[self.mode]}


_DECISION = Layout(Decision)


class HorizonRecord:
    """Horizon, reservations and decisions in shared memory.

    Args:
        buffer: `HorizonRecord.size()` writable bytes, aligned to 8.
    """

    def __init__(self, buffer: memoryview) -> None:
        first = RecordDoubleBuffer.size(Horizon)
        second = first + RecordDoubleBuffer.size(Reservations)
        self._horizon = RecordDoubleBuffer(buffer[:first], Horizon)
        self._reservations = RecordDoubleBuffer(buffer[first:second], Reservations)
        self._decisions = EntryList(buffer[second:], _DECISION, DECISIONS)

    @staticmethod
    def size() -> int:
        """Bytes of everything; zeroed: the first horizon, nothing reserved, and no decision."""
        buffers = RecordDoubleBuffer.size(Horizon) + RecordDoubleBuffer.size(Reservations)
        return buffers + EntryList.size(_DECISION, DECISIONS)

    @property
    def number(self) -> int:
        """How often the horizon has been written. Cheap to compare before a `read`."""
        return self._horizon.number

    def read(self) -> Horizon:
        """A copy of the horizon; exact under the apply lock.

        Without the lock, the copy read before if each attempt was lapped.
        """
        return self._horizon.read()

    def write(self, horizon: Horizon) -> None:
        """Replace the horizon. Under the apply lock only."""
        self._horizon.write(horizon)

    @property
    def reservations(self) -> Reservations:
        """A copy of the reservations; the copy read before if each attempt was lapped."""
        return self._reservations.read()

    def reserve(self, reservations: Reservations) -> None:
        """Replace the reservations. Only the supervisor."""
        self._reservations.write(reservations)

    @property
    def count(self) -> int:
        """Decisions so far."""
        return self._decisions.count

    def add(self, decision: Decision) -> None:
        """Append a decision. Under the apply lock only."""
        decision.number = self.count
        self._decisions.append(decision)

    def decisions(self, most: int = DECISIONS, since: int = 0) -> list[Decision]:
        """The newest decisions, in their order.

        Args:
            most: how many at most.
            since: number of the oldest one wanted.
        """
        found = self._decisions.newest(most)
        return [Decision(*entry) for entry in found[found["number"] >= since].tolist()]
