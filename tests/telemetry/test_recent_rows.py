"""The newest rows of the ledger: the same as a fresh reading gives, but read once."""

from __future__ import annotations

from unittest.mock import Mock, call

import numpy as np
import pytest

from rtagent.memory.ledger import TRUNCATED, Ledger, Rows
from rtagent.memory.ring import GUARD_TICKS
from rtagent.telemetry.recent_rows import UNSETTLED, RecentRows, from_time
from tests.telemetry.counted_run import AGENT, PERIOD_NS, START_NS, Run

MOST = 100
SHORT = 2048


def tick(run: Run, first: int, stop: int) -> None:
    for number in range(first, stop):
        run.tick(number, AGENT, number - 1)


def since_ns(number: int) -> int:
    return START_NS + number * PERIOD_NS


def fresh(ledger: Ledger, since: int) -> Rows:
    rows = ledger.read(0, ledger.newest + 1)
    return rows[rows["time_ns"] >= since]


def test_the_rows_are_those_of_a_fresh_reading(run: Run) -> None:
    recent, random, number = RecentRows(run.ledger, 0), np.random.default_rng(0), 0
    assert len(recent.since(0, MOST)) == 0
    for _ in range(50):
        tick(run, number, number := number + int(random.integers(0, 30)))
        since = since_ns(max(0, number - 60))
        assert np.array_equal(recent.since(since, MOST), fresh(run.ledger, since))


def test_an_earlier_time_is_read_afresh(run: Run) -> None:
    recent = RecentRows(run.ledger, 0)
    tick(run, 0, 50)
    assert recent.since(since_ns(40), MOST)["tick"].tolist() == list(range(40, 50))
    assert recent.since(since_ns(10), MOST)["tick"].tolist() == list(range(10, 50))


def test_rows_of_another_run_are_left_out(run: Run) -> None:
    tick(run, 0, 20)
    recent = RecentRows(run.ledger, 12)
    assert recent.since(0, MOST)["tick"].tolist() == list(range(12, 20))


def test_the_newest_rows_are_read_again(run: Run) -> None:
    recent = RecentRows(run.ledger, 0)
    tick(run, 0, 20)
    assert recent.since(0, MOST)["flags"][19] == 0
    run.ledger.truncate_episode()
    tick(run, 20, 40)
    assert recent.since(0, MOST)["flags"][19] == TRUNCATED


def test_every_row_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    recent, read = RecentRows(run.ledger, 0), Mock(wraps=run.ledger.read)
    monkeypatch.setattr(run.ledger, "read", read)
    tick(run, 0, 60)
    recent.since(0, MOST)
    tick(run, 60, 66)
    recent.since(0, MOST)
    assert read.call_args_list == [call(0, 60), call(60 - UNSETTLED, 66)]


def test_rows_that_the_ledger_has_overwritten_are_kept() -> None:
    run = Run(replay={"capacity": SHORT})
    recent, shown = RecentRows(run.ledger, 0), SHORT - GUARD_TICKS
    tick(run, 0, 40)
    recent.since(0, SHORT)
    tick(run, 40, shown + 20)
    assert run.ledger.oldest == 20
    rows = recent.since(0, SHORT)
    assert rows["tick"].tolist() == list(range(shown + 20))
    assert recent.whole_since_ns == 0


@pytest.mark.parametrize("read_before", [False, True])
def test_rows_before_one_that_was_overwritten_unread_are_left_out(read_before: bool) -> None:
    run = Run(replay={"capacity": SHORT})
    recent, shown = RecentRows(run.ledger, 0), SHORT - GUARD_TICKS
    tick(run, 0, 10)
    if read_before:
        recent.since(0, 10 * SHORT)
    tick(run, 10, shown + 20)
    for _ in range(2):
        rows = recent.since(0, 10 * SHORT)
        assert rows["tick"].tolist() == list(range(20, shown + 20))
        assert recent.whole_since_ns == since_ns(20)


def test_a_row_that_a_killed_process_has_left_torn_makes_none_before_it_unknown(run: Run) -> None:
    recent = RecentRows(run.ledger, 0)
    tick(run, 0, 6)
    tick(run, 7, 6 + UNSETTLED)
    for number in range(6 + UNSETTLED, 20):
        tick(run, number, number + 1)
        rows = recent.since(0, MOST)
        assert rows["tick"].tolist() == [each for each in range(number + 1) if each != 6]
    assert recent.whole_since_ns == 0


def test_from_time_takes_the_tick_at_that_time(run: Run) -> None:
    tick(run, 0, 10)
    rows = run.ledger.read(0, 10)
    assert from_time(rows, since_ns(4))["tick"][0] == 4
    assert from_time(rows, since_ns(4) + 0.5)["tick"][0] == 5
    assert len(from_time(rows, since_ns(10))) == 0
