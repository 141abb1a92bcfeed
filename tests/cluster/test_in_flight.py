"""The number of batches on their way follows bandwidth times delay, as measured."""

from __future__ import annotations

import heapq

import pytest

from rtagent.cluster.in_flight import (
    LEAST,
    MOST_BYTES,
    InFlight,
    allowed_in_flight,
    batches_per_call,
)


def test_the_rule() -> None:
    assert allowed_in_flight(100.0, 0.2, most=64) == LEAST + 25
    assert allowed_in_flight(100.0, 0.0, most=64) == LEAST
    assert allowed_in_flight(1000.0, 1.0, most=64) == 64
    # Two calls at the learner, and what the link holds.
    assert allowed_in_flight(400.0, 0.01, most=64, per_call=4) == LEAST * 4 + 5


@pytest.mark.parametrize(("rate", "update_s", "batches"), [
    (1000.0, 0.2, 1), (1000.0, 0.03, 3), (1000.0, 0.02, 5), (1000.0, 0.0, 16),
    (40.0, 0.0, 4), (1.0, 0.0, 1),
])
def test_how_many_travel_in_a_call(rate: float, update_s: float, batches: int) -> None:
    assert batches_per_call(rate, update_s, most=64) == batches


def drive(
    in_flight: InFlight, round_trip: float, work: float, seconds: float, start: float = 0.0
) -> float:
    """Keep the allowed number on their way to a learner that needs `work` for each; answers/s."""
    now, free, answered, end = start, start, 0, start + seconds
    under_way: list[tuple[float, float, float]] = []
    while now < end:
        while len(under_way) < in_flight.limit:
            came = now + round_trip / 2
            free = max(free, came) + work
            heapq.heappush(under_way, (free + round_trip / 2, now, free - came))
        now, sent, held = heapq.heappop(under_way)
        in_flight.answered(sent, held, now)
        answered += now > start + seconds / 2
    return answered / (seconds / 2)


def test_a_path_that_has_become_longer_is_noticed() -> None:
    in_flight = InFlight()
    drive(in_flight, 0.02, work=0.02, seconds=5.0)
    before = in_flight.limit
    assert drive(in_flight, 0.2, work=0.02, seconds=60.0, start=5.0) > 40.0
    assert before < in_flight.limit <= LEAST + 1 + 1.25 * 0.2 / 0.02
    assert in_flight.delay_s == pytest.approx(0.2)


@pytest.mark.parametrize("round_trip", [0.0, 0.02, 0.2])
def test_the_delay_is_hidden(round_trip: float) -> None:
    in_flight = InFlight()
    rate = drive(in_flight, round_trip, work=0.02, seconds=20.0)
    # Now and then the path is emptied, to see how long it is.
    assert rate == pytest.approx(1 / 0.02, rel=0.05)
    # What the path holds and a quarter, and what the learner holds.
    assert in_flight.limit <= LEAST + 1 + 1.25 * round_trip / 0.02
    # However long the learner works, and whatever waits for it: the path alone.
    assert in_flight.delay_s == pytest.approx(round_trip, abs=2e-6)


@pytest.mark.parametrize(("sizes", "limit", "in_a_call"), [
    ([1000] * 100, 64, 16), ([MOST_BYTES // 20] * 100, 20, 5), ([MOST_BYTES // 3] * 100, 3, 1),
    ([MOST_BYTES] * 100, LEAST, 1),
    # One that is larger than those before it counts at once.
    ([1000] * 99 + [MOST_BYTES // 4], 4, 1),
])
def test_large_batches_are_few(sizes: list[int], limit: int, in_a_call: int) -> None:
    in_flight = InFlight()
    for answer, size in enumerate(sizes):
        in_flight.sent(size)
        now = 0.001 * answer
        in_flight.answered(now - 0.1, 0.0, now, update_s=0.001)
    # The link has room for far more.
    assert (in_flight.limit, in_flight.per_call) == (limit, in_a_call)
