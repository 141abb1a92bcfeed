"""Learning within a deadline: the horizon, updated with every applied gradient (R3, Sec. III).

Gradients are applied one at a time, under the apply lock; the learner that holds it updates the
horizon. The supervisor does the same, without samples, when the lock is free: so a deadline that
passes while no gradient is applied is noticed, too. All state is in the shared record, except the
samples of the last few milliseconds.

The clock starts with the first update that is ever applied, and stands still while learning is
paused or no learner is wanted; a horizon begins when the one before it ends.

There are two deviations from the paper. The batch size is steered towards a deadline that is
`r3.margin` earlier than the real one: a rule that only compares two ratios meets its deadline half
of the time. And in mode `episode` Eq. 1 compares the ratios that are expected at the next decision,
at the rate measured since the last one (for a smaller batch, a rate smaller by the same factor):
nothing can be corrected between two decisions, and with few episodes in a horizon, the last of
them decides the outcome. An episode longer than an eighth of the deadline counts as several.
"""

from __future__ import annotations

from rtagent.clock import NANO
from rtagent.config import R3Config
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import KINDS, MODES, UNKNOWN, Decision, Horizon, HorizonRecord
from rtagent.memory.process_metrics import EnvironmentRecord
from rtagent.r3.equations import (
    LARGEST_IN_SMALLEST,
    clamp_batch_size,
    episode_deadline,
    good_in_a_row,
    memory_cap,
    next_batch_size,
)

LONGEST_PART = 1 / 8
"""The longest time between two decisions of mode `episode`, as a fraction of the deadline."""
DEAD_BAND = 0.005
"""Mode `step` keeps the batch size while the ratios differ by less, for with a new size the
batches that were prepared ahead are useless."""
PERIOD_NS = 8_000_000
"""Updates that follow one another faster are counted together, unless they end the horizon: the
controller takes thirty microseconds, which is much beside the update of a small network."""
RECOVER_NS = 30 * NANO
"""After memory ran out, the largest safe batch size grows by a quarter once in this time."""


class HorizonKeeper:
    """Updates the horizon, and decides the size of the next batch.

    Args:
        record: in shared memory.
        r3: factor, margin and early exit.
    """

    def __init__(self, record: HorizonRecord, r3: R3Config) -> None:
        self._record, self._r3 = record, r3
        self._number, self._horizon = -1, Horizon()
        self._collected, self._advanced_ns = 0, 0
        self._decided: list[Decision] = []

    def batch_size(self, desired: DesiredState) -> int:
        """Transitions of the next update."""
        return batch_in_force(self._read(), desired)

    def _read(self) -> Horizon:
        """The horizon; decoded only if another process has written it."""
        number = self._record.number
        if number != self._number:
            self._horizon, self._number = self._record.read(), number
        return self._horizon

    def _begin_change(self) -> Horizon:
        """The horizon, to be changed; if the change fails half-way, it is read again."""
        horizon, self._number = self._read(), -1
        self._decided.clear()
        return horizon

    def _write(self, horizon: Horizon) -> None:
        self._record.write(horizon)
        self._number = self._record.number
        # After the horizon: or one killed in between would have told what did not happen.
        for decision in self._decided:
            self._record.add(decision)

    # ---- under the apply lock

    def note_base(self, peak: int, size: int) -> None:
        """Remember M_base, the bytes measured with a batch of b_base transitions."""
        horizon = self._begin_change()
        horizon.base_bytes, horizon.base_size = max(1, peak), size
        self._write(horizon)

    def note_out_of_memory(self, now_ns: int, size: int) -> None:
        """Halve the largest batch: one of `size` transitions did not fit."""
        horizon = self._begin_change()
        safe = max(1, size // 2)
        horizon.safe_size = min(safe, horizon.safe_size or safe)
        horizon.safe_since_ns = now_ns
        horizon.batch_cap = min(horizon.safe_size, horizon.batch_cap or horizon.safe_size)
        horizon.batch_size = min(horizon.batch_size, horizon.batch_cap)
        self._record_decision(horizon, "out-of-memory", before=size)
        self._write(horizon)

    def advance(
        self, now_ns: int, samples: int, updates: int, environment: EnvironmentRecord,
        desired: DesiredState,
    ) -> None:
        """Count the time that has passed, and the applied update if there was one.

        Args:
            now_ns: monotonic.
            samples: of the update; 0: no update was applied.
            updates: applied over the whole run.
            environment: the environment's record in the metrics.
            desired: in force.
        """
        if samples:
            self._collected += samples
            recent = now_ns - self._advanced_ns < PERIOD_NS
            if recent and not self._may_be_over(now_ns):
                return
            samples, self._collected, self._advanced_ns = self._collected, 0, now_ns
        horizon = self._begin_change()
        passed_ns = max(0, now_ns - horizon.seen_ns)
        horizon.seen_ns, horizon.updates = now_ns, updates
        self._take_settings(horizon, desired, environment)
        self._recover(horizon)
        if not horizon.running and samples:
            horizon.running, passed_ns = 1, 0
            horizon.episode = environment.episodes.count
        if horizon.running:
            # Learners that have died cost time like any other delay.
            idle = not samples and (desired.learning.paused or not desired.learning.processes)
            _count(horizon, 0 if idle else passed_ns, samples)
        if horizon.running and horizon.mode:
            self._judge_episodes(horizon, environment)
            self._end(horizon)
            self._compare(horizon)
        if samples:
            self._steer(horizon, desired)
        self._limit(horizon, desired)
        self._write(horizon)

    # ---- the parts of `advance`

    def _may_be_over(self, now_ns: int) -> bool:
        """Whether the horizon ends with the updates that are not counted yet."""
        horizon = self._read()
        elapsed_ns = horizon.elapsed_ns + now_ns - horizon.seen_ns
        used = horizon.consumed + self._collected
        over = used >= horizon.data_budget or elapsed_ns >= horizon.deadline_s * NANO
        return horizon.mode > 0 and over

    def _take_settings(
        self, horizon: Horizon, desired: DesiredState, environment: EnvironmentRecord
    ) -> None:
        mode = _mode(desired)
        deadline_s, data_budget = desired.r3.deadline_s or 0.0, desired.r3.data_budget or 0
        known = (horizon.mode, horizon.deadline_s, horizon.data_budget, horizon.b_min)
        if known == (mode, deadline_s, data_budget, desired.learning.update_size):
            return
        if mode and not horizon.mode:
            _begin(horizon)
            horizon.part_ns = horizon.part_samples = 0
            horizon.episode_ns = horizon.episode_samples = horizon.due = 0
            horizon.episode = environment.episodes.count
        elif horizon.mode and not mode:
            # It is over, without an outcome.
            horizon.number += horizon.running
        horizon.mode, horizon.b_min = mode, desired.learning.update_size
        horizon.deadline_s, horizon.data_budget = deadline_s, data_budget
        horizon.time_ratio = horizon.data_ratio = UNKNOWN
        before, horizon.batch_size = horizon.batch_size, batch_in_force(horizon, desired)
        self._record_decision(horizon, "settings", before)

    def _recover(self, horizon: Horizon) -> None:
        """Slowly increase the largest safe batch size again."""
        if not horizon.safe_size or horizon.seen_ns - horizon.safe_since_ns < RECOVER_NS:
            return
        horizon.safe_size += max(1, horizon.safe_size // 4)
        horizon.safe_since_ns = horizon.seen_ns
        if horizon.safe_size >= LARGEST_IN_SMALLEST * horizon.b_min:
            horizon.safe_size = 0
        self._record_decision(horizon, "recovery", horizon.batch_size)

    def _judge_episodes(self, horizon: Horizon, environment: EnvironmentRecord) -> None:
        """Check whether the episodes finished since the last call met their deadline.

        Several episodes count as one, with the samples of all of them.
        """
        finished, count = environment.episodes.since(horizon.episode)
        if count <= horizon.episode:
            return
        returns, target = finished["return"].tolist(), self._r3.target_return
        horizon.good_episodes = good_in_a_row(horizon.good_episodes, returns, target)
        if samples := horizon.episode_samples:
            allowed_s = episode_deadline(horizon.deadline_s, samples, horizon.data_budget)
            in_time = horizon.episode_ns <= allowed_s * NANO
            horizon.episode_met += in_time
            horizon.episode_missed += not in_time
        horizon.episode, horizon.episode_ns, horizon.episode_samples = count, 0, 0
        horizon.due = 1

    def _end(self, horizon: Horizon) -> None:
        """If the horizon is over, record its outcome and begin the next one."""
        late = horizon.elapsed_ns > horizon.deadline_s * NANO
        used = horizon.consumed >= horizon.data_budget
        early = horizon.good_episodes >= self._r3.target_episodes
        if not (late or used or early):
            return
        outcome = "missed" if late else "met" if used else "early-exit"
        horizon.missed += late
        horizon.met += not late
        horizon.early_exits += outcome == "early-exit"
        self._compare(horizon)
        self._record_decision(horizon, outcome, horizon.batch_size)
        horizon.number += 1
        _begin(horizon)

    def _compare(self, horizon: Horizon) -> None:
        """Set the two ratios of Eq. 1."""
        horizon.time_ratio = horizon.elapsed_ns / (self._aim_s(horizon) * NANO)
        horizon.data_ratio = horizon.consumed / horizon.data_budget

    def _aim_s(self, horizon: Horizon) -> float:
        """The deadline less its margin, seconds."""
        return horizon.deadline_s * (1.0 - self._r3.margin)

    def _steer(self, horizon: Horizon, desired: DesiredState) -> None:
        """Choose the next batch size by Eqs. 1 and 2, after an applied update."""
        before, mode = horizon.batch_size, MODES[horizon.mode]
        a, b = horizon.time_ratio, horizon.data_ratio
        part_is_over = horizon.part_ns >= LONGEST_PART * horizon.deadline_s * NANO
        if mode == "episode" and (horizon.due or part_is_over):
            horizon.samples_per_s = horizon.part_samples * NANO / max(1, horizon.part_ns)
            a, b = self._expected(horizon)
            horizon.part_ns = horizon.part_samples = horizon.due = 0
        elif mode != "step" or abs(a - b) < DEAD_BAND:
            return
        horizon.batch_size = next_batch_size(before, a, b, self._r3.factor, horizon.b_min)
        horizon.batch_size = batch_in_force(horizon, desired)
        if mode == "episode" or horizon.batch_size != before:
            self._record_decision(horizon, mode, before, (a, b))

    def _expected(self, horizon: Horizon) -> tuple[float, float]:
        """The ratios for Eq. 1 that are expected at the next decision.

        With them the batch grows only if the current size would be too slow, and shrinks only if
        the smaller size would be fast enough.
        """
        aim_s = self._aim_s(horizon)
        rest_s = max(0.0, aim_s - horizon.elapsed_ns / NANO)
        part_s = min(horizon.part_ns / NANO, LONGEST_PART * horizon.deadline_s, rest_s)
        time_ratio = horizon.time_ratio + part_s / aim_s
        more = horizon.samples_per_s * part_s / horizon.data_budget
        keeping = horizon.data_ratio + more
        shrinking = horizon.data_ratio + more / self._r3.factor
        if time_ratio > keeping:
            return time_ratio, keeping
        return time_ratio, max(time_ratio, shrinking)

    def _limit(self, horizon: Horizon, desired: DesiredState) -> None:
        """Limit the batch size to what memory allows."""
        before, horizon.batch_cap = horizon.batch_size, _cap(horizon, desired)
        horizon.batch_size = batch_in_force(horizon, desired)
        if horizon.batch_size != before:
            self._record_decision(horizon, "memory", before)

    def _record_decision(
        self, horizon: Horizon, kind: str, before: int, ratios: tuple[float, float] | None = None
    ) -> None:
        a, b = ratios or (horizon.time_ratio, horizon.data_ratio)
        self._decided.append(
            Decision(
                time_ns=horizon.seen_ns, kind=KINDS.index(kind), mode=horizon.mode,
                horizon=horizon.number, episode=horizon.episode, updates=horizon.updates,
                elapsed_s=horizon.elapsed_ns / NANO, deadline_s=horizon.deadline_s,
                consumed=horizon.consumed, data_budget=horizon.data_budget, time_ratio=a,
                data_ratio=b, samples_per_s=horizon.samples_per_s, b_min=horizon.b_min,
                cap=horizon.batch_cap, before=before, after=horizon.batch_size,
            )
        )


def batch_in_force(horizon: Horizon, desired: DesiredState) -> int:
    """Transitions of the next update: by the mode, the bounds of Eq. 1, and the memory."""
    size, cap = _wanted(horizon, desired), _cap(horizon, desired)
    return min(size, cap) if cap else size


def _wanted(horizon: Horizon, desired: DesiredState) -> int:
    """The batch size without a limit of memory."""
    mode, b_min = MODES[_mode(desired)], desired.learning.update_size
    if mode in ("off", "max-a"):
        return b_min
    if mode == "max-p":
        return LARGEST_IN_SMALLEST * b_min
    return clamp_batch_size(horizon.batch_size, b_min)


def _cap(horizon: Horizon, desired: DesiredState) -> int:
    """The largest batch that the memory allows (Eq. 2), and that did not run out; 0: no limit."""
    safe = horizon.safe_size
    if desired.batch_bytes is None or not horizon.base_bytes:
        return safe
    fits = max(1, memory_cap(desired.batch_bytes, horizon.base_size, horizon.base_bytes))
    return min(fits, safe) if safe else fits


def _mode(desired: DesiredState) -> int:
    """The mode as an index into `MODES`; off without a deadline or a data budget."""
    complete = desired.r3.deadline_s is not None and desired.r3.data_budget is not None
    return MODES.index(desired.r3.mode) if complete else 0


def _begin(horizon: Horizon) -> None:
    """Reset the counters for a new horizon; the batch size stays."""
    horizon.elapsed_ns = horizon.consumed = horizon.good_episodes = 0
    horizon.due = 1


def _count(horizon: Horizon, passed_ns: int, samples: int) -> None:
    """Add time and samples: to the horizon, the part since the last decision, and the episode."""
    horizon.elapsed_ns += passed_ns
    horizon.part_ns += passed_ns
    horizon.episode_ns += passed_ns
    horizon.consumed += samples
    horizon.part_samples += samples
    horizon.episode_samples += samples
