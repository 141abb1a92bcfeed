"""The log for people, written without waiting for its reader.

Why it is correct. `LogLines.put` leaves an event in a bounded queue; one thread takes it out and
hands it to the logging module, whose handlers may hang: on a disk, or on a pipe or a terminal that
takes nothing more. It is a daemon thread and starts no process, so it may hang for ever. At the end
of a program the logging module takes every handler's lock, so a handler must not hang with it:
`StderrHandler` writes only what stderr has room for. It waits a moment for room, and then gives
lines up, without a further wait, until there is room again: so any number of lines is soon done.
A pipe that has room takes a whole line. A terminal that has room for one byte says so, too, and
would wait with the rest: it is opened once more, not to wait, since that is a property of the open
file, which other programs share. What is dropped is counted, and said with the next line that gets
through (`log_format.py`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import select
import threading
from collections.abc import Callable
from typing import Any

CAPACITY = 1000
"""Most events that wait; further ones are dropped."""
LINE_BYTES = 4000
"""Most bytes of a line: a pipe that has room at all takes them in one piece (`PIPE_BUF`)."""
ROOM_WAIT_S = 0.5
STDERR = 2


class LogLines:
    """Hands events to `write`, which may hang, each with the number dropped before it."""

    def __init__(self, write: Callable[[Any, int], object]) -> None:
        self._write = write
        self._waiting: queue.Queue[tuple[Any, int] | None] = queue.Queue(CAPACITY)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log lines", daemon=True)
        self._thread.start()

    def put(self, event: Any) -> None:
        """Let the thread write an event. To be called from one thread only."""
        try:
            self._waiting.put_nowait((event, self._dropped))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float) -> None:
        """Let the thread write what waits, and end; wait for it so many seconds at most."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(timeout)

    def _write_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            self._write(*waiting)


class StderrHandler(logging.Handler):
    """Writes to stderr as far as it has room.

    Args:
        descriptor: to write to.
        wait_s: seconds to wait for room, if the line before found some.
    """

    def __init__(self, descriptor: int = STDERR, wait_s: float = ROOM_WAIT_S) -> None:
        super().__init__()
        self._descriptor = _without_waiting(descriptor)
        self._wait_s = wait_s
        self._dropped = 0
        self._cut = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record if there is room; it gets the number of records dropped before it."""
        dropped = self._dropped + getattr(record, "dropped", 0)
        record.__dict__["dropped"] = dropped
        line = self.format(record).encode(errors="replace")[:LINE_BYTES] + b"\n"
        if self._has_room():
            with contextlib.suppress(OSError):
                # After a line of which a terminal took a part.
                whole = b"\n" * self._cut + line
                self._cut = os.write(self._descriptor, whole) < len(whole)
                if not self._cut:
                    self._dropped = 0
                    return
        self._dropped = dropped + 1

    def _has_room(self) -> bool:
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        wait_s = 0.0 if self._dropped else self._wait_s
        return any(event & select.POLLOUT for _, event in room.poll(1000.0 * wait_s))


def _without_waiting(descriptor: int) -> int:
    """A descriptor of the same terminal that never waits; as given if it is none."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(os.ttyname(descriptor), flags)
    except OSError:
        return descriptor
