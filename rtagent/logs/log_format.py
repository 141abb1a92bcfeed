"""The log's lines: text for people, JSON for programs.

A line begins with the time in UTC and the level. That of an event goes on with the event's kind,
its source and its details; its time is the event's own, as `rtagent events` shows it.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rtagent.logs.log_lines import LINE_BYTES, StderrHandler
from rtagent.logs.printable import printable
from rtagent.logs.shortening import short_details

FORMATS = ("text", "json")
SHORT_BYTES = 2500
"""Bytes of a line's details as JSON, if all of them do not fit into a line."""
CALLS = 6
"""Innermost calls of a traceback that a line has."""
_OMITTED = ("id", "uptime_s")
"""Keys of an event that the log leaves out: its line has the time, and a place among the lines."""


def log_to_stderr(form: str, level: int) -> None:
    """Write what this process logs, from a level on, to stderr in one of `FORMATS`."""
    handler = StderrHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    logging.basicConfig(level=level, handlers=[handler])


def error_with_calls(error: BaseException, most: int = CALLS) -> str:
    """An exception, and its calls from the innermost outwards."""
    calls = traceback.extract_tb(error.__traceback__)[: -most - 1 : -1]
    where = ", called by ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in calls)
    return f"{type(error).__name__}: {error}; in {where}"


def event_text(event: Mapping[str, Any]) -> str:
    """An event as text, without its time: the kind, and `key=value` for every other key."""
    said = {key: value for key, value in event.items() if key not in (*_OMITTED, "at", "kind")}
    return " ".join([printable(event["kind"]), *(f"{k}={v}" for k, v in _pairs(said))])


class TextLines(logging.Formatter):
    """`2030-01-01T12:00:02.500+00:00 WARNING died source="inference 1" error="..."`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        dropped = getattr(record, "dropped", 0)
        end = f" ({dropped} lines before this were dropped)" if dropped else ""
        line = f"{_at(record)} {record.levelname} {printable(record.getMessage())}"
        if why := _error(record):
            line += f": {printable(why)}"
        room = LINE_BYTES - len(end)
        return line.encode(errors="replace")[:room].decode(errors="ignore") + end


class JsonLines(logging.Formatter):
    """One JSON object: `at`, `level`, and the event's keys, or `message` where it is no event."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whole JSON however long the details are."""
        event = getattr(record, "event", None)
        first: dict[str, Any] = {"at": _at(record), "level": record.levelname.lower()}
        if dropped := getattr(record, "dropped", 0):
            first["dropped"] = dropped
        if event is not None:
            first |= {"kind": event["kind"], "source": event["source"]}
            own = {k: v for k, v in event.items() if k not in (*_OMITTED, *first)}
        else:
            own = {"message": record.getMessage()}
            if why := _error(record):
                own["error"] = why
        for details in (own, short_details(own, SHORT_BYTES)):
            line = json.dumps(first | details)
            if len(line) < LINE_BYTES:
                return line
        return json.dumps(first | {"shortened": True})


def _at(record: logging.LogRecord) -> str:
    event = getattr(record, "event", None)
    if event is not None:
        return str(event["at"])
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _error(record: logging.LogRecord) -> str | None:
    """The exception of a record with its calls; None if it has none."""
    error = record.exc_info[1] if record.exc_info else None
    return None if error is None else error_with_calls(error)


def _pairs(details: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Keys and values as text; keys of a nested mapping are dotted. None is left out."""
    for key, value in details.items():
        name = f"{prefix}{printable(str(key))}"
        if isinstance(value, Mapping):
            yield from _pairs(value, f"{name}.")
        elif value is not None:
            yield name, _value(value)


def _value(value: Any) -> str:
    """JSON, without the quotes where a text is one word."""
    if isinstance(value, str) and value and not set(value) & set(' "=\\') and value.isprintable():
        return value
    return printable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
