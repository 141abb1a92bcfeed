"""The stagger timeline as text: two columns per tick, the newest at the right.

A lane shows one inference process: `━` while it infers, `●` where it registered its action. Above
the lanes stand the ticks: `·` an action of the agent, `r` a re-used one, `X` the default behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

PER_TICK = 2
BUSY, REGISTERED = "━", "●"
MARKS = {"agent": "·", "reused": "r", "default": "X"}
_STYLES = {"·": "dim", "r": "yellow", "X": "bold red"}


def lane(timeline: Mapping[str, Any], worker: int | None, width: int) -> str:
    """One process of a timeline, as `GET /v1/timeline` answers, in so many columns."""
    bars = timeline["bars"]
    cells = [" "] * width
    ends = []
    for each, start_ms, end_ms in zip(
        bars["worker"], bars["start_ms"], bars["end_ms"], strict=True
    ):
        if each != worker:
            continue
        first, last = (_column(timeline, at_ms, width) for at_ms in (start_ms, end_ms))
        for column in range(max(0, first), min(last, width - 1) + 1):
            cells[column] = BUSY
        ends.append(last)
    for column in ends:
        if 0 <= column < width:
            cells[column] = REGISTERED
    return "".join(cells)


def ruler(timeline: Mapping[str, Any], width: int) -> Text:
    """The ticks, by the source of their action."""
    cells = [" "] * width
    ticks = timeline["ticks"]
    for at_ms, source in zip(ticks["at_ms"], ticks["source"], strict=True):
        column = _column(timeline, at_ms, width)
        if 0 <= column < width:
            cells[column] = MARKS.get(source, "?")
    return Text.assemble(*((cell, _STYLES.get(cell, "")) for cell in cells))


def _column(timeline: Mapping[str, Any], at_ms: float, width: int) -> int:
    ago_ticks = (timeline["now_ms"] - at_ms) / timeline["tick_ms"]
    return width - 1 - int(PER_TICK * ago_ticks)
