"""Shortens texts where they begin, so that they fit into a status, an event or a message.

A policy, an environment or a library may raise an error of any length, with anything in it.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Mapping
from typing import Any

from rtagent.errors import place_of

ERROR_LINES = 30
LINE_CHARACTERS = 300
ERROR_BYTES = 32 << 10
"""Most bytes of an error as JSON, which gives some characters twelve: it is sent in one message."""
EVENT_BYTES = 8 << 10
"""Most bytes of an event's details as JSON."""
MOST_NAMES = 32
"""Most names in the details of an event."""


def short_text(text: str, most: int) -> str:
    """A text's beginning and end, with the number of characters left out between them.

    Args:
        text: any.
        most: bytes that it may take as JSON, at least 100.
    """
    keep = most
    while True:
        shown = _ends(text, keep)
        size = len(json.dumps(shown))
        if size <= most:
            return shown
        keep = min(keep - 1, keep * most // size)


def short_error(text: str) -> str:
    """A traceback's first line and its last ones, each of bounded length."""
    lines = text.strip().splitlines()
    if len(lines) > ERROR_LINES:
        lines = [lines[0], "  ...", *lines[-ERROR_LINES:]]
    # The name of an error stands at the beginning of its line.
    text = "\n".join(
        line if len(line) <= LINE_CHARACTERS else f"{line[:LINE_CHARACTERS]} [...]"
        for line in lines
    )
    return short_text(text, ERROR_BYTES)


def current_traceback() -> str:
    """The traceback of the exception being handled, whose last line is the error with its place.

    An event shows the last line, and that of a message of several lines may say nothing: those of
    CUDA end with how to debug.
    """
    found = sys.exception()
    assert found is not None
    error = "".join(traceback.format_exception_only(found))
    whole = " ".join(error.split()) + place_of(found)
    return traceback.format_exc().removesuffix(error) + whole


def short_details(details: Mapping[str, Any], most: int) -> dict[str, Any]:
    """Details of any kind as values of JSON; what is too long becomes a short text.

    Args:
        details: values by name.
        most: bytes that they may take as JSON, at least 200 for each name.
    """
    texts = {short_text(str(name), 100): _as_json(value) for name, value in details.items()}
    if sum(len(name) + len(text) + 6 for name, text in texts.items()) <= most:
        return {name: json.loads(text) for name, text in texts.items()}
    kept = dict(list(texts.items())[:MOST_NAMES])
    share = most // (len(kept) + 1)
    short = {name: _short_value(text, share - len(name) - 6) for name, text in kept.items()}
    left_out = len(texts) - len(kept)
    return {**short, "left_out": left_out} if left_out else short


def _short_value(text: str, most: int) -> Any:
    """The value of a JSON text; a short text if it is too long."""
    value = json.loads(text)
    if len(text) <= most:
        return value
    return short_text(value if isinstance(value, str) else text, max(100, most))


def _ends(text: str, keep: int) -> str:
    if len(text) <= keep:
        return text
    note = f" [... {len(text) - keep} characters ...] "
    room = max(2, keep - len(note))
    return text[: room - room // 2] + note + text[-(room // 2) :]


def _as_json(value: Any) -> str:
    """The value as JSON, with null for a number that is not finite, which JSON does not know."""
    try:
        text = json.dumps(value, default=_plain)
        return json.dumps(json.loads(text, parse_constant=lambda _: None))
    except (TypeError, ValueError, RecursionError):
        return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """A value of JSON in place of one that JSON does not know."""
    try:
        # Numbers and arrays of NumPy and torch have this method.
        return value.tolist() if hasattr(value, "tolist") else str(value)
    except Exception:
        return f"<{type(value).__name__}>"
