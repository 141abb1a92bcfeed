"""Asking a policy server a second time while an answer is late, in virtual time."""

from __future__ import annotations

import math
from itertools import pairwise
from unittest.mock import Mock

import numpy as np
import pytest

from rtagent.remote.policy import FIRST_ANSWER_S, LEAST_SLICE_S
from rtagent.remote.protocol import encode
from rtagent.remote.wire import LostError
from tests.remote.asking import ANSWER_S, DIALLED_S, GOOD, SLOW_S, Bench


@pytest.fixture
def bench() -> Bench:
    """Asks a second time after 1.5 times the usual time, of which it knows one."""
    bench = Bench(hedge=1.5)
    bench.answer()
    return bench


def test_a_late_answer_is_not_waited_for_and_never_taken_for_a_newer_one(bench: Bench) -> None:
    late = bench.clock.now()
    bench.ask_in_vain()
    assert bench.clock.now() == pytest.approx(
        late + 1.5 * ANSWER_S + DIALLED_S, abs=1.1 * LEAST_SLICE_S
    )
    assert bench.record.hedged == bench.record.in_flight == 1
    newer = encode({**GOOD, "values": np.array([3.0, 0.0, 0.0], np.float32)})
    bench.server.reply = lambda: newer if bench.server.clock.now() < late + SLOW_S else encode(GOOD)
    began = bench.clock.now()
    np.testing.assert_array_equal(bench.ask(), [3.0, 0.0, 0.0])
    assert bench.clock.now() == pytest.approx(began + ANSWER_S)
    assert bench.server.open == 2
    # The next late answer goes the other way, over the connections that there are.
    while bench.clock.now() < late + SLOW_S:
        bench.answer()
    bench.ask_in_vain()
    assert bench.ask() is not None
    assert bench.record.hedged == 2
    assert len(bench.server.dialled) == 2
    assert [kind for kind, _ in bench.events] == ["remote_answers"]


def test_an_answer_is_late_before_the_link_counts_as_cut() -> None:
    bench = Bench(hedge=20.0)
    bench.answer()
    bench.server.takes = lambda: 100.0 * ANSWER_S
    began = bench.clock.now()
    assert bench.ask() is None
    assert bench.clock.now() - began == pytest.approx(
        20.0 * ANSWER_S + DIALLED_S, abs=1.1 * LEAST_SLICE_S
    )
    assert (bench.record.hedged, bench.record.connected, bench.server.open) == (1, 1, 2)


def test_a_late_answer_that_has_come_is_not_in_flight_any_more(bench: Bench) -> None:
    seen: list[int] = []

    def takes() -> float:
        # The question before is counted until the next one is on its way.
        seen.append(bench.record.in_flight)
        return ANSWER_S

    bench.ask_in_vain()
    bench.server.takes = takes
    bench.answer()
    assert bench.record.in_flight == 1
    bench.clock.advance(SLOW_S)
    bench.answer()
    assert bench.record.in_flight == 0
    bench.answer()
    assert seen == [1, 1, 0]


def test_with_a_question_on_both_connections_the_answer_is_waited_for(bench: Bench) -> None:
    bench.ask_in_vain()
    bench.answer()
    bench.server.takes = lambda: 2.0 * ANSWER_S
    began = bench.clock.now()
    assert bench.ask() is not None
    assert bench.clock.now() == pytest.approx(began + 2.0 * ANSWER_S)
    assert bench.record.hedged == 1


def test_a_server_that_has_become_slower_for_good_is_known_to_be(bench: Bench) -> None:
    bench.server.takes = lambda: 3.0 * ANSWER_S
    answered = [bench.ask() is not None for _ in range(100)]
    assert all(one or other for one, other in pairwise(answered))
    hedged = bench.record.hedged
    assert hedged > 0
    assert all(bench.ask() is not None for _ in range(100))
    assert bench.record.hedged == hedged


def test_a_cut_link_ends_both_connections(bench: Bench) -> None:
    bench.ask_in_vain()
    bench.server.refusal = LostError("connection refused")
    bench.ask_for(5.0)
    assert bench.server.open == bench.record.in_flight == 0


def test_a_second_connection_that_is_lost_is_made_anew(bench: Bench) -> None:
    bench.ask_in_vain()
    bench.answer()
    lost = Mock(side_effect=LostError("closed"))
    bench.server.connections[0].receive = lost  # type: ignore[method-assign]
    bench.ask_in_vain()
    assert bench.answer() is not None
    assert len(bench.server.dialled) == 3
    assert bench.server.open == 2


def test_an_answer_that_never_comes_does_not_keep_its_connection(bench: Bench) -> None:
    # No late answer was hedged any more, and one question was shown as in flight, for good.
    bench.server.takes = lambda: math.inf
    assert bench.ask() is None
    bench.server.takes = lambda: ANSWER_S
    until = bench.clock.now() + FIRST_ANSWER_S - 1.0
    while bench.clock.now() < until:
        bench.answer()
        assert bench.record.in_flight == 1
    bench.clock.advance(1.0)
    bench.answer()
    assert bench.record.in_flight == 0
    assert bench.server.open == 1
    bench.ask_in_vain()
    assert bench.record.hedged == 2
    assert bench.answer() is not None


def test_without_a_hedge_a_late_answer_is_waited_for() -> None:
    bench = Bench()
    bench.answer()
    bench.server.takes = lambda: 5.0 * ANSWER_S
    assert bench.ask() is not None
    assert bench.record.hedged == 0
    assert bench.server.open == 1
