"""The wire between a DonkeyCar simulator and its clients: JSON objects over TCP.

The simulator ends every object with a newline. Clients put nothing between theirs, and send
numbers as strings. What arrives may be cut anywhere, be garbage, or never end: both decoders take
bytes as they come, keep a bounded number of them, and count what they had to throw away. They are
generators that yield after every object, be it a message or not, so that who reads them can stop
when its time is up; what is left then comes first the next time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

Message = dict[str, Any]

LONGEST_FROM_CLIENT = 1 << 16
"""Bytes; a client's messages have a few hundred."""
LONGEST_FROM_SIMULATOR = 1 << 23
"""Bytes; a picture of 640 x 480 as PNG has about one million."""
DEFAULT_PORT = 9091
VERSION = "2"

_MARKS = re.compile(rb'["\\{}]')


class ProtocolError(Exception):
    """A message that cannot be used, or a stream that cannot be read any further."""


def from_simulator(message: Mapping[str, Any]) -> bytes:
    """A message as the simulator sends it."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def from_client(message: Mapping[str, Any]) -> bytes:
    """A message as clients send it: every number a string, and no delimiter."""
    return json.dumps({key: _as_text(value) for key, value in message.items()}).encode()


def number(message: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A finite number, sent as a number or as a string.

    Args:
        message: the message.
        key: its field.
        default: what a missing field means. If None, the field must be there.

    Raises:
        ProtocolError: it is missing or not a finite number.
    """
    value = message.get(key, default)
    try:
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise ProtocolError(f"{key} = {shown(value)} is not a finite number")


def shown(value: object) -> str:
    """A value of a message in a line; of what may be deep, only what it is."""
    deep = isinstance(value, dict | list)
    return f"a {type(value).__name__}" if deep else repr(value)[:40]


class LineDecoder:
    """Messages that end with a newline: a simulator's.

    Attributes:
        malformed: lines that were not a message.
    """

    def __init__(self, longest: int = LONGEST_FROM_SIMULATOR) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._searched = 0
        self.malformed = 0

    @property
    def pending(self) -> bool:
        """Whether a whole line waits."""
        return self._kept.find(b"\n", self._searched) >= 0

    def feed(self, data: bytes = b"") -> Iterator[Message | None]:
        """Take bytes; yield a message for each line that they complete, none if it is not one.

        Raises:
            ProtocolError: a message is longer than any may be.
        """
        self._kept += data
        while (end := self._kept.find(b"\n", self._searched)) >= 0:
            line = bytes(self._kept[:end])
            del self._kept[: end + 1]
            self._searched = 0
            message = _parse(line)
            self.malformed += message is None and bool(line.strip())
            yield message
        self._searched = len(self._kept)
        if len(self._kept) > self._longest:
            raise ProtocolError(f"a message of more than {self._longest} bytes")


class ObjectDecoder:
    """Messages with nothing between them: a client's. Each byte is looked at once.

    Attributes:
        malformed: objects that were not a message, and stretches of bytes outside any object.
        pending: an object may wait that nobody has asked for yet.
    """

    def __init__(self, longest: int = LONGEST_FROM_CLIENT) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._searched = 0
        self._depth = 0
        self._in_string = False
        self._escaped_at = -1
        self.malformed = 0
        self.pending = False

    def feed(self, data: bytes = b"") -> Iterator[Message | None]:
        """Take bytes; yield a message for each object that they complete, none if it is not one.

        Raises:
            ProtocolError: a message is longer than any may be.
        """
        self._kept += data
        self.pending = True
        while (end := self._end_of_object()) is not None:
            text = bytes(self._kept[:end])
            del self._kept[:end]
            self._searched, self._escaped_at = 0, -1
            message = _parse(text)
            self.malformed += message is None
            yield message
        self.pending = False
        if len(self._kept) > self._longest:
            raise ProtocolError(f"a message of more than {self._longest} bytes")

    def _end_of_object(self) -> int | None:
        """Where the first object ends; none while it is incomplete."""
        if not self._depth and not self._drop_before_object():
            return None
        for mark in _MARKS.finditer(self._kept, self._searched):
            at, sign = mark.start(), mark.group()
            if self._in_string:
                if at == self._escaped_at:
                    continue
                if sign == b"\\":
                    self._escaped_at = at + 1
                elif sign == b'"':
                    self._in_string = False
            elif sign == b'"':
                self._in_string = True
            elif sign == b"{":
                self._depth += 1
            elif sign == b"}":
                self._depth -= 1
                if not self._depth:
                    return at + 1
        self._searched = len(self._kept)
        return None

    def _drop_before_object(self) -> bool:
        """Throw away what cannot begin a message; whether one begins now."""
        start = self._kept.find(b"{")
        outside = self._kept[: start if start >= 0 else len(self._kept)]
        self.malformed += bool(outside.strip())
        del self._kept[: len(outside)]
        self._searched = 0
        return start >= 0


def _parse(text: bytes) -> Message | None:
    """A message; none if it is not one: an object with a `msg_type`."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and isinstance(found.get("msg_type"), str):
        return found
    return None


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value
