"""The recorder: what it writes, and what it survives."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing import event_accumulator as accumulator

from rtagent.clock import VirtualClock
from rtagent.config_sources import parse_config
from rtagent.files.append import older
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import KINDS, Decision
from rtagent.memory.process_metrics import FinishedEpisode
from rtagent.memory.world import World, WorldMemory
from rtagent.telemetry import process as recorders
from rtagent.telemetry.learning_curve import read_episodes
from rtagent.telemetry.process import EPISODES_HEAD, PERIOD_S, Recorder, repair_table, scalars
from tests.conftest import make_blueprint
from tests.rows import write_row

NOON = 1_700_000_000.0
"""Time of day, seconds since 1970, when the virtual clock shows 0."""


class Run:
    """Shared memory written by the test, and a recorder on it."""

    def __init__(self, folder: Path) -> None:
        config = parse_config({"replay": {"capacity": 2048}})
        self.memory = WorldMemory(config, make_blueprint())
        self.world = World(self.memory.handles)
        self.world.control.write(DesiredState(config))
        record = self.world.metrics.environment
        record.first_due_ns = record.anchor_ns = int(100e9)
        self.world.ledger.begin(10_000, 10_001)
        self.folder = folder
        self.clock = VirtualClock(100.0)
        self.events: list[dict[str, Any]] = []
        self.recorder = self.start()

    def start(self) -> Recorder:
        return Recorder(
            self.world, self.folder, self.clock, lambda: NOON + self.clock.now(), self._event
        )

    def _event(self, kind: str, **details: Any) -> None:
        self.events.append({"kind": kind} | details)

    def episode(self, end_tick: int, total: float) -> None:
        record = self.world.metrics.environment
        record.episodes.append(FinishedEpisode(end_tick, 60, total, record.episodes.count))

    @property
    def table(self) -> list[dict[str, str]]:
        with open(self.folder / "episodes.csv", newline="") as file:
            return list(csv.DictReader(file))

    def curve(self, tag: str) -> Any:
        """What TensorBoard reads."""
        found = accumulator.EventAccumulator(
            str(self.folder / "tensorboard"), size_guidance={"scalars": 0}
        )
        found.Reload()
        return found.Scalars(tag)

    def scalars(self, tag: str) -> list[tuple[int, float]]:
        return [(each.step, each.value) for each in self.curve(tag)]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "run")
    yield run
    run.memory.close()


def test_every_finished_episode_is_written_once(run: Run) -> None:
    run.recorder.record()
    assert run.table == []
    run.episode(59, 1.5)
    run.episode(119, -2.0)
    run.recorder.record()
    run.recorder.record()
    run.episode(179, 3.0)
    run.recorder.record()
    assert [(row["tick"], row["length"], row["return"]) for row in run.table] == [
        ("59", "60", "1.5"), ("119", "60", "-2.0"), ("179", "60", "3.0"),
    ]
    assert run.scalars("episode/return") == [(59, 1.5), (119, -2.0), (179, 3.0)]
    assert float(run.table[1]["seconds"]) == pytest.approx(119 / 60, abs=1e-3)


def test_seconds_count_what_the_clock_slipped(run: Run) -> None:
    # By 4 s, since the first tick was due.
    run.world.metrics.environment.first_due_ns = int(96e9)
    run.episode(60, 0.0)
    run.recorder.record()
    assert float(run.table[0]["seconds"]) == pytest.approx(5.0)


def test_an_episode_that_ended_before_a_slip_is_not_moved_by_it(run: Run) -> None:
    run.world.ledger.begin(0, 0)
    for tick in range(61):
        due_ns = int(100e9 + tick * 1e9 / 60)
        write_row(run.world.ledger, tick, time_ns=due_ns + 7, lateness_ns=7)
    run.episode(60, 0.0)
    record = run.world.metrics.environment
    record.anchor_tick, record.anchor_ns, record.slipped_ns = 61, int(106e9 + 1e9 / 60), int(5e9)
    run.clock.advance(10.0)
    run.recorder.record()
    assert float(run.table[0]["seconds"]) == pytest.approx(1.0, abs=2e-3)
    assert run.curve("episode/return")[0].wall_time == pytest.approx(NOON + 101.0, abs=2e-3)


def test_figures_are_written_where_they_have_changed(run: Run) -> None:
    run.world.metrics.learners[0].applied = 1
    run.world.metrics.learners[0].loss = 0.5
    run.world.metrics.learners[0].updates = 10
    run.recorder.record()
    run.world.metrics.learners[0].updates = 20
    run.recorder.record()
    updates = run.scalars("learning/updates")
    assert [value for _, value in updates] == [10, 20]
    assert len(run.scalars("learning/loss")) == 1


def test_an_episode_carries_the_time_at_which_it_ended(run: Run) -> None:
    run.episode(600, 1.0)
    run.clock.advance(100.0)
    run.recorder.record()
    assert run.curve("episode/return")[0].wall_time == pytest.approx(NOON + 110.0)


def test_decisions_of_the_deadline_controller(run: Run) -> None:
    step = KINDS.index("step")
    for number, size in enumerate((32, 64)):
        run.world.horizon.add(
            Decision(
                time_ns=int((101 + number) * 1e9), kind=step, time_ratio=0.5, data_ratio=0.25,
                before=32, after=size,
            )
        )
    run.recorder.record()
    run.recorder.record()
    assert run.scalars("decision/batch_size") == [(60, 32), (120, 64)]
    assert run.scalars("decision/time_ratio") == [(60, 0.5), (120, 0.5)]


def test_a_decision_before_the_world_s_clock_starts_lies_at_its_newest_tick(run: Run) -> None:
    run.world.metrics.environment.anchor_ns = 0
    run.world.ledger.begin(-1, 0)
    run.world.horizon.add(Decision(time_ns=int(101e9), after=32))
    run.recorder.record()
    assert run.scalars("decision/batch_size") == [(0, 32)]


def test_only_known_numbers_are_scalars() -> None:
    figures = {"a": {"b": 1, "c": None, "d": {"e": 0.5}}, "f": "text", "g": True,
               "h": float("nan"), "i": [1, {"j": 2}], "k": [{"id": "robot-1", "share": 3}]}
    assert dict(scalars(figures)) == {"a/b": 1.0, "a/d/e": 0.5, "k/robot-1/share": 3.0}


def test_a_restarted_recorder_continues_after_a_line_that_was_cut_off(run: Run) -> None:
    run.episode(59, 1.0)
    run.recorder.record()
    with open(run.folder / "episodes.csv", "a") as file:
        file.write("119,60,2")
    run.episode(119, 2.0)
    run.clock.advance(1.0)
    run.start().record()
    assert [(row["tick"], row["return"]) for row in run.table] == [("59", "1.0"), ("119", "2.0")]


@pytest.mark.parametrize(("content", "tick", "left"), [
    (b"", -1, b""), (b"tick,le", -1, b""),
    (b"tick,length,return,seconds\n", -1, b"tick,length,return,seconds\n"),
    (b"tick\n5,1,1.0,1\n9,", 5, b"tick\n5,1,1.0,1\n"),
    (b"x" * 9000 + b"\n7,1\n", 7, b"x" * 9000 + b"\n7,1\n"),
])
def test_mending_the_table(tmp_path: Path, content: bytes, tick: int, left: bytes) -> None:
    path = tmp_path / "episodes.csv"
    assert repair_table(path) == -1
    path.write_bytes(content)
    assert repair_table(path) == tick
    assert path.read_bytes() == left


def test_the_oldest_episodes_are_removed_when_their_files_are_full(run: Run) -> None:
    run.recorder._table_bytes = 400
    ticks = [60 * number - 1 for number in range(1, 61)]
    for tick in ticks:
        run.episode(tick, 1.0)
        run.recorder.record()
    table = run.folder / "episodes.csv"
    files = [older(table), table]
    assert sorted(run.folder.glob("episodes.csv*")) == [table, older(table)]
    assert all(file.read_text().startswith(EPISODES_HEAD) for file in files)
    assert 200 < sum(file.stat().st_size for file in files) <= 400 + 2 * len(EPISODES_HEAD)
    kept = read_episodes(table).seconds
    assert list(kept) == pytest.approx([(tick + 1) / 60 for tick in ticks[-len(kept) :]], abs=0.1)
    # A restarted recorder continues after the last episode, even if the new file is not begun yet.
    table.rename(older(table))
    run.recorder = run.start()
    run.recorder.record()
    assert table.read_text() == EPISODES_HEAD


def test_what_cannot_be_written_is_reported_once_and_written_later(run: Run) -> None:
    run.folder.parent.mkdir(exist_ok=True)
    run.folder.write_text("a file where the folder should be")
    for tick in (59, 119):
        run.episode(tick, 1.0)
        run.recorder.record()
    assert [event["kind"] for event in run.events] == ["recording_failed"]
    assert run.events[0]["reason"]
    run.folder.unlink()
    run.recorder.record()
    assert [row["tick"] for row in run.table] == ["59", "119"]
    assert [step for step, _ in run.scalars("episode/return")] == [59, 119]
    run.folder.rename(run.folder.with_name("gone"))
    run.folder.write_text("again")
    run.episode(179, 1.0)
    run.recorder.record()
    assert len(run.events) == 2


def test_the_files_for_tensorboard_are_bounded(run: Run) -> None:
    run.recorder.sinks[0].most_bytes = 4000  # type: ignore[union-attr]
    for number in range(1, 201):
        run.world.metrics.learners[0].updates = number
        run.world.metrics.learners[0].applied = 1
        run.clock.advance(5.0)
        run.recorder.record()
    files = list((run.folder / "tensorboard").iterdir())
    assert len(files) in (3, 4)
    assert 2000 < sum(path.stat().st_size for path in files) < 5000
    updates = run.scalars("learning/updates")
    assert updates[-1][1] == 200
    assert 5 < len(updates) < 200


class Context:
    """What a worker gets, for so many beats; `each_beat` is called at each."""

    def __init__(self, run: Run, beats: int, each_beat: Callable[[], None] = lambda: None) -> None:
        self._each_beat = each_beat
        self.world, self.clock, self.run_dir = run.world, run.clock, run.folder
        self.event = run._event
        self.calls: list[str] = []
        self.beats = 0
        self._most = beats

    @property
    def stopping(self) -> bool:
        return self.beats >= self._most

    def set_idle_priority(self) -> None:
        self.calls.append("give way")

    def ready(self) -> None:
        self.calls.append("ready")

    def beat(self) -> None:
        self.beats += 1
        self._each_beat()


def test_the_loop_beats_often_and_records_seldom(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[float] = []
    clock = run.clock
    stub = SimpleNamespace(
        record=lambda: recorded.append(clock.now()),
        close=lambda: context.calls.append("close"), crowded=False,
    )
    monkeypatch.setattr(recorders, "Recorder", lambda *_, **__: stub)
    context = Context(run, beats=50)
    recorders.run(context)  # type: ignore[arg-type]
    assert context.calls == ["give way", "ready", "close"]
    assert np.diff(recorded)[:-1] == pytest.approx(PERIOD_S)
    assert len(recorded) == 4
    assert recorded[-1] == clock.now(), "what is new at the end is written too"
    assert clock.now() - 100.0 == pytest.approx(12.5)


def test_curves_after_a_sleep_of_the_machine_have_the_right_time_of_day(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept, walls = [100.0], list[float]()

    def start(*_: Any, wall_time: Callable[[], float], **__: Any) -> SimpleNamespace:
        def record() -> None:
            walls.append(wall_time() - run.clock.now())
            slept[0] += 3600.0

        return SimpleNamespace(record=record, close=lambda: None, crowded=True)

    monkeypatch.setattr(recorders, "suspended_s", lambda: slept[0])
    monkeypatch.setattr(recorders, "Recorder", start)
    recorders.run(Context(run, beats=1))  # type: ignore[arg-type]
    first, second = walls
    assert second - first == pytest.approx(3600.0)


def test_no_episode_is_left_out_in_a_fast_world_of_short_ones(run: Run) -> None:
    ticks = iter(range(5000))

    def finish() -> None:
        for tick in islice(ticks, 250):
            run.episode(tick, 1.0)

    recorders.run(Context(run, beats=20, each_beat=finish))  # type: ignore[arg-type]
    assert [int(row["tick"]) for row in run.table] == list(range(5000))
