"""`rtagent events`, against the real service on an imitated daemon."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rtagent.cli import events as events_command
from rtagent.cli.events import LONGEST, details_of
from tests.cli.conftest import Refused, Run, announce
from tests.service.conftest import RunningService


def event(number: int, kind: str = "restarted", **details: Any) -> dict[str, Any]:
    return {"id": number, "at": f"2025-01-01T12:00:{number % 60:02}.250+00:00",
            "uptime_s": float(number), "kind": kind, "source": "inference 0", **details}


def history(newest: int) -> list[dict[str, Any]]:
    return [event(number) for number in range(newest, 0, -1)]


Script = Callable[..., None]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What happens between two looks of a follower; after the last step, Ctrl-C."""

    def write(*steps: Callable[[], object]) -> None:
        rest = list(steps)

        def step(seconds: float) -> None:
            assert seconds == events_command.POLL_S
            if not rest:
                raise KeyboardInterrupt
            rest.pop(0)()

        monkeypatch.setattr(events_command, "sleep", step)

    return write


def lines(text: str) -> list[str]:
    """Without the heading."""
    heading, *rest = text.splitlines()
    assert heading.split() == ["time", "(UTC)", "event", "source", "details"]
    return rest


def test_the_newest_is_at_the_bottom(run: Run, service: RunningService) -> None:
    change = event(2, "set", by="http", before={"processes": 2}, after={"processes": 4})
    service.backend.history = [{**change, "source": "inference"}, event(1, restarts=3)]
    shown = run("events")
    assert (shown.code, shown.err) == (0, "")
    assert [" ".join(line.split()) for line in lines(shown.out)] == [
        "2025-01-01 12:00:01 restarted inference 0 restarts: 3",
        "2025-01-01 12:00:02 set inference processes: 2 -> 4 by http",
    ]


def test_in_a_pipe_a_line_is_whole_and_without_escapes(run: Run, service: RunningService) -> None:
    error = "Traceback:\n  x\nValueError: " + "y" * 120
    service.backend.history = [event(1, "failed", error=error)]
    shown = run("events").out
    assert len(lines(shown)) == 1
    assert f"error: ValueError: {'y' * 120}" in shown
    assert "\x1b" not in shown


def test_in_a_terminal_each_event_is_one_row(
    run: Run, service: RunningService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.backend.history = [event(1, "failed", error="y" * 300), event(2)]
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=60, markup=False, highlight=False)
    monkeypatch.setattr(events_command, "stdout", lambda: console)
    assert run("events").code == 0
    rows = terminal.getvalue().splitlines()
    assert len(rows) == 3
    assert "…" in rows[2]
    assert "\x1b[31m" in rows[2], "what has failed stands out"
    assert "\x1b[31m" not in rows[1]


def test_options_reach_the_daemon(run: Run, service: RunningService) -> None:
    service.backend.history = [
        event(number, ("set", "failed", "restarted")[number % 3]) for number in range(60, 0, -1)
    ]
    assert len(lines(run("events").out)) == events_command.DEFAULT_LIMIT
    shown = run("events", "--limit", "3", "--kind", "set", "--kind", "failed", "--json").document()
    assert [each["id"] for each in shown] == [57, 58, 60]
    assert shown[2] == {**service.backend.history[0], "level": "info"}


def test_nothing_has_happened(run: Run, service: RunningService) -> None:
    assert lines(run("events").out) == []
    assert run("events", "--json").document() == []


def test_where_nothing_is_of_a_kind_those_that_there_are_are_named(
    run: Run, service: RunningService
) -> None:
    service.backend.history = [event(3), event(2, "set"), event(1)]
    shown = run("events", "--kind", "restart", "--kind", "sett")
    assert (shown.code, lines(shown.out)) == (0, [])
    assert shown.err == (
        "rtagent: no event of kind restart or sett; this run has: restarted, set\n"
    )


@pytest.mark.parametrize(("options", "named"), [
    (("--kind", "Set"), "--kind Set: expected small letters"),
    (("--kind", ""), "--kind : expected small letters"),
    (("--follow", "--kind", "a b"), "--kind a b: expected small letters"),
    (("--kind", "\udcff"), "--kind  : expected small letters"),
])
def test_what_is_no_name_of_a_kind_is_refused_in_one_line(
    refused: Refused, options: tuple[str, ...], named: str
) -> None:
    assert named in refused("events", *options)


def test_follow_shows_each_event_once_until_ctrl_c(
    run: Run, service: RunningService, script: Script
) -> None:
    def have(newest: int) -> Callable[[], None]:
        return lambda: setattr(service.backend, "history", history(newest))

    have(5)()
    script(have(5), have(6), have(6), have(500), have(501))
    shown = run("events", "--follow", "--json", "--limit", "2")
    assert (shown.code, shown.err) == (130, "")
    assert [json.loads(line)["id"] for line in shown.out.splitlines()] == list(range(4, 502))


def test_follow_begins_before_anything_has_happened(
    run: Run, service: RunningService, script: Script
) -> None:
    script(lambda: None, lambda: setattr(service.backend, "history", history(3)))
    shown = run("events", "--follow", "--kind", "restarted")
    assert shown.code == 130
    assert len(lines(shown.out)) == 3


def test_follow_outlives_the_service_with_one_message(
    run: Run, service: RunningService, script: Script
) -> None:
    def come_back() -> None:
        service.backend.history = history(4)
        service.start()

    service.backend.history = history(2)
    script(service.stop, lambda: None, lambda: None, come_back, lambda: None)
    shown = run("events", "--follow")
    assert shown.code == 130
    assert len(lines(shown.out)) == 4
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("rtagent: ")
    assert shown.err.endswith("(waiting for it)\n")


def test_follow_goes_on_with_the_next_run(
    run: Run, service: RunningService, script: Script, tmp_path: Path
) -> None:
    def begin_another() -> None:
        service.stop()
        service.port = 0
        service.backend.report["run_id"] = "another"
        service.backend.history = [event(1, "first"), event(2, "second")][::-1]
        service.start()

    service.backend.history = history(7)
    address = "http://127.0.0.1:{}/"
    script(begin_another, lambda: announce(tmp_path, address.format(service.port)), lambda: None)
    shown = run("events", "--follow", "--limit", "1")
    assert shown.code == 130
    assert [line.split()[2] for line in lines(shown.out)] == ["restarted", "first", "second"]


@pytest.mark.parametrize(("details", "text"), [
    ({}, ""),
    ({"restarts": 3, "new": True, "error": None}, "restarts: 3, new: true, error: none"),
    ({"seconds": 0.123456789, "ratio": 2.0}, "seconds: 0.123457, ratio: 2"),
    ({"error": "Traceback:\n  File x\nKeyError: 'a'\n\n"}, "error: KeyError: 'a'"),
    ({"plan": {"batch": [1, 2.5], "cap": None}}, "plan: {batch: [1, 2.5], cap: none}"),
    (
        {"by": "cli", "before": {"mode": "off", "deadline_s": None},
         "after": {"mode": "step", "deadline_s": 60}},
        "mode: off -> step, deadline_s: none -> 60 by cli",
    ),
    (
        {"before": {"learning_rate": 0.00012345678}, "after": {"learning_rate": [2.0, 1 / 3]}},
        "learning_rate: 0.00012345678 -> [2, 0.3333333333333333]",
    ),
    ({"before": {}, "after": {"a": 1}, "why": "late"}, "a: unknown -> 1, why: late"),
    ({"before": 2, "after": 3, "why": "late"}, "2 -> 3, why: late"),
    ({"after": 3, "by": "auto"}, "after: 3, by: auto"),
    ({"error": "a\x1b[2Jb\x07c"}, "error: a [2Jb c"),
    ({"long": "x" * 500}, "long: " + "x" * (LONGEST - 9) + "..."),
])
def test_details_are_one_short_line(details: dict[str, Any], text: str) -> None:
    assert details_of(event(1, **details)) == text
