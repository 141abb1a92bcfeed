"""The environment process: the world that does not wait.

Why it is correct. It is the only writer of frames and ledger, it takes no lock, and it waits for
nothing but the clock. Where an action slot is torn or silent, it executes the default behaviour.
Before every call of the world, which may take long or never return, it writes into the metrics what
it is about to do. After a restart, ledger and metrics hold all that it needs. It counts the last
row of its predecessor, if that was killed before it had, and marks this row as truncated. Then it
goes on with the next tick number, in a new episode.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from rtagent.clock import NANO, Clock
from rtagent.env.actions import Action
from rtagent.env.adapter import Adapter, open_environment
from rtagent.env.default_action import DefaultBehaviour
from rtagent.env.wall_clock import TickSchedule
from rtagent.errors import UserError
from rtagent.memory.actions import SLOTS, ActionSlots
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger
from rtagent.memory.policy_states import Beginning, PolicyStates
from rtagent.memory.process_metrics import Doing, EnvironmentRecord, FinishedEpisode
from rtagent.policy.exploration import run_seed
from rtagent.processes.scheduling import enter_realtime
from rtagent.processes.worker import WorkerContext
from rtagent.staggering.arbiter import DEFAULT_CHOICE, Arbiter, Choice, Source
from rtagent.staggering.merging import MERGES

START_POLL_S = 0.005
LONGEST_WAIT_S = 1.0
"""Longest wait for a tick: a world whose ticks are longer must hear in time that it is to stop."""
FAULTS_REPORTED_EVERY_S = 10.0
"""Least time between two events of faults; a world may have a fault on every tick."""


@dataclass
class Episode:
    """The current episode: its number in the run, its first tick, the sum of its rewards."""

    number: int
    start: int
    total: float = 0.0


class TickLoop:
    """Runs one tick after the other.

    Args:
        adapter: the world.
        default: chooses the action of a tick for which there is no other.
        frames, ledger, actions, record: shared memory.
        states: of a recurrent policy. If None, the policy is not recurrent.
        schedule: when ticks are due.
        arbiter: chooses among the deposited actions.
        clock: time.
        seed: of the environment's randomness.
    """

    def __init__(
        self, adapter: Adapter, default: DefaultBehaviour, *, frames: FrameRing, ledger: Ledger,
        actions: ActionSlots, record: EnvironmentRecord, schedule: TickSchedule, arbiter: Arbiter,
        clock: Clock, seed: int, states: PolicyStates | None = None,
    ) -> None:
        self._states = states
        self._adapter, self.default = adapter, default
        self._frames, self._ledger, self._actions = frames, ledger, actions
        self._record, self._schedule, self._clock = record, schedule, clock
        self.arbiter = arbiter
        self.tick = ledger.newest + 1
        self._episode = Episode(_next_episode(ledger), self.tick)
        self._frame = self._reset(seed)
        self._action = default.noop
        self._cuts = 0
        # By inference process, when the action that was executed last was registered.
        acted = ledger.read(ledger.newest + 1 - SLOTS, ledger.newest + 1)
        self._counted: dict[int, int] = dict(
            zip(acted["worker"].tolist(), acted["registered_ns"].tolist(), strict=True)
        )

    def comes_soon(self) -> bool:
        """Whether the next tick is due within `LONGEST_WAIT_S`; if not, waits for so long at most.
        """
        now, due = self._clock.now(), self._schedule.due_ns(self.tick) / NANO
        if due - now <= LONGEST_WAIT_S:
            return True
        # Not until shortly before the tick: what comes between two waits would make it late.
        self._clock.sleep_until(min(now + LONGEST_WAIT_S, due - LONGEST_WAIT_S / 2))
        return False

    def run_next(self) -> None:
        """Wait for the next tick and run it, after the ticks that were missed before it."""
        self._clock.sleep_until(self._schedule.due_ns(self.tick) / NANO)
        now_ns = self._now_ns()
        plan = self._schedule.plan(self.tick, now_ns)
        if plan.slipped_ns:
            self._record.slips += 1
            self._record.slipped_ns = self._schedule.slipped_ns
            self._record.anchor_ns = self._schedule.anchor_ns
        for _ in range(plan.catch_up):
            self._run(DEFAULT_CHOICE, self._now_ns())
        now_ns = self._now_ns() if plan.catch_up else now_ns
        self._record.chosen = self.tick
        self._run(self.arbiter.choose(self.tick, self._actions), now_ns)

    def _run(self, choice: Choice, now_ns: int) -> None:
        """Run one tick: step the world, write the row, publish the frame, begin a new episode."""
        tick, episode = self.tick, self._episode
        deposit = choice.deposit
        action: Action = deposit.action
        if choice.source == Source.DEFAULT:
            action = self.default.action(self._frame, self._action)
        began_ns = self._note(Doing.STEPPING)
        step = self._adapter.step(action)
        self._record.add_step(tick, self._note(Doing.WAITING) - began_ns)
        self._ledger.write(
            tick, observed=deposit.frame, time_ns=now_ns,
            registered_ns=round(deposit.registered_at * NANO),
            lateness_ns=now_ns - self._schedule.due_ns(tick), reward=step.reward,
            weights_version=deposit.version, episode=episode.number, worker=deposit.worker,
            source=choice.source, action=action,
            flags=TERMINATED * step.terminated | TRUNCATED * step.truncated,
            log_probability=deposit.log_probability, pending=deposit.pending,
            position=deposit.position, beginning=self._beginning(choice),
        )
        # A process that waits for the next frame wakes up later by this time.
        self._record.behind_ns = self._now_ns() - self._schedule.due_ns(tick)
        # After the row: so a successor never gives a published frame's number to another frame.
        self._frames.publish(tick, step.frame, episode.start)
        self._frame, self._action = step.frame, action
        self.tick += 1
        episode.total += step.reward
        over = step.terminated or step.truncated
        if over:
            length = self.tick - episode.start
            finished = FinishedEpisode(tick, length, episode.total, episode.number)
            self._record.episodes.append(finished)
        self._count(choice, step.reward)
        if over:
            self._episode = Episode(episode.number + 1, self.tick)
            self._frame = self._reset()

    def _reset(self, seed: int | None = None) -> NDArray[Any]:
        """Begin an episode, in the time that is left of the tick that ended the previous one."""
        began_ns = self._note(Doing.RESETTING)
        frame = self._adapter.reset(seed)
        self._record.reset_ns = self._note(Doing.WAITING) - began_ns
        return frame

    def _beginning(self, choice: Choice) -> Beginning | None:
        """The policy's state at the beginning of the inference that gave an action, if known."""
        if self._states is None or choice.source == Source.DEFAULT:
            return None
        return self._states.behind(choice.deposit.worker, choice.deposit.frame)

    def _note(self, doing: Doing) -> int:
        """Write into the metrics what is done from now on; the time now, nanoseconds."""
        now_ns = self._now_ns()
        self._record.note_doing(doing, now_ns)
        return now_ns

    def _count(self, choice: Choice, reward: float) -> None:
        worker, at = choice.deposit.worker, round(choice.deposit.registered_at * NANO)
        # An inference is one decision, in however many ticks its actions are executed.
        decided = choice.source != Source.DEFAULT and self._counted.get(worker) != at
        if decided:
            self._counted[worker] = at
        _count_tick(self._record, choice.source, reward, decided=decided)
        self._record.faults += self._adapter.cuts - self._cuts
        self._cuts = self._adapter.cuts

    def _now_ns(self) -> int:
        return round(self._clock.now() * NANO)


def _next_episode(ledger: Ledger) -> int:
    """The number of the episode after that of the newest row."""
    previous = ledger.read(ledger.newest - 1, ledger.newest + 1)
    if not len(previous):
        return 0
    # Killed in `truncate_episode`, a predecessor has left its last row torn, which may have been
    # the first of an episode.
    last = previous[-1]
    torn_first = last["tick"] < ledger.newest and last["flags"] != 0
    return int(last["episode"]) + 1 + int(torn_first)


def count_last_row(ledger: Ledger, record: EnvironmentRecord, first_tick: int) -> None:
    """Count the newest row if the process that wrote it was killed before it had counted it.

    Args:
        ledger: before the newest row is marked as truncated.
        record: the figures of this run.
        first_tick: of this run.
    """
    tick = ledger.newest
    if tick - first_tick < record.ticks:
        return
    rows = ledger.read(first_tick, tick + 1)
    before, row = rows[:-1], rows[-1]
    source, episodes = Source(int(row["source"])), record.episodes
    if row["flags"] and tick not in episodes.newest(1)["end_tick"]:
        rewards = rows["reward"][rows["episode"] == row["episode"]].astype(float)
        episodes.append(
            FinishedEpisode(tick, len(rewards), float(rewards.sum()), int(row["episode"]))
        )
    known = (before["worker"] == row["worker"]) & (before["registered_ns"] == row["registered_ns"])
    decided = source != Source.DEFAULT and not known.any()
    _count_tick(record, source, float(row["reward"]), decided=decided)


def _count_tick(
    record: EnvironmentRecord, source: Source, reward: float, *, decided: bool
) -> None:
    record.reward_low = min(reward, record.reward_low)
    record.reward_high = max(reward, record.reward_high)
    record.decisions += decided
    name = source.name.lower()
    setattr(record, name, getattr(record, name) + 1)


def run(context: WorkerContext[EnvironmentRecord]) -> None:
    """Body of the environment process."""
    adapter = open_environment(context.config.env)
    try:
        _run(context, adapter)
    finally:
        # Also after an exception: a simulator that it has started would outlive this process.
        adapter.close()


def _run(context: WorkerContext[EnvironmentRecord], adapter: Adapter) -> None:
    config, world, clock = context.config, context.world, context.clock
    adapter.keep_time()
    default = DefaultBehaviour(config.env, adapter)
    context.record.realtime = int(enter_realtime(config.run.realtime))
    ledger, first = world.ledger, world.ledger.newest + 1
    count_last_row(ledger, context.record, world.first_tick)
    ledger.truncate_episode()
    # The metrics still say what its predecessor was doing when it died.
    context.record.note_doing(Doing.WAITING, round(clock.now() * NANO))
    context.ready()
    _wait_for_start(context)
    schedule = TickSchedule(adapter.rate_hz, 0, first, config.env.max_catch_up_ticks)
    loop = TickLoop(
        adapter, default, frames=world.frames, ledger=ledger, actions=world.actions,
        record=context.record, schedule=schedule, clock=clock,
        seed=run_seed(config.run.seed, context.resume) + first, states=world.states,
        arbiter=Arbiter(last_frame=_last_frame(ledger), merge=MERGES[config.policy.chunk]),
    )
    gc.collect()
    gc.freeze()
    schedule.anchor_ns = round((clock.now() + 2.0 / adapter.rate_hz) * NANO)
    _note_anchor(context.record, schedule, world.first_tick)
    reported, reported_at = 0, -FAULTS_REPORTED_EVERY_S
    behaviour = config.env.default_action
    while not context.stopping:
        desired = context.desired
        world.actions.limit(desired.rows)
        loop.arbiter.fill = desired.inference.fill
        if desired.env.default_action != behaviour:
            behaviour = desired.env.default_action
            try:
                loop.default = DefaultBehaviour(desired.env, adapter)
            except UserError as error:
                context.event("world", news=f"{error}; the default behaviour stays as it was")
        context.beat()
        if not loop.comes_soon():
            continue
        loop.run_next()
        if adapter.faults > reported and clock.now() - reported_at >= FAULTS_REPORTED_EVERY_S:
            reported, reported_at = adapter.faults, clock.now()
            faults = context.record.faults
            context.event("environment_fault", reason=adapter.last_fault, faults=faults)
        for line in adapter.take_news():
            context.event("world", news=line)
    ledger.truncate_episode()


def _wait_for_start(context: WorkerContext[EnvironmentRecord]) -> None:
    """Wait until every process of the run is ready, or the run ends."""
    while not context.desired.go and not context.stopping:
        context.beat()
        context.clock.sleep_until(context.clock.now() + START_POLL_S)


def _note_anchor(record: EnvironmentRecord, schedule: TickSchedule, first_tick: int) -> None:
    """Write the clock into the metrics; the time since a predecessor's last tick is a slip.

    All slips are counted from one word, which never changes after the first tick: killed at any
    instant, a predecessor may have noted its own slip in part.
    """
    if record.ticks:
        record.slips += 1
        schedule.slipped_ns = schedule.due_ns(first_tick) - record.first_due_ns
    else:
        record.first_due_ns = schedule.due_ns(first_tick)
    record.slipped_ns = schedule.slipped_ns
    record.anchor_ns = schedule.anchor_ns
    record.anchor_tick = schedule.anchor_tick


def _last_frame(ledger: Ledger) -> int:
    """A frame such that no action computed from a newer one has been executed."""
    oldest = max(ledger.newest - SLOTS, ledger.oldest)
    rows = ledger.read(oldest, ledger.newest + 1)
    # An action that was executed before these rows must not be executed once more, as a late one.
    return int(rows["observed"].max(initial=oldest - 1))
