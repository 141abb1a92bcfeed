"""Log lines that anybody outside can cause."""

from __future__ import annotations

from rtagent.clock import VirtualClock
from service.http.seldom import Seldom


def test_one_line_at_once_and_then_one_for_all_that_came_meanwhile() -> None:
    said: list[str] = []
    clock = VirtualClock(100.0)
    say = Seldom(said.append, clock, every_s=10.0)
    for _ in range(1000):
        say("refused")
    assert said == ["refused"]
    clock.advance(9.9)
    say("refused")
    assert len(said) == 1
    clock.advance(0.1)
    say("refused again")
    assert said[1:] == ["refused again (1000 more like it since the last such line)"]
    clock.advance(50.0)
    say("refused")
    assert said[2:] == ["refused"]
