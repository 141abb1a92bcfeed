"""Memory that is short: given up in time and taken back, also in a control group that fills up."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rtagent.clock import MonotonicClock
from rtagent.memory.arena import Arena
from rtagent.memory.horizon import Horizon
from rtagent.memory.usage import Level, memory_levels
from rtagent.r3.pressure import CALM_S
from tests.forked import Forked, forked_children
from tests.r3.coordinated import (
    BASE_BYTES,
    CALM,
    FIXED_BYTES,
    MIB,
    RESERVE_TICKS,
    TICK_BYTES,
    Daemon,
)

# ---- shortage


def test_pressure_halves_both_reservations_and_they_come_back_slowly() -> None:
    daemon = Daemon()
    daemon.run(50, ticks_per_s=1000)
    daemon.levels = [CALM, Level("group", 1024 * MIB, 10 * MIB)]
    held = sum(daemon.rings.pages().values()) - FIXED_BYTES
    changes = daemon.run(0.1)
    assert changes.urgent
    assert changes.batch_bytes == BASE_BYTES // 2
    assert changes.ticks_limit == pytest.approx(held / 2 / TICK_BYTES, abs=RESERVE_TICKS + 1)
    (told,) = daemon.events_of("memory_pressure")
    assert (told["where"], told["available_bytes"]) == ("group", 10 * MIB)
    daemon.levels = [CALM]
    assert daemon.run(CALM_S - 1) is None
    daemon.run(10)
    grown = daemon.coordinator.ticks_limit
    assert changes.ticks_limit < grown < 1.5 * changes.ticks_limit
    daemon.run(120)
    assert daemon.coordinator.ticks_limit == 100_000
    assert len(daemon.events_of("memory_recovered")) == 1
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
    assert daemon.events_of("memory_pressure")[0]["stalled_percent"] == 40.0


@pytest.mark.parametrize("r3", [{}, {"memory_budget_mb": 600}])
def test_a_batch_that_did_not_fit_halves_both_reservations(r3: dict[str, Any]) -> None:
    daemon = Daemon(**r3)
    daemon.run(60, ticks_per_s=500)
    before = daemon.coordinator.ticks_limit
    held = min(before, daemon.rings.ticks)
    # As the learner does whose batch did not fit.
    daemon.coordinator._keeper.note_out_of_memory(int(daemon.clock.now() * 1e9), 32)
    daemon.metrics.learners[0].out_of_memory += 1
    changes = daemon.run(0.1)
    assert changes.ticks_limit <= 0.52 * held + RESERVE_TICKS
    assert changes.batch_bytes == BASE_BYTES // 2
    assert len(daemon.events_of("out_of_memory")) == 1
    daemon.run(3)
    assert len(daemon.events_of("out_of_memory")) == 1


def test_a_shortage_before_a_batch_was_measured_leaves_the_batches_their_size() -> None:
    daemon = Daemon()
    measured = daemon.horizon.read()
    daemon.horizon.write(Horizon())
    daemon.run(50, ticks_per_s=1000)
    daemon.levels = [Level("machine", 8000 * MIB, 1 * MIB)]
    daemon.run(0.1)
    daemon.levels = [CALM]
    daemon.horizon.write(measured)
    changes = daemon.run(CALM_S / 2)
    desired = replace(daemon.desired, batch_bytes=changes.batch_bytes)
    assert daemon.coordinator._keeper.batch_size(desired) == 32


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


def play(acts: bool, report: int, full: int, filled: int, turns: int) -> None:
    """A daemon with nothing but a replay and its coordinator; its pressure events, as a byte.

    It goes on until the other program has what it wants, or has been ended. That takes a piece in
    each turn, so that it does not matter who is held up.
    """
    os.close(filled)
    daemon, rings = Daemon(capacity=REPLAY // TICK_BYTES), RealRings()
    daemon.rings, daemon.clock = rings, MonotonicClock()  # type: ignore[assignment]
    coordinator = daemon.coordinate()
    coordinator._pressure._levels = memory_levels
    os.write(report, b"r")
    while not select.select([full], [], [], 0.05)[0]:
        changes = coordinator.step(daemon.clock.now(), daemon.desired) if acts else None
        if changes is not None:
            rings.arena.punch(changes.ticks_limit * TICK_BYTES, rings.arena.size)
        os.write(turns, b"t")
    os.write(report, bytes([daemon.horizon.reservations.pressure_events]))


def hog(turns: int, full: int) -> None:
    """Take memory a piece at a time, as another program would, and keep it."""
    pieces = []
    for _ in range(HOG // (4 * MIB)):
        assert os.read(turns, 1)
        pieces.append(np.ones(4 * MIB, np.uint8))
    os.write(full, b"f")
    signal.pause()


@pytest.mark.process
@pytest.mark.alone
@pytest.mark.parametrize("acts", [True, False])
def test_memory_is_given_up_before_the_kernel_kills(group: Path, acts: bool) -> None:
    """With the coordinator both programs live; without it the kernel ends one of them."""
    start, started = os.pipe()
    result, report = os.pipe()
    full, filled = os.pipe()

    def inside(body: Callable[..., None], *arguments: Any) -> Callable[[], None]:
        def run() -> None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            body(*arguments)

        return run

    with forked_children() as children:
        daemon = children.start(inside(play, acts, report, full, filled, started))
        # If it ends before it has said something, this reads nothing, and does not wait for ever.
        os.close(report)
        assert os.read(result, 1) == b"r"
        other = children.start(inside(hog, start, filled))
        os.close(filled)
        codes = end_both(children, daemon, other)
    for descriptor in (start, started, full):
        os.close(descriptor)
    events = os.read(result, 1)
    os.close(result)
    if acts:
        assert codes == (0, None)
        assert events[0] >= 1
    else:
        assert -signal.SIGKILL in codes


def end_both(children: Forked, daemon: int, other: int) -> tuple[int, int | None]:
    """Exit code of the daemon at its end, and of the other if it did not live till then."""
    code = children.wait(daemon)
    pid, status = os.waitpid(other, os.WNOHANG)
    return code, os.waitstatus_to_exitcode(status) if pid else None
