"""The protocol of a DonkeyCar simulator and its clients: JSON objects over TCP.

The simulator ends every object with a newline. Clients put nothing between theirs, and send
numbers as strings. What arrives may be cut anywhere, be garbage, or never end: a decoder takes
bytes as they come, keeps a bounded number of them, and counts what it had to throw away. It yields
after every object, be it a message or not, so that its caller can stop when its time is up; the
objects that are left come first the next time.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any

Message = dict[str, Any]

LONGEST_FROM_CLIENT = 1 << 16
"""Bytes; usual messages have a few hundred."""
LONGEST_FROM_SIMULATOR = 1 << 23
"""Bytes; a picture of 640 x 480 as PNG has about one million."""
DEFAULT_PORT = 9091
VERSION = "2"
SHOWN = 100
"""Bytes of an object that was not a message that are kept, for whoever looks for the fault."""

_MARKS = re.compile(rb'["\\{}]')


class ProtocolError(Exception):
    """A message that cannot be used, or a stream that cannot be read any further."""


def from_simulator(message: Mapping[str, Any]) -> bytes:
    """Encode a message as the simulator sends it."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def from_client(message: Mapping[str, Any]) -> bytes:
    """Encode a message as clients send it: every number a string, and no delimiter."""
    return json.dumps({
        key: str(value) if isinstance(value, int | float) else value
        for key, value in message.items()
    }).encode()


def number(message: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """The finite number in a field, which may be sent as a string.

    Raises:
        ProtocolError: the field holds no finite number, or is missing and has no default.
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
    """A message's value in a short line; of a dict or list, which may be deep, only the type."""
    deep = isinstance(value, dict | list)
    return f"a {type(value).__name__}" if deep else repr(value)[:40]


class Decoder(ABC):
    """Decodes messages from bytes that may be cut anywhere.

    Attributes:
        malformed: how many objects were not messages.
        unread: how the newest of them begins.
        pending: whether an object may be left that `feed` has not yielded.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._kept = bytearray()
        self._searched = 0
        self.malformed = 0
        self.unread = b""
        self.pending = False

    def feed(self, data: bytes = b"") -> Iterator[Message | None]:
        """Take bytes; yield each object that they complete, or None if it is not a message.

        Raises:
            ProtocolError: a message is longer than permitted.
        """
        self._kept += data
        self.pending = True
        while (end := self._end_of_object()) is not None:
            text = bytes(self._kept[:end])
            del self._kept[:end]
            self._searched = 0
            message = _parse(text)
            if message is None and text.strip():
                self.malformed += 1
                self.unread = text[:SHOWN]
            yield message
        self.pending = False
        if len(self._kept) > self._longest:
            raise ProtocolError(f"a message of more than {self._longest} bytes")

    @abstractmethod
    def _end_of_object(self) -> int | None:
        """The index after the first object; None while it is incomplete.

        `_searched` is where the next search begins, so that each byte is looked at once.
        """


class LineDecoder(Decoder):
    """Decodes a simulator's messages, which end with a newline."""

    def __init__(self, longest: int = LONGEST_FROM_SIMULATOR) -> None:
        super().__init__(longest)

    def _end_of_object(self) -> int | None:
        end = self._kept.find(b"\n", self._searched) + 1
        self._searched = len(self._kept)
        return end or None


class ObjectDecoder(Decoder):
    """Decodes a client's messages, with nothing between them; other bytes are malformed."""

    def __init__(self, longest: int = LONGEST_FROM_CLIENT) -> None:
        super().__init__(longest)
        self._depth = 0
        self._in_string = False
        self._escaped_at = -1

    def _end_of_object(self) -> int | None:
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
                    self._escaped_at = -1
                    return at + 1
        self._searched = len(self._kept)
        return None

    def _drop_before_object(self) -> bool:
        """Throw away bytes that cannot begin an object; whether an object begins now."""
        start = self._kept.find(b"{")
        outside = self._kept[: start if start >= 0 else len(self._kept)]
        self.malformed += bool(outside.strip())
        del self._kept[: len(outside)]
        self._searched = 0
        return start >= 0


def _parse(text: bytes) -> Message | None:
    """The message, an object with a `msg_type`; None if the text is something else."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("msg_type"), str) else None
