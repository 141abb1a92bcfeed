"""The stagger timeline as text."""

from __future__ import annotations

from typing import Any

from rtagent.cli.watch_lanes import lane, ruler
from tests.service.conftest import example_timeline


def timeline(bars: list[tuple[int, float, float]], sources: list[str]) -> dict[str, Any]:
    """Ticks of 10 ms, the newest now; bars as (worker, start, end) in ms."""
    newest = 10.0 * (len(sources) - 1)
    return {
        "now_ms": newest,
        "tick_ms": 10.0,
        "ticks": {"at_ms": [10.0 * i for i in range(len(sources))], "source": sources},
        "bars": {
            "worker": [bar[0] for bar in bars],
            "start_ms": [bar[1] for bar in bars],
            "end_ms": [bar[2] for bar in bars],
        },
    }


def test_two_columns_are_a_tick_and_the_newest_is_at_the_right() -> None:
    shown = timeline([(0, 0.0, 20.0), (1, 10.0, 30.0)], ["agent", "reused", "default", "agent"])
    assert lane(shown, 0, 8) == " ━━━━●  "
    assert lane(shown, 1, 8) == "   ━━━━●"
    assert lane(shown, 2, 8) == " " * 8
    assert ruler(shown, 8).plain == " · r X ·"


def test_what_began_before_the_strip_is_cut_off() -> None:
    shown = timeline([(0, -500.0, 20.0), (0, -900.0, -600.0)], ["agent"] * 3)
    assert lane(shown, 0, 4) == "━━━●"


def test_an_inference_shorter_than_a_column_is_still_seen() -> None:
    assert lane(timeline([(0, 18.0, 19.0)], ["agent"] * 3), 0, 4) == "   ●"


def test_the_default_behaviour_is_marked_by_more_than_its_colour() -> None:
    strip = ruler(example_timeline(), 80)
    assert strip.plain.count("X") == 1
    assert any("red" in str(span.style) for span in strip.spans)


def test_processes_that_take_turns_are_seen_to() -> None:
    lanes = [lane(example_timeline(), worker, 60) for worker in (0, 1)]
    for shown in lanes:
        assert 10 <= shown.count("●") <= 20
    assert not any(a == b == "●" for a, b in zip(*lanes, strict=True))
