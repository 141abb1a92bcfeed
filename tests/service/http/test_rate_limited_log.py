"""Log lines that anybody on the network can cause."""

from __future__ import annotations

from rtagent.clock import VirtualClock
from service.http.rate_limited_log import INTERVAL_S, RateLimitedLog


def test_the_first_line_is_written_and_then_one_per_interval_for_all() -> None:
    written: list[str] = []
    clock = VirtualClock(100.0)
    log = RateLimitedLog(written.append, clock)
    for _ in range(1000):
        log("refused")
    assert written == ["refused"]
    clock.advance(INTERVAL_S - 0.1)
    log("refused")
    assert len(written) == 1
    clock.advance(0.1)
    log("refused again")
    assert written[1:] == ["refused again (1000 more like it since the last such line)"]
    clock.advance(50.0)
    log("refused")
    assert written[2:] == ["refused"]
