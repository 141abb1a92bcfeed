"""The recorder: a process that writes the run's figures to files.

Into the folder of the run go `tensorboard/` (every few seconds each figure that has changed, every
finished episode, the decisions of the deadline controller; the tick is the step) and
`episodes.csv`, with its predecessor once that was full. The curves also go to W&B and MLflow where
those are configured (`sinks.py`). Everything is read from shared memory, so no process waits for
the recorder; if it cannot write, it reports that once and keeps trying.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from math import floor, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtagent.clock import NANO, Clock, suspended_s
from rtagent.errors import reason_of
from rtagent.files.append import append_whole, make_room, older
from rtagent.files.pruning import MIB
from rtagent.memory.horizon import Decision
from rtagent.memory.process_metrics import EPISODES, WorkerRecord
from rtagent.memory.ring import Entries
from rtagent.memory.world import World
from rtagent.telemetry.points import Point
from rtagent.telemetry.sinks import open_sinks
from rtagent.telemetry.stats import StatsReader

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

PERIOD_S = 5.0
BEAT_S = 0.25
EPISODES_FILE = "episodes.csv"
EPISODES_HEAD = "tick,length,return,seconds\n"
MOST_DECISIONS = 64
"""Decisions written per period; there may be one for every update."""
TAIL_BYTES = 4096


def run(context: WorkerContext[WorkerRecord]) -> None:
    """The body of the recorder process; returns when it is told to stop."""
    context.set_idle_priority()
    clock = context.clock
    # TensorBoard shows times of day. The wall clock is read once: a curve must not jump when the
    # clock is set. The workers' clock stands still while the machine sleeps.
    ahead_s = time.clock_gettime(time.CLOCK_REALTIME) - clock.now() - suspended_s()
    recorder = Recorder(
        context.world, context.run_dir, clock,
        wall_time=lambda: clock.now() + suspended_s() + ahead_s, event=context.event,
    )
    context.ready()
    due = clock.now()
    while not context.stopping:
        context.beat()
        if clock.now() >= due or recorder.crowded:
            recorder.record()
            due = clock.now() + PERIOD_S
        clock.sleep_until(min(due, clock.now() + BEAT_S))
    recorder.record()
    recorder.close()


class Recorder:
    """Writes what is new since the last time.

    A restarted recorder continues with the episode after the last one in `episodes.csv`.
    `wall_time` gives the seconds since 1970, `event` reports to the supervisor.

    Attributes:
        sinks: destinations of the curves.
    """

    def __init__(
        self, world: World, run_dir: Path, clock: Clock, wall_time: Callable[[], float],
        event: Callable[..., None]
    ) -> None:
        self._world = world
        self._clock = clock
        self._wall_time = wall_time
        self._event = event
        self._reader = StatsReader(world, clock)
        self._table = run_dir / EPISODES_FILE
        config = world.config
        self.sinks = open_sinks(config.run, run_dir, config.model_dump(mode="json"), wall_time)
        self._table_bytes = config.run.events_mb * MIB
        self._problems: dict[str, str | None] = {}
        self._shown: dict[str, float] = {}
        tick = max(map(repair_table, (self._table, older(self._table))))
        self._table_tick = self._events_tick = tick
        self._decisions = world.horizon.count
        self._recorded = 0

    @property
    def crowded(self) -> bool:
        """Whether so many episodes have finished that the oldest will soon not be kept any more."""
        finished = self._world.metrics.environment.episodes.count
        return finished - self._recorded > EPISODES // 2

    def record(self) -> None:
        """Write what is new; report once that something cannot be written."""
        self._recorded = self._world.metrics.environment.episodes.count
        try:
            self._write_table()
            self._note_problem("episodes", None)
        except OSError as error:
            self._note_problem("episodes", reason_of(error))
        points = [*self._episodes(), *self._decided(), *self._figures()]
        for sink in self.sinks:
            sink.write(points)
            self._note_problem(sink.name, sink.problem)

    def close(self) -> None:
        """Let the sinks finish."""
        for sink in self.sinks:
            sink.close()

    def _note_problem(self, name: str, problem: str | None) -> None:
        """Note a problem, or that there is none; report one that is new."""
        new = problem is not None and self._problems.get(name) is None
        if new and problem not in self._problems.values():
            self._event("recording_failed", reason=problem, where=name)
        self._problems[name] = problem

    def _write_table(self) -> None:
        episodes = self._finished_since(self._table_tick)
        lines = "".join(
            f"{each['end_tick']},{each['length']},{each['return']!s},{self._seconds(each):.3f}\n"
            for each in episodes
        )
        make_room(self._table, len(lines), self._table_bytes)
        begun = self._table.exists() and self._table.stat().st_size
        head = "" if begun else EPISODES_HEAD
        if head or lines:
            append_whole(self._table, (head + lines).encode())
        if len(episodes):
            self._table_tick = int(episodes["end_tick"][-1])

    def _episodes(self) -> Iterator[Point]:
        episodes = self._finished_since(self._events_tick)
        for each in episodes:
            self._events_tick = int(each["end_tick"])
            at = self._wall_time_of(self._ns_of(self._events_tick))
            yield Point(at, self._events_tick, {
                "episode/return": float(each["return"]), "episode/length": float(each["length"]),
            })

    def _decided(self) -> Iterator[Point]:
        for each in self._world.horizon.decisions(MOST_DECISIONS, self._decisions):
            self._decisions = each.number + 1
            at = each.time_ns
            yield Point(self._wall_time_of(at), self._tick_at(at), scalars_of(each))

    def _figures(self) -> Iterator[Point]:
        found = dict(scalars(self._reader.collect()))
        changed = {tag: value for tag, value in found.items() if self._shown.get(tag) != value}
        if changed:
            yield Point(self._wall_time(), max(0, self._world.ledger.newest), changed)
        self._shown = found

    def _finished_since(self, tick: int) -> Entries:
        recent = self._world.metrics.environment.episodes.newest(EPISODES)
        return recent[recent["end_tick"] > tick]

    # ---- ticks and times

    def _ns_of(self, tick: int) -> float:
        """When a tick was due, on the monotonic clock.

        By its row, for a clock that has slipped since then says when it would be due now.
        """
        row = self._world.ledger.row(tick)
        if row is not None:
            return float(int(row["time_ns"]) - int(row["lateness_ns"]))
        record = self._world.metrics.environment
        since = (tick - record.anchor_tick) / self._world.blueprint.rate_hz
        return record.anchor_ns + since * NANO

    def _tick_at(self, ns: float) -> int:
        """The tick that was due last; before the world's clock starts, the newest there is."""
        record = self._world.metrics.environment
        since = (ns - record.anchor_ns) / NANO * self._world.blueprint.rate_hz
        tick = record.anchor_tick + floor(since)
        return max(0, min(tick, self._world.ledger.newest))

    def _seconds(self, episode: Any) -> float:
        """Seconds from the first tick of the run to the end of an episode."""
        first_ns = self._world.metrics.environment.first_due_ns
        return (self._ns_of(int(episode["end_tick"])) - first_ns) / NANO

    def _wall_time_of(self, ns: float) -> float:
        return self._wall_time() - (self._clock.now() - ns / NANO)


def scalars(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every known number of nested figures, with its path as a tag: `actions/delay_ticks/mean`.

    Of lists, elements whose `id` is a text are included: `cluster/nodes/robot-1/share`.
    """
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Mapping) and isinstance(each.get("id"), str):
                    yield from scalars(each, f"{prefix}{name}/{each['id']}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            yield prefix + name, float(value)


def scalars_of(decision: Decision) -> dict[str, float]:
    """The scalars of a decision of the deadline controller: the batch size, and its causes."""
    values = {
        "decision/batch_size": decision.after,
        "decision/time_ratio": decision.time_ratio,
        "decision/data_ratio": decision.data_ratio,
        "decision/batch_cap": decision.cap or nan,
    }
    return {tag: value for tag, value in values.items() if isfinite(value)}


def repair_table(path: Path) -> int:
    """Cut off a last line of an `episodes.csv` that its writer did not finish.

    Returns:
        The tick of the last whole line; -1 if there is none, or the file cannot be read.
    """
    try:
        with open(path, "rb+") as file:
            size = file.seek(0, os.SEEK_END)
            start = file.seek(max(0, size - TAIL_BYTES))
            tail = file.read()
            whole = tail.rfind(b"\n") + 1
            file.truncate(start + whole)
        last = tail[:whole].decode().splitlines()[-1]
        return int(last.partition(",")[0])
    except (OSError, IndexError, ValueError):
        return -1
