"""The recorder: a process that writes the run's figures down, for TensorBoard and for the eye.

Into the folder of the run go `tensorboard/` (every figure every few seconds where it has changed,
every finished episode, the decisions of the deadline controller; the tick is the step) and
`episodes.csv`, with the one before it when that was full. Everything is read from shared memory, so
nobody waits for the recorder; where it cannot write, it says so once and goes on trying.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from math import floor, isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rtagent.clock import Clock
from rtagent.files.append import append_whole, make_room, older
from rtagent.files.pruning import MIB, newest_first, prune
from rtagent.memory.horizon import Decision
from rtagent.memory.process_metrics import EPISODES, RecorderRecord
from rtagent.memory.ring import Entries
from rtagent.memory.world import World
from rtagent.telemetry.stats import StatsReader
from rtagent.telemetry.tensorboard import scalar_record, version_record

if TYPE_CHECKING:
    from rtagent.processes.worker import WorkerContext

PERIOD_S = 5.0
BEAT_S = 0.25
EPISODES_FILE = "episodes.csv"
EPISODES_HEAD = "tick,length,return,seconds\n"
TENSORBOARD_DIR = "tensorboard"
MOST_DECISIONS = 64
"""Decisions written per period; there may be one for every update."""
TAIL_BYTES = 4096
EVENT_FILE = "events.out.tfevents"
PARTS = 4
"""Event files that a recorder writes, one after the other, before the oldest goes."""
NANO = 1e9


def run(context: WorkerContext[RecorderRecord]) -> None:
    """The body of the recorder process; returns when it is told to stop."""
    context.set_idle_priority()
    clock = context.clock
    # TensorBoard shows when something happened, which is a time of day. It is read once: a curve
    # must not jump when somebody sets the clock.
    ahead_s = time.clock_gettime(time.CLOCK_REALTIME) - clock.now()
    recorder = Recorder(
        context.world, context.run_dir, clock, wall_time=lambda: clock.now() + ahead_s,
        event=context.event,
    )
    context.ready()
    due = clock.now()
    while not context.stopping:
        context.beat()
        if clock.now() >= due:
            recorder.record()
            context.record.rows = recorder.rows
            due = clock.now() + PERIOD_S
        clock.sleep_until(min(due, clock.now() + BEAT_S))
    recorder.record()


class Recorder:
    """Writes what is new since it wrote last.

    A recorder that takes over from a killed one goes on with the episode after the last one in
    `episodes.csv`. `wall_time` tells the seconds since 1970, `event` the supervisor.

    Attributes:
        rows: pieces written.
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
        self._folder = run_dir / TENSORBOARD_DIR
        self._most_bytes = world.config.run.tensorboard_mb * MIB
        self._table_bytes = world.config.run.events_mb * MIB
        self._begin_file()
        self._failing = False
        self._shown: dict[str, float] = {}
        tick = max(map(mend_table, (self._table, older(self._table))))
        self._table_tick = self._events_tick = tick
        self._decisions = world.horizon.count
        self.rows = 0

    def record(self) -> None:
        """Write what is new; a file that cannot be written is reported once."""
        try:
            self._write_table()
            self._write_episodes()
            self._write_decisions()
            self._write_figures()
        except OSError as error:
            if not self._failing:
                self._event("recording_failed", reason=error.strerror or str(error))
            self._failing = True
        else:
            self._failing = False

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

    def _write_episodes(self) -> None:
        episodes, records = self._finished_since(self._events_tick), []
        for each in episodes:
            values = {"episode/return": each["return"], "episode/length": each["length"]}
            ended = int(each["end_tick"])
            at = self._wall_time_of(self._ns_of(ended))
            records.append(scalar_record(at, ended, values))
        self._append(records)
        if len(episodes):
            self._events_tick = int(episodes["end_tick"][-1])

    def _write_decisions(self) -> None:
        decisions = self._world.horizon.decisions(MOST_DECISIONS, self._decisions)[::-1]
        self._append([
            scalar_record(self._wall_time_of(at), self._tick_at(at), scalars_of(each))
            for each in decisions for at in [each.time_ns]
        ])
        if decisions:
            self._decisions = decisions[-1].number + 1

    def _write_figures(self) -> None:
        found = dict(scalars(self._reader.collect()))
        changed = {tag: value for tag, value in found.items() if self._shown.get(tag) != value}
        if changed:
            tick = max(0, self._world.ledger.newest)
            self._append([scalar_record(self._wall_time(), tick, changed)])
        self._shown = found

    def _append(self, records: list[bytes]) -> None:
        if not records:
            return
        head = b"" if self._written else version_record(self._wall_time())
        data = head + b"".join(records)
        append_whole(self._events, data)
        self._written += len(data)
        self.rows += len(records)
        if self._written > self._most_bytes // PARTS:
            self._begin_file()
            files = newest_first(self._folder, f"{EVENT_FILE}.*")
            prune(files, sys.maxsize, self._most_bytes * (PARTS - 1) // PARTS)

    def _begin_file(self) -> None:
        name = f"{EVENT_FILE}.{self._wall_time():.0f}.{os.getpid()}"
        self._events, self._written = self._folder / name, 0

    def _finished_since(self, tick: int) -> Entries:
        recent = self._world.metrics.environment.episodes.newest(EPISODES)
        return recent[recent["end_tick"] > tick]

    # ---- ticks and times

    def _ns_of(self, tick: int) -> float:
        """When a tick was due, on the monotonic clock."""
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
        slipped = self._world.metrics.environment.slipped_ns / NANO
        ticks = int(episode["end_tick"]) - self._world.first_tick
        return slipped + ticks / self._world.blueprint.rate_hz

    def _wall_time_of(self, ns: float) -> float:
        return self._wall_time() - (self._clock.now() - ns / NANO)


def scalars(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every known number of nested figures, with its place as a tag: `actions/delay_ticks/mean`."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from scalars(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            yield prefix + name, float(value)


def scalars_of(decision: Decision) -> dict[str, float]:
    """A decision of the deadline controller: the batch size after it, and what led to it."""
    values = {
        "decision/batch_size": decision.after,
        "decision/time_ratio": decision.time_ratio,
        "decision/data_ratio": decision.data_ratio,
        "decision/batch_cap": decision.cap or nan,
    }
    return {tag: value for tag, value in values.items() if isfinite(value)}


def mend_table(path: Path) -> int:
    """Cut off a line that its writer did not finish; the tick of the last whole one.

    Args:
        path: of `episodes.csv`.

    Returns:
        -1 if there is none, or if the file cannot be read.
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
