"""Failed logins."""

from __future__ import annotations

import pytest

from rtagent.clock import VirtualClock
from service.http.attempts import BURST, MOST_ADDRESSES, REFILL_S, Attempts
from service.http.rate_limited_log import RateLimitedLog


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(50.0)


def attempts(clock: VirtualClock) -> Attempts:
    return Attempts(clock, RateLimitedLog(lambda line: None, clock))


def test_so_many_may_fail_at_once_and_then_one_in_a_while(clock: VirtualClock) -> None:
    failures = attempts(clock)
    assert [failures.failed("192.0.2.1") for _ in range(BURST)] == [0.0] * BURST
    assert failures.failed("192.0.2.1") == pytest.approx(REFILL_S)
    clock.advance(REFILL_S / 2)
    assert failures.failed("192.0.2.1") == pytest.approx(REFILL_S / 2)
    clock.advance(REFILL_S / 2)
    assert failures.failed("192.0.2.1") == 0.0
    assert failures.failed("192.0.2.1") > 0.0


def test_each_address_has_its_own_limit(clock: VirtualClock) -> None:
    failures = attempts(clock)
    for _ in range(BURST + 1):
        failures.failed("2001:db8::1")
    assert failures.failed("192.0.2.1") == 0.0
    # One customer is given a whole /64.
    assert failures.failed("2001:db8::2") > 0.0


def test_a_long_rest_gives_no_more_than_the_first_time(clock: VirtualClock) -> None:
    failures = attempts(clock)
    failures.failed("192.0.2.1")
    clock.advance(1e6)
    waits = [failures.failed("192.0.2.1") for _ in range(BURST + 1)]
    assert waits[:-1] == [0.0] * BURST
    assert waits[-1] > 0.0


def test_the_addresses_that_failed_last_are_remembered(clock: VirtualClock) -> None:
    failures = attempts(clock)
    for _ in range(BURST + 1):
        failures.failed("192.0.2.1")
    for number in range(MOST_ADDRESSES - 1):
        failures.failed(f"10.0.{number // 256}.{number % 256}")
    assert failures.failed("192.0.2.1") > 0.0
    for number in range(MOST_ADDRESSES):
        failures.failed(f"10.1.{number // 256}.{number % 256}")
    assert failures.failed("192.0.2.1") == 0.0
