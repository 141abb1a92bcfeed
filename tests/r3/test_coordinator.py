"""Who may use how much memory: divided, kept, given up and taken back, on a virtual clock."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import MonotonicClock, VirtualClock
from rtagent.config_sources import parse_config
from rtagent.errors import UserError
from rtagent.memory.arena import Arena
from rtagent.memory.control import DesiredState
from rtagent.memory.horizon import HorizonRecord
from rtagent.memory.process_metrics import FinishedEpisode, ProcessMetrics
from rtagent.memory.usage import Level, memory_levels
from rtagent.r3.budget import AIM
from rtagent.r3.coordinator import Coordinator
from rtagent.r3.memory_usage import MemoryUsage, NotMeasured
from rtagent.r3.pressure import CALM_S
from rtagent.r3.publication import Changes
from tests.conftest import make_blueprint
from tests.desired import with_changes
from tests.forked import Forked, forked_children

MIB = 1 << 20
TICK_BYTES = 10_000
RESERVE_TICKS = 100
FIXED_BYTES = 20 * MIB
BASE_BYTES = 4 * MIB
WORKERS_BYTES = 200 * MIB
CALM = Level("machine", 8000 * MIB, 6000 * MIB)


class Rings:
    """The rings of a world that follow the limit, as `WorldMemory` keeps them."""

    bytes_per_tick = TICK_BYTES

    def __init__(self, capacity: int) -> None:
        self.capacity, self.ticks, self.limit = capacity, 0, capacity

    def pages(self) -> dict[str, int]:
        held = min(self.ticks, self.limit) + RESERVE_TICKS
        size = min(held, self.capacity) * TICK_BYTES
        return {"frames": size - size // 10, "ledger": size // 10, "weights": FIXED_BYTES}

    def ticks_in(self, size: int) -> int:
        ticks = size // TICK_BYTES
        return self.capacity if ticks >= self.capacity else ticks - RESERVE_TICKS


class FreeLock:
    def __init__(self) -> None:
        self.taken = False

    def try_enter(self) -> bool:
        return not self.taken

    def leave(self) -> None:
        pass


class Daemon:
    """Everything that the coordinator looks at, made by hand."""

    def __init__(
        self, capacity: int = 100_000, learners: int = 1, base_bytes: int = BASE_BYTES, **r3: Any
    ) -> None:
        self.config = parse_config(
            {"replay": {"capacity": capacity}, "learning": {"learning_starts": 500}, "r3": r3}
        )
        record = memoryview(bytearray(HorizonRecord.size()))
        self.horizon = HorizonRecord(record)
        self.metrics = ProcessMetrics(memoryview(bytearray(ProcessMetrics.size())))
        self.metrics.environment.ready = 1
        for record in (*self.metrics.inference[:2], *self.metrics.learners[:learners]):
            record.ready = 1
        self.lock = FreeLock()
        self.world = SimpleNamespace(
            metrics=self.metrics, horizon=self.horizon, blueprint=make_blueprint(),
            turns=SimpleNamespace(lock=self.lock),
        )
        self.desired = with_changes(
            DesiredState(self.config, 2, 2, list(range(learners))), learning={"processes": learners}
        )
        self.rings = Rings(capacity)
        self.clock = VirtualClock(1000.0)
        self.private = WORKERS_BYTES
        self.levels = [CALM]
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.coordinator = self.coordinate()
        self.rings.limit = self.coordinator.ticks_limit
        self.coordinator._keeper.note_base(base_bytes, 32)

    def coordinate(self) -> Coordinator:
        return Coordinator(
            self.rings, self.world, self.config, self.clock,  # type: ignore[arg-type]
            lambda kind, **details: self.events.append((kind, details)),
            lambda: [1], lambda: self.levels, lambda pids: self.private,
        )

    def run(self, seconds: float, ticks_per_s: int = 0, settled: bool = True) -> Changes | None:
        """Let it work ten times a second; the last change."""
        last = None
        for _ in range(round(10 * seconds)):
            self.clock.advance(0.1)
            self.rings.ticks += ticks_per_s // 10
            changes = self.coordinator.step(self.clock.now(), self.desired, settled=settled)
            if changes is not None:
                last = changes
                self.rings.limit = changes.ticks_limit
        return last

    def finish_episode(self, length: int, value: float) -> None:
        count = self.metrics.environment.episodes.count
        self.metrics.environment.episodes.append(FinishedEpisode(0, length, value, count))

    @property
    def used(self) -> int:
        """As measured from the outside."""
        return self.private + sum(self.rings.pages().values())

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [details for name, details in self.events if name == kind]


# ---- without a budget


def test_without_a_budget_nothing_is_limited() -> None:
    daemon = Daemon()
    assert daemon.run(20, ticks_per_s=10_000) is None
    assert daemon.coordinator.ticks_limit == 100_000
    shown = daemon.horizon.reservations
    assert shown.budget_bytes == -1
    assert shown.used_bytes == daemon.used
    assert shown.baseline_bytes == WORKERS_BYTES + FIXED_BYTES - BASE_BYTES


def test_nothing_is_measured_before_every_worker_is_ready() -> None:
    daemon = Daemon(memory_budget_mb=10)
    daemon.metrics.inference[1].ready = 0
    daemon.run(5)
    assert daemon.horizon.reservations.used_bytes == -1
    daemon.metrics.inference[1].ready = 1
    with pytest.raises(UserError):
        daemon.run(5)


def test_a_measurement_counts_if_every_worker_was_ready_all_along() -> None:
    daemon = Daemon()
    daemon.metrics.inference[1].ready = 0
    answers: list[int | None] = [None, None, 1, None, 2]
    usage = MemoryUsage(
        daemon.rings, daemon.world, lambda: [1], lambda pids: answers.pop(0),  # type: ignore[arg-type]
    )
    assert not usage.measure(0.0, daemon.desired)
    daemon.metrics.inference[1].ready = 1
    assert [usage.measure(now, daemon.desired) for now in (0.1, 0.2)] == [False, False]
    assert usage.total() == -1
    assert [usage.measure(now, daemon.desired) for now in (1.2, 1.3)] == [False, True]
    assert usage.total() == 2 + sum(daemon.rings.pages().values())


def test_what_a_larger_batch_had_is_no_baseline_until_it_was_given_back() -> None:
    daemon = Daemon()
    usage = daemon.coordinator._usage
    larger = with_changes(daemon.desired, learning={"batch_size": 64})
    assert usage.batches(larger) == usage.batches(daemon.desired) == 2 * BASE_BYTES
    usage.forget_largest_batch()
    assert usage.batches(daemon.desired) == BASE_BYTES


# ---- the budget


@pytest.mark.parametrize("budget_mb", [300, 500, 900])
def test_a_filling_replay_stops_within_the_budget(budget_mb: int) -> None:
    daemon = Daemon(memory_budget_mb=budget_mb)
    for _ in range(120):
        daemon.run(1, ticks_per_s=1000)
        assert daemon.used <= 1.02 * budget_mb * MIB
    assert daemon.used > 0.98 * budget_mb * MIB - 4 * BASE_BYTES


def test_memory_that_the_workers_take_is_taken_from_the_replay_at_once() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(120, ticks_per_s=1000)
    before = daemon.coordinator.ticks_limit
    daemon.private += 100 * MIB
    daemon.run(3)
    assert daemon.used <= 1.02 * 600 * MIB
    assert daemon.coordinator.ticks_limit < before - 90 * MIB // TICK_BYTES
    daemon.private -= 100 * MIB
    daemon.run(3)
    slowly = daemon.coordinator.ticks_limit
    assert before - 100 * MIB // TICK_BYTES < slowly < 0.85 * before
    daemon.run(60)
    assert daemon.coordinator.ticks_limit == pytest.approx(before, rel=0.01)


def test_the_reservations_are_what_the_processes_leave_and_start_with_their_share() -> None:
    daemon = Daemon(memory_budget_mb=600, batch_share=0.3, base_bytes=50 * MIB)
    daemon.run(1)
    shown = daemon.horizon.reservations
    left = AIM * 600 * MIB - (WORKERS_BYTES + FIXED_BYTES - 50 * MIB)
    assert shown.batch_bytes + shown.replay_bytes == pytest.approx(left, abs=2)
    assert shown.batch_bytes == pytest.approx(0.3 * left, abs=2)


def test_batches_are_reserved_no_more_than_the_largest_can_use() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    assert daemon.horizon.reservations.batch_bytes == 4 * BASE_BYTES


def test_every_learner_gets_its_part_of_the_batches_memory() -> None:
    daemon = Daemon(memory_budget_mb=600, learners=3)
    changes = daemon.run(1)
    assert changes is not None
    assert changes.batch_bytes == daemon.horizon.reservations.batch_bytes // 3
    daemon.desired = with_changes(
        daemon.desired, batch_bytes=changes.batch_bytes, r3={"mode": "max-p"}
    )
    assert daemon.coordinator._keeper.batch_size(daemon.desired) == 32
    daemon.desired = with_changes(daemon.desired, r3={"deadline_s": 1.0, "data_budget": 1000})
    assert daemon.coordinator._keeper.batch_size(daemon.desired) == 128


def test_batches_of_the_smallest_size_are_kept_while_the_workers_grow() -> None:
    daemon = Daemon(
        base_bytes=16 * MIB, mode="step", deadline_s=5.0, data_budget=10_000, memory_budget_mb=275
    )
    for _ in range(60):
        daemon.private += MIB // 4
        changes = daemon.run(1, ticks_per_s=50)
        if changes is not None:
            daemon.desired = replace(daemon.desired, batch_bytes=changes.batch_bytes)
        daemon.coordinator._keeper.advance(
            int(daemon.clock.now() * 1e9), 32, 1, daemon.metrics.environment, daemon.desired
        )
    assert daemon.coordinator._keeper.batch_size(daemon.desired) >= 32
    assert daemon.used <= 275 * MIB


def test_a_new_batch_size_is_given_its_memory_at_once() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    daemon.desired = with_changes(daemon.desired, learning={"batch_size": 64})
    changes = daemon.run(0.1)
    assert changes is not None
    assert changes.batch_bytes == 8 * BASE_BYTES


def test_a_long_bad_episode_moves_memory_as_equation_5_says() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=50 * MIB)
    daemon.run(1)
    before = daemon.horizon.reservations
    daemon.finish_episode(60, 10.0)
    daemon.run(0.1)
    daemon.finish_episode(180, 5.0)
    daemon.run(0.1)
    after = daemon.horizon.reservations
    assert (after.alpha, after.beta) == (pytest.approx(3.0), pytest.approx(0.5))
    batch = before.batch_bytes * (1 + 2.0 * 0.5)
    replay = before.replay_bytes * (1 + 1.0 * 0.5)
    total = before.batch_bytes + before.replay_bytes
    assert after.batch_bytes == pytest.approx(total * batch / (batch + replay), rel=1e-3)
    assert after.batch_bytes + after.replay_bytes == pytest.approx(total, rel=1e-3)


def test_alpha_and_beta_move_memory_where_there_is_plenty_of_it() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=10 * MIB)
    changes = daemon.run(1)
    assert changes is not None
    assert changes.batch_bytes == 40 * MIB
    before = daemon.horizon.reservations
    total = before.batch_bytes + before.replay_bytes
    daemon.finish_episode(60, 10.0)
    daemon.run(0.1)
    daemon.finish_episode(60, 5.0)
    changes = daemon.run(0.1)
    replay = 1.5 * before.replay_bytes
    expected = total * before.batch_bytes / (before.batch_bytes + replay)
    assert changes is not None
    assert changes.batch_bytes == pytest.approx(expected, rel=1e-3)
    daemon.finish_episode(600, 5.0)
    changes = daemon.run(0.1)
    assert changes is not None
    assert changes.batch_bytes == 40 * MIB


def test_the_division_returns_to_the_configured_one() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=10 * MIB)
    daemon.run(1)
    for value in (10.0, 5.0, 2.0):
        daemon.finish_episode(60, value)
        daemon.run(0.1)
    assert daemon.horizon.reservations.batch_bytes < 25 * MIB
    for _ in range(24):
        daemon.finish_episode(60, 2.0)
        daemon.run(0.1)
    assert daemon.horizon.reservations.batch_bytes == pytest.approx(40 * MIB, rel=0.01)


def test_bad_episodes_leave_the_batches_what_the_smallest_needs() -> None:
    daemon = Daemon(memory_budget_mb=600, base_bytes=50 * MIB)
    daemon.run(1)
    shares = []
    for number in range(400):
        daemon.finish_episode(60, -(1.5 ** min(number, 200)))
        daemon.run(0.1)
        shares.append(daemon.horizon.reservations.batch_bytes / MIB)
    assert min(shares) == pytest.approx(50, abs=0.01)


def test_a_return_that_is_no_number_changes_nothing() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(1)
    before = daemon.horizon.reservations
    daemon.finish_episode(60, float("nan"))
    daemon.run(0.1)
    daemon.finish_episode(60, 1.0)
    daemon.run(0.1)
    after = daemon.horizon.reservations
    assert (after.alpha, after.beta) == (1.0, 1.0)
    assert after.replay_bytes == before.replay_bytes


def test_a_budget_below_what_the_workers_need_is_refused_with_the_figures() -> None:
    daemon = Daemon(memory_budget_mb=220)
    with pytest.raises(UserError, match=r"r3.memory_budget_mb = 220 is too little.*216.0 MiB") as e:
        daemon.run(2)
    least = int(str(e.value).rpartition("give it ")[2].split()[0])
    enough = Daemon(memory_budget_mb=least)
    enough.run(60, ticks_per_s=1000)
    assert enough.used <= 1.02 * least * MIB
    with pytest.raises(UserError):
        Daemon(memory_budget_mb=least - 2).run(2)


def test_a_budget_is_changed_while_running_and_refused_whole() -> None:
    daemon = Daemon()
    daemon.run(100, ticks_per_s=1000)
    assert daemon.used > 900 * MIB
    with pytest.raises(UserError):
        daemon.coordinator.set_budget(100, daemon.desired)
    assert daemon.run(2) is None
    daemon.coordinator.set_budget(500, daemon.desired)
    daemon.run(2)
    assert daemon.used <= 500 * MIB
    daemon.coordinator.set_budget(None, daemon.desired)
    changes = daemon.run(1)
    assert changes == Changes(None, 100_000)


def test_workers_that_outgrow_an_accepted_budget_are_reported_once() -> None:
    daemon = Daemon(memory_budget_mb=400)
    daemon.run(30, ticks_per_s=1000)
    daemon.private += 400 * MIB
    daemon.run(10)
    assert len(daemon.told("memory_budget_exceeded")) == 1
    assert daemon.coordinator.ticks_limit == 1000


def test_a_division_is_told_with_its_inputs_when_it_has_really_changed() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(30, ticks_per_s=100)
    assert len(daemon.told("memory_division")) == 1
    daemon.private += 50 * MIB
    daemon.run(5)
    first, second = daemon.told("memory_division")[:2]
    assert second["baseline_bytes"] - first["baseline_bytes"] == 50 * MIB
    assert second["ticks_limit"] < first["ticks_limit"]


def test_it_measures_once_a_second_and_goes_on_while_it_waits_for_the_figure() -> None:
    daemon = Daemon(memory_budget_mb=600)
    asked: list[float] = []

    def later(pids: object) -> int | None:
        asked.append(daemon.clock.now())
        return WORKERS_BYTES if len(asked) % 4 == 0 else None

    daemon.coordinator._usage._measure_private = later
    daemon.run(0.3)
    assert daemon.told("memory_division") == []
    with pytest.raises(NotMeasured):
        daemon.coordinator.set_budget(700, daemon.desired)
    daemon.run(60)
    assert daemon.told("memory_division")
    answered = asked[3::4]
    assert np.diff(answered) == pytest.approx([1.3] * (len(answered) - 1), abs=0.11)


# ---- shortage


def test_pressure_halves_both_reservations_and_they_come_back_slowly() -> None:
    daemon = Daemon()
    daemon.run(50, ticks_per_s=1000)
    daemon.levels = [CALM, Level("group", 1024 * MIB, 10 * MIB)]
    held = sum(daemon.rings.pages().values()) - FIXED_BYTES
    changes = daemon.run(0.1)
    assert changes is not None
    assert changes.urgent
    assert changes.batch_bytes == BASE_BYTES // 2
    assert changes.ticks_limit == pytest.approx(held / 2 / TICK_BYTES, abs=RESERVE_TICKS + 1)
    (told,) = daemon.told("memory_pressure")
    assert (told["where"], told["available_bytes"]) == ("group", 10 * MIB)
    daemon.levels = [CALM]
    assert daemon.run(CALM_S - 1) is None
    daemon.run(10)
    grown = daemon.coordinator.ticks_limit
    assert changes.ticks_limit < grown < 1.5 * changes.ticks_limit
    daemon.run(120)
    assert daemon.coordinator.ticks_limit == 100_000
    assert len(daemon.told("memory_recovered")) == 1
    assert daemon.horizon.reservations.pressure_events == 1


def test_lasting_pressure_halves_again_down_to_what_learning_needs() -> None:
    daemon = Daemon()
    daemon.run(50, ticks_per_s=1000)
    daemon.levels = [Level("machine", 8000 * MIB, 1 * MIB)]
    daemon.run(30)
    assert daemon.coordinator.ticks_limit == 1000
    assert 4 <= daemon.horizon.reservations.pressure_events <= 40
    events = len(daemon.events)
    daemon.run(30)
    assert daemon.coordinator.ticks_limit == 1000
    assert len(daemon.events) <= events + 40


def test_a_halving_that_is_still_being_carried_out_is_given_time() -> None:
    daemon = Daemon()
    daemon.run(50, ticks_per_s=1000)
    daemon.levels = [Level("machine", 8000 * MIB, 1 * MIB)]
    daemon.run(1.5, settled=False)
    assert daemon.horizon.reservations.pressure_events == 1


def test_a_stalled_group_counts_as_short_although_bytes_are_left() -> None:
    daemon = Daemon()
    daemon.run(20, ticks_per_s=1000)
    daemon.levels = [Level("group", 1024 * MIB, 900 * MIB, stalled_percent=40.0)]
    daemon.run(0.1)
    assert daemon.told("memory_pressure")[0]["stalled_percent"] == 40.0


@pytest.mark.parametrize("r3", [{}, {"memory_budget_mb": 600}])
def test_a_batch_that_did_not_fit_halves_both_reservations(r3: dict[str, Any]) -> None:
    daemon = Daemon(**r3)
    daemon.run(60, ticks_per_s=500)
    before = daemon.coordinator.ticks_limit
    held = min(before, daemon.rings.ticks)
    daemon.metrics.learners[0].out_of_memory += 1
    changes = daemon.run(0.1)
    assert changes is not None
    assert changes.ticks_limit <= 0.52 * held + RESERVE_TICKS
    assert changes.batch_bytes == BASE_BYTES // 2
    assert len(daemon.told("out_of_memory")) == 1
    daemon.run(3)
    assert len(daemon.told("out_of_memory")) == 1


def test_a_budget_is_still_honoured_after_a_shortage() -> None:
    daemon = Daemon(memory_budget_mb=600)
    daemon.run(60, ticks_per_s=1000)
    daemon.levels = [Level("machine", 8000 * MIB, 1 * MIB)]
    daemon.run(1)
    daemon.levels = [CALM]
    for _ in range(200):
        daemon.run(1, ticks_per_s=1000)
        assert daemon.used <= 1.02 * 600 * MIB
    assert daemon.used > 0.9 * 600 * MIB


# ---- the horizon


def test_a_deadline_that_passes_while_nobody_learns_is_told() -> None:
    daemon = Daemon(mode="step", deadline_s=5.0, data_budget=1000)
    daemon.coordinator._keeper.advance(
        int(daemon.clock.now() * 1e9), 32, 1, daemon.metrics.environment, daemon.desired
    )
    daemon.run(5.5)
    (told,) = daemon.told("horizon")
    assert (told["outcome"], told["horizon"], told["consumed"]) == ("missed", 0, 32)
    assert daemon.horizon.read().missed == 1


def test_a_lock_that_is_taken_is_left_alone() -> None:
    daemon = Daemon(mode="step", deadline_s=5.0, data_budget=1000)
    daemon.lock.taken = True
    daemon.run(10)
    assert daemon.horizon.read().seen_ns == 0


# ---- a control group that really fills up

LIMIT = 320 * MIB
REPLAY = 150 * MIB
HOG = 200 * MIB
GROUPS = Path("/sys/fs/cgroup")


@pytest.fixture
def group() -> Iterator[Path]:
    """A memory control group with a limit, if this machine permits one."""
    version_1 = (GROUPS / "memory").is_dir()
    folder = (GROUPS / "memory" if version_1 else GROUPS) / f"rtagent-test-{os.getpid()}"
    try:
        folder.mkdir()
        name = "memory.limit_in_bytes" if version_1 else "memory.max"
        (folder / name).write_text(str(LIMIT))
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no control group can be made here: {error}")
    yield folder
    for _ in range(100):
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)


class RealRings:
    """A replay in real shared memory, punched down to the limit."""

    bytes_per_tick = TICK_BYTES

    def __init__(self) -> None:
        self.arena = Arena("replay", REPLAY)

    def pages(self) -> dict[str, int]:
        return {"frames": self.arena.held, "ledger": 0}

    def ticks_in(self, size: int) -> int:
        return size // TICK_BYTES


def play(acts: bool, report: int) -> None:
    """A daemon with nothing but a replay and its coordinator; its pressure events, as a byte."""
    daemon, rings = Daemon(capacity=REPLAY // TICK_BYTES), RealRings()
    daemon.rings, daemon.clock = rings, MonotonicClock()  # type: ignore[assignment]
    coordinator = daemon.coordinate()
    coordinator._pressure._levels = memory_levels
    os.write(report, b"r")
    # Twice as long as the other program takes.
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        time.sleep(0.05)
        changes = coordinator.step(daemon.clock.now(), daemon.desired) if acts else None
        if changes is not None:
            rings.arena.punch(changes.ticks_limit * TICK_BYTES, rings.arena.size)
    os.write(report, bytes([daemon.horizon.reservations.pressure_events]))


def hog(ready: int) -> None:
    """Take memory a piece at a time, as another program would, and keep it."""
    pieces = []
    select.select([ready], [], [])
    for _ in range(HOG // (4 * MIB)):
        pieces.append(np.ones(4 * MIB, np.uint8))
        time.sleep(0.05)
    signal.pause()


@pytest.mark.process
@pytest.mark.alone
@pytest.mark.parametrize("acts", [True, False])
def test_memory_is_given_up_before_the_kernel_kills(group: Path, acts: bool) -> None:
    """With the coordinator both programs live; without it the kernel ends one of them."""
    start, started = os.pipe()
    result, report = os.pipe()

    def inside(body: Callable[..., None], *arguments: Any) -> Callable[[], None]:
        def run() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            body(*arguments)

        return run

    with forked_children() as children:
        daemon = children.start(inside(play, acts, report))
        assert os.read(result, 1) == b"r"
        other = children.start(inside(hog, start))
        os.write(started, b"g")
        codes = end_both(children, daemon, other)
    for descriptor in (start, started, report):
        os.close(descriptor)
    events = os.read(result, 1)
    os.close(result)
    if acts:
        assert codes == (0, None)
        assert events[0] >= 1
    else:
        assert -signal.SIGKILL in codes


def end_both(children: Forked, daemon: int, other: int) -> tuple[int, int | None]:
    """Exit code of the daemon after its time, and of the other if it did not live till then."""
    code = children.wait(daemon)
    pid, status = os.waitpid(other, os.WNOHANG)
    return code, os.waitstatus_to_exitcode(status) if pid else None
