"""New weights are prepared in pieces and adopted whole, however little time there is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.inference.weights import MOST_TORN, Weights
from rtagent.memory import array_buffer
from rtagent.memory.weights import BUFFERS, WeightBuffers, WeightsInfo
from tests.conftest import private

PARAMETERS = 1000
PIECE = 64
"""Values copied at a time in these tests."""
PIECES = 10
PIECE_S = 0.01


class FakeStandby:
    """Two networks that are arrays; filling a piece of one takes `PIECE_S`."""

    pieces = PIECES

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.acting, self.idle = np.zeros(PARAMETERS), np.zeros(PARAMETERS)
        self.filled: list[int] = []
        self.piece_s = PIECE_S

    def fill(self, piece: int, values: np.ndarray) -> None:
        part = slice(piece * PARAMETERS // PIECES, (piece + 1) * PARAMETERS // PIECES)
        self.idle[part] = values[part]
        self.filled.append(piece)
        self.clock.advance(self.piece_s)

    def swap(self) -> None:
        self.acting, self.idle = self.idle, self.acting


class Bench:
    """Weights of one process; the test publishes them in the learners' place."""

    def __init__(self) -> None:
        self.buffers = private(WeightBuffers, PARAMETERS)
        self.clock = VirtualClock()
        self.standby = FakeStandby(self.clock)
        self.weights = Weights(self.buffers, PARAMETERS, self.standby, self.clock)

    def publish(self, version: int) -> None:
        values = np.full(PARAMETERS, version, np.float32)
        self.buffers.publish(values, WeightsInfo(version, 10 * version))

    def prepare(self, seconds: float) -> None:
        self.weights.prepare(self.clock.now() + seconds)

    def acting(self) -> int:
        """The version that acts; all its values must be of this version."""
        assert set(self.standby.acting) == {float(max(0, self.weights.version))}
        assert self.weights.updates == 10 * max(0, self.weights.version)
        return self.weights.version


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(array_buffer, "PIECE_VALUES", PIECE)
    return Bench()


def test_nothing_is_published(bench: Bench) -> None:
    assert not bench.weights.pending
    bench.prepare(1.0)
    bench.weights.hurry(1.0)
    assert not bench.weights.take_over()
    assert bench.acting() == -1


def test_taken_over_at_once(bench: Bench) -> None:
    bench.publish(3)
    assert bench.weights.take_over()
    assert bench.acting() == 3
    assert bench.standby.filled == list(range(PIECES))
    # The same weights are not taken over again.
    assert bench.weights.take_over()
    assert len(bench.standby.filled) == PIECES


def test_prepared_within_the_time_there_is(bench: Bench) -> None:
    bench.publish(3)
    bench.prepare(4.5 * PIECE_S)
    assert 0.0 < bench.clock.now() <= 4.5 * PIECE_S
    bench.weights.adopt()
    assert bench.acting() == -1
    while bench.weights.pending:
        bench.prepare(2.5 * PIECE_S)
        assert bench.acting() == -1
    bench.weights.adopt()
    assert bench.acting() == 3
    assert bench.standby.filled == list(range(PIECES))


def test_a_newer_publication_waits_for_its_turn(bench: Bench) -> None:
    bench.publish(1)
    bench.prepare(5 * PIECE_S)
    for version in range(2, 9):
        bench.publish(version)
    bench.prepare(1.0)
    # Version 1 had been copied out of shared memory, so it acts before the newest one.
    bench.weights.adopt()
    assert bench.acting() == 1
    bench.prepare(1.0)
    bench.weights.adopt()
    assert bench.acting() == 8


def lap_during_copies(bench: Bench, monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """Let learners write over so many copies while they are made."""
    versions: list[int] = []
    copyto = np.copyto

    def lapped(out: np.ndarray, values: np.ndarray) -> None:
        copyto(out, values)
        if len(out) == PIECE and len(versions) < BUFFERS * times:
            monkeypatch.setattr(array_buffer.np, "copyto", copyto)
            for _ in range(BUFFERS):
                versions.append(100 + len(versions))
                bench.publish(versions[-1])
            monkeypatch.setattr(array_buffer.np, "copyto", lapped)

    monkeypatch.setattr(array_buffer.np, "copyto", lapped)
    return versions


@pytest.mark.parametrize("take", [Weights.take_over, lambda weights: weights.prepare(9.0)])
def test_a_copy_that_was_written_over_is_discarded_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, take: Callable[[Weights], object]
) -> None:
    bench.publish(1)
    versions = lap_during_copies(bench, monkeypatch, times=2)
    for _ in range(3):
        take(bench.weights)
    bench.weights.adopt()
    assert bench.acting() == versions[-1]
    # No torn copy reached the network.
    assert bench.standby.filled == list(range(PIECES))


def test_a_changed_value_is_found_by_the_checksum(bench: Bench) -> None:
    bench.publish(1)
    bench.weights.take_over()
    bench.publish(2)
    bench.buffers.copies[bench.buffers.current][0].view(np.uint32)[-1] ^= 1
    assert bench.weights.take_over()
    bench.prepare(1.0)
    bench.weights.hurry(1.0)
    assert bench.acting() == 1
    bench.publish(3)
    bench.weights.hurry(1.0)
    assert bench.acting() == 3


def test_without_idle_time_each_inference_prepares_a_bounded_part(bench: Bench) -> None:
    bench.publish(1)
    lengths = []
    while bench.weights.version < 1:
        before = bench.clock.now()
        bench.weights.hurry(2.5 * PIECE_S)
        bench.weights.adopt()
        lengths.append(bench.clock.now() - before)
    assert max(lengths) <= 3.5 * PIECE_S
    assert len(lengths) <= PIECES + PARAMETERS // PIECE
    assert bench.acting() == 1


def test_where_there_was_idle_time_nothing_is_done_on_the_way(bench: Bench) -> None:
    bench.publish(1)
    bench.weights.hurry(0.0)
    assert (bench.clock.now(), bench.standby.filled) == (0.0, [])


def test_a_piece_longer_than_any_wait_is_done_all_the_same(bench: Bench) -> None:
    bench.publish(1)
    bench.standby.piece_s = 50 * PIECE_S
    waits = 0
    while bench.weights.version < 1:
        bench.prepare(PIECE_S)
        bench.weights.adopt()
        waits += 1
    assert waits < 10 * PIECES
    assert bench.acting() == 1


def test_learners_that_are_faster_than_the_copies_do_not_starve_the_agent(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.publish(1)
    for torn in range(MOST_TORN):
        lap_during_copies(bench, monkeypatch, times=1)
        assert bench.weights.version == -1, torn
        # One piece in each wait, and the learners lap the copy in between.
        while bench.weights._reading is None:
            bench.weights._advance()
        while bench.weights._reading is not None:
            bench.weights._advance()
    assert bench.standby.filled == []
    monkeypatch.undo()
    bench.weights.hurry(0.0)
    info = bench.buffers.info()
    assert bench.acting() == info.version
