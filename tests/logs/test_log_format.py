"""The log's lines: the time with its zone, the level, the event; text or JSON."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from rtagent.logs.log_format import FORMATS, JsonLines, TextLines, event_text
from rtagent.logs.log_lines import LINE_BYTES

AT = "2030-01-01T12:00:02.500+00:00"


def event(kind: str = "set", source: str | None = "learning", **details: Any) -> dict[str, Any]:
    return {"id": 7, "at": AT, "uptime_s": 2.5, "kind": kind, "source": source, **details}


def record(said: dict[str, Any] | None, message: str = "hello", dropped: int = 0) -> Any:
    level = logging.WARNING
    text = message if said is None else event_text(said)
    made = logging.LogRecord("rtagent", level, "", 0, "%s", (text,), None)
    if said is not None:
        made.__dict__["event"] = said
    made.__dict__["dropped"] = dropped
    return made


@pytest.mark.parametrize("form", FORMATS)
def test_lines_have_the_form_that_was_asked_for(form: str) -> None:
    program = (
        "import logging; from rtagent.logs.log_format import log_to_stderr;"
        f"log_to_stderr({form!r}, logging.INFO); logging.getLogger('rtagent').info('hello')"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=True
    ).stderr
    assert "hello" in said
    assert said.startswith("{") == (form == "json")


def test_an_event_as_text() -> None:
    said = event(by="http", before={"batch_size": 32}, after={"batch_size": 64, "paused": True})
    assert TextLines().format(record(said)) == (
        f"{AT} WARNING set source=learning by=http before.batch_size=32 after.batch_size=64 "
        "after.paused=true"
    )


@pytest.mark.parametrize(("value", "text"), [
    ("plain", "x=plain"),
    ("two words", 'x="two words"'),
    ('a="b"', 'x="a=\\"b\\""'),
    ("", 'x=""'),
    ("a\nb", 'x="a\\nb"'),
    (1.5, "x=1.5"),
    ([1, "a b"], 'x=[1,"a b"]'),
    (None, ""),
    ("\x9b2J", 'x=" 2J"'),
])
def test_values_in_text(value: Any, text: str) -> None:
    assert event_text(event("odd", None, x=value)) == f"odd {text}".rstrip()


def test_an_event_as_json() -> None:
    said = event(before={"batch_size": 32})
    assert json.loads(JsonLines().format(record(said))) == {
        "at": AT, "level": "warning", "kind": "set", "source": "learning",
        "before": {"batch_size": 32},
    }


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_what_is_no_event_has_a_time_with_its_zone(form: type[logging.Formatter]) -> None:
    line = form().format(record(None, "no\nevent"))
    if form is JsonLines:
        told = json.loads(line)
        assert told.pop("at")
        assert told == {"level": "warning", "message": "no\nevent"}
    else:
        at, rest = line.split(" ", 1)
        offset = datetime.fromisoformat(at).utcoffset()
        assert offset is not None
        assert not offset
        assert rest == "WARNING no event"


@pytest.mark.parametrize("said", [
    None,
    event(error="y" * 50_000),
    event(**{f"name{number}": "\x1b\u20ac" * 500 for number in range(40)}),
])
def test_a_long_line_is_whole_and_says_what_was_dropped(said: dict[str, Any] | None) -> None:
    odd = record(said, "z" * 50_000, dropped=3)
    told = json.loads(line := JsonLines().format(odd))
    assert len(line.encode()) < LINE_BYTES
    assert told["dropped"] == 3
    text = TextLines().format(odd)
    assert len(text.encode()) <= LINE_BYTES
    assert text.endswith(" (3 lines before this were dropped)")


@pytest.mark.parametrize("form", [TextLines, JsonLines])
def test_what_was_raised_is_told_with_its_place(form: type[logging.Formatter]) -> None:
    made = record(None, "GET /v1/x failed")
    try:
        json.loads("{")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = form().format(made)
    assert "GET /v1/x failed" in line
    assert "JSONDecodeError: Expecting property name" in line
    assert "in raw_decode (" in line
    assert f"test_what_was_raised_is_told_with_its_place ({__file__}:" in line
    assert len(line.splitlines()) == 1
