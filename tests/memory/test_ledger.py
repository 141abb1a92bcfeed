"""The tick ledger: every row as it was written, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.memory.blueprint import Blueprint
from rtagent.memory.ledger import TERMINATED, TRUNCATED, Ledger, checksum
from rtagent.memory.ring import CONTROL_BYTES, GUARD_TICKS
from rtagent.staggering.arbiter import Source
from tests.conftest import make_blueprint
from tests.memory.structures import RING_CODES

CAPACITY = 32
LARGEST = 2**62
Images = Callable[..., list[bytes]]
Shared = Callable[[int], memoryview]


def values(tick: int, **changes: Any) -> dict[str, Any]:
    """A row whose every field tells its tick."""
    return {
        "observed": tick - 3,
        "time_ns": 10**15 + tick,
        "registered_ns": 10**14 + tick,
        "lateness_ns": -tick,
        "reward": tick / 4,
        "weights_version": tick + 1,
        "episode": tick // 10,
        "worker": tick % 256,
        "source": Source(tick % 3),
        "flags": 0,
        "log_probability": -tick / 8,
        "position": tick % 5,
        "action": tick % 3,
    } | changes


@pytest.fixture
def memory(shared: Shared, blueprint: Blueprint) -> memoryview:
    found = shared(Ledger.size(blueprint, CAPACITY))
    Ledger.format(found)
    return found


@pytest.fixture
def ledger(memory: memoryview, blueprint: Blueprint) -> Ledger:
    return Ledger(memory, blueprint, CAPACITY)


def fill(ledger: Ledger, ticks: int) -> None:
    for tick in range(ticks):
        ledger.write(tick, **values(tick))


def test_round_trip_of_every_field(ledger: Ledger) -> None:
    written = values(
        5, lateness_ns=-LARGEST, time_ns=LARGEST, registered_ns=LARGEST - 1, reward=-0.5,
        weights_version=-1, worker=255, flags=TERMINATED | TRUNCATED, source=Source.REUSED,
        action=-(2**31),
    )
    ledger.write(5, **written)
    row = ledger.row(5)
    assert {name: row[name].item() for name in written} == written
    assert row["tick"] == 5
    assert set(written) | {"tick", "crc"} == set(ledger.dtype.names)


def test_round_trip_of_a_vector() -> None:
    blueprint = make_blueprint(action_shape=(3,), action_dtype="float32")
    ledger = Ledger.private(blueprint, CAPACITY)
    for tick in range(CAPACITY + 3):
        ledger.write(tick, **values(tick, action=np.array([tick, 0.25, -1.0])))
    rows = ledger.read(0, CAPACITY + 3)
    assert rows["action"][:, 0].tolist() == rows["tick"].tolist()
    assert all(checksum(row) == row["crc"] for row in rows)


@pytest.mark.parametrize("action", [2, np.int32(2), np.int64(2), np.array(2)])
def test_whole_numbers_of_every_kind(ledger: Ledger, action: Any) -> None:
    ledger.write(4, **values(4, action=action))
    row = ledger.row(4)
    assert row["action"] == 2
    assert checksum(row) == row["crc"]


def test_empty_ledger_has_nothing(ledger: Ledger) -> None:
    assert ledger.newest == -1
    assert ledger.oldest == 0
    assert ledger.row(-1) is ledger.row(0) is None
    assert len(ledger.read(0, 100)) == 0
    _, whole = ledger.at(np.array([0, 1, 2]))
    assert not whole.any()
    ledger.truncate_episode()
    assert ledger.newest == -1


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (70, 76, range(70, 76)),
        (60, 70, range(60, 70)),
        (0, 1000, range(45, 77)),
        (-5, 50, range(45, 50)),
        (76, 90, range(76, 77)),
        (77, 90, range(0)),
        (50, 50, range(0)),
        (60, 50, range(0)),
        (0, 45, range(0)),
    ],
)
def test_ranges_over_the_seam(ledger: Ledger, start: int, stop: int, expected: range) -> None:
    fill(ledger, 77)
    rows = ledger.read(start, stop)
    assert rows["tick"].tolist() == list(expected)
    assert rows["time_ns"].tolist() == [10**15 + tick for tick in expected]
    assert ledger.oldest == 76 - CAPACITY + 1 + GUARD_TICKS


def test_rows_of_given_ticks(ledger: Ledger) -> None:
    fill(ledger, 40)
    rows, whole = ledger.at(np.array([39, 7, 8, 39, 40]))
    assert whole.tolist() == [True, False, True, True, False]
    assert rows["observed"][whole].tolist() == [36, 5, 36]


@pytest.mark.usefixtures("either_way")
def test_a_row_whose_body_is_another_is_not_believed(
    memory: memoryview, blueprint: Blueprint
) -> None:
    ledger = Ledger(memory, blueprint, CAPACITY)
    fill(ledger, 9)
    size = ledger.dtype.itemsize
    row = CONTROL_BYTES + 5 * size
    for at in range(8, size):
        memory[row + at] ^= 0x10
        assert ledger.row(5) is None, at
        assert ledger.read(3, 8)["tick"].tolist() == [3, 4, 6, 7], at
        _, whole = ledger.at(np.array([4, 5, 6]))
        assert whole.tolist() == [True, False, True], at
        memory[row + at] ^= 0x10
    # The body of another tick, whole in itself.
    memory[row + 8 : row + size] = bytes(memory[row - size + 8 : row])
    assert ledger.row(5) is None
    assert ledger.row(4) is not None


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("shape", "dtype"), [((), "int32"), ((3,), "float32"), ((1,), "float32")])
def test_both_ways_to_look_at_checksums_agree(shape: tuple[int, ...], dtype: str) -> None:
    ledger = Ledger.private(make_blueprint(action_shape=shape, action_dtype=dtype), CAPACITY)
    rng = np.random.default_rng(5)
    for tick in range(2**32 - 10, 2**32 + 10):
        row = values(tick, episode=7, weights_version=3, action=np.ones(shape, dtype))
        ledger.write(tick, **row)
    rows = ledger.read(2**32 - 10, 2**32 + 10)
    assert len(rows) == 20
    raw = rows.view(np.uint8).reshape(20, -1)
    raw[rng.integers(0, 20, 8), rng.integers(8, raw.shape[1], 8)] ^= 1
    assert ledger._intact(rows).tolist() == [checksum(row) == row["crc"] for row in rows]
    assert not ledger._intact(rows).all()
    assert len(ledger._intact(rows[:0].copy())) == 0


def test_the_stamp_and_the_first_field_of_another_row_are_not_believed(
    memory: memoryview, blueprint: Blueprint
) -> None:
    """A CRC32 that begins with the stamp as its seed cancels it against the field behind it."""
    ledger = Ledger(memory, blueprint, CAPACITY)
    fill(ledger, CAPACITY)
    tick = CAPACITY + 5
    ledger.write(tick, **values(tick, observed=tick ^ 5 ^ 2))
    start = CONTROL_BYTES + 5 * ledger.dtype.itemsize
    newer = bytes(memory[start : start + 16])
    ledger.write(5, **values(5, observed=2))
    memory[start : start + 16] = newer
    ledger.begin(tick, 0)
    assert ledger.row(tick) is None


def test_copies_do_not_change(ledger: Ledger) -> None:
    fill(ledger, 3)
    row, rows = ledger.row(2), ledger.read(0, 3)
    ledger.write(2 + CAPACITY, **values(2 + CAPACITY))
    assert row["tick"] == rows["tick"][2] == 2


def test_writer_killed_anywhere(memory: memoryview, blueprint: Blueprint, images: Images) -> None:
    ledger = Ledger(memory, blueprint, CAPACITY)
    fill(ledger, CAPACITY)
    next_row = values(CAPACITY)
    left = images(
        memory, lambda: ledger.write(CAPACITY, **next_row), Ledger.write.__code__, *RING_CODES
    )
    lengths = set()
    for image in left:
        memory[:] = image
        reader = Ledger(memory, blueprint, CAPACITY)
        rows = reader.read(0, CAPACITY + 1)
        lengths.add(len(rows))
        assert all(checksum(row) == row["crc"] for row in rows)
        assert rows["tick"].tolist() in (
            [*range(CAPACITY)], [*range(1, CAPACITY)], [*range(1, CAPACITY + 1)]
        )
        some, whole = reader.at(np.array([0, CAPACITY]))
        assert all(checksum(row) == row["crc"] for row in some[whole])
        # A restarted writer goes on from here.
        reader.truncate_episode()
        assert reader.read(0, CAPACITY + 1)["flags"][-1] == TRUNCATED
        reader.write(reader.newest + 1, **values(reader.newest + 1))
        assert reader.row(reader.newest) is not None
    assert lengths == {CAPACITY - 1, CAPACITY}


def test_below_the_floor_there_is_nothing(ledger: Ledger) -> None:
    fill(ledger, 77)
    ledger.raise_floor(60)
    assert (ledger.floor, ledger.oldest) == (60, 60)
    assert ledger.read(0, 100)["tick"].tolist() == list(range(60, 77))
    assert len(ledger.read(50, 60)) == 0
    assert ledger.row(59) is None
    assert ledger.row(60) is not None
    _, whole = ledger.at(np.array([59, 60, 76, 77, 46]))
    assert whole.tolist() == [False, True, True, False, False]


def test_row_zero_below_the_floor(ledger: Ledger) -> None:
    """Returned memory reads as zero, and so does the stamp of tick 0."""
    fill(ledger, 10)
    ledger.raise_floor(4)
    ledger._rows["tick"][:4] = 0
    assert ledger.row(0) is None
    _, whole = ledger.at(np.array([0, 4]))
    assert whole.tolist() == [False, True]


def test_floor_raised_during_the_copy(ledger: Ledger, overtaken: Any) -> None:
    fill(ledger, CAPACITY)
    rows = ledger._rows
    ledger._rows = overtaken(rows, lambda: ledger.raise_floor(2))
    assert ledger.read(0, 5)["tick"].tolist() == [2, 3, 4]
    ledger._rows = overtaken(rows, lambda: ledger.raise_floor(8))
    _, whole = ledger.at(np.array([7, 8]))
    assert whole.tolist() == [False, True]


def test_begins_with_restored_rows(ledger: Ledger) -> None:
    fill(ledger, CAPACITY)
    ledger.begin(20, 5)
    assert ledger.read(0, CAPACITY)["tick"].tolist() == list(range(5, 21))
    ledger.truncate_episode()
    assert ledger.read(20, 21)["flags"].tolist() == [TRUNCATED]
    ledger.write(21, **values(21))
    assert (ledger.newest, ledger.oldest) == (21, 5)


def test_row_overwritten_during_the_copy(ledger: Ledger, overtaken: Any) -> None:
    fill(ledger, CAPACITY)
    tick = CAPACITY + 1
    ledger._rows = overtaken(ledger._rows, lambda: ledger.write(tick, **values(tick)))
    assert ledger.read(0, 3)["tick"].tolist() == [0, 2]


def test_lost_predecessor_is_a_truncation(ledger: Ledger) -> None:
    fill(ledger, 6)
    before = ledger.read(0, 6)
    ledger.truncate_episode()
    after = ledger.read(0, 6)
    assert after["flags"].tolist() == [0] * 5 + [TRUNCATED]
    for name in set(ledger.dtype.names) - {"flags", "crc"}:
        assert after[name].tolist() == before[name].tolist()
    assert checksum(after[-1]) == after[-1]["crc"]


def test_episodes_beyond_31_bits_are_no_error(ledger: Ledger) -> None:
    for tick in range(3):
        ledger.write(tick, **values(tick, episode=2**31 - 2 + tick))
    assert ledger.read(0, 3)["episode"].tolist() == [2**31 - 2, 2**31 - 1, 0]


@pytest.mark.parametrize("flags", [TERMINATED, TRUNCATED, TERMINATED | TRUNCATED])
def test_finished_episode_stays_as_it_is(ledger: Ledger, flags: int) -> None:
    ledger.write(0, **values(0, flags=flags))
    ledger.truncate_episode()
    row = ledger.row(0)
    assert row["flags"] == flags
