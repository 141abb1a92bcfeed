"""The log for people: written where perhaps nobody reads, without making anybody wait.

Why it is correct. `LogLines.put` leaves an event in a bounded queue; one thread takes it out and
hands it to the logging module, whose handlers may hang: on a disk, or on a pipe or a terminal that
takes nothing more. It is a daemon thread and starts no process, so it may hang for ever. At the end
of a program the logging module takes every handler's lock, so a handler must not hang with it:
`StderrHandler` writes only what stderr has room for, and gives a line up if there is none.
What is dropped is counted, and said with the next line that gets through (`log_format.py`).
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
"""Events that wait; further ones are dropped."""
LINE_BYTES = 4000
"""Of one line: less than a pipe takes in one piece, once it has room at all (`PIPE_BUF`)."""
ROOM_WAIT_S = 0.5
STDERR = 2


class LogLines:
    """Hands events to `write`, with how many before each were dropped; it may hang."""

    def __init__(self, write: Callable[[Any, int], object]) -> None:
        self._write = write
        self._waiting: queue.Queue[tuple[Any, int] | None] = queue.Queue(CAPACITY)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="log lines", daemon=True)
        self._thread.start()

    def put(self, event: Any) -> None:
        """Have an event written. From one thread."""
        try:
            self._waiting.put_nowait((event, self._dropped))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self, timeout: float) -> None:
        """Write what waits, and end; what takes longer than so many seconds is left alone."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
            self._thread.join(timeout)

    def _write_all(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            self._write(*waiting)


class StderrHandler(logging.Handler):
    """Writes to stderr as long as that takes something.

    Args:
        descriptor: to write to.
        wait_s: seconds to wait for room.
    """

    def __init__(self, descriptor: int = STDERR, wait_s: float = ROOM_WAIT_S) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._wait_s = wait_s
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless there is no room; how many were dropped stands in the record."""
        dropped = self._dropped + getattr(record, "dropped", 0)
        record.__dict__["dropped"] = dropped
        line = self.format(record).encode(errors="replace")[:LINE_BYTES]
        if self._has_room():
            with contextlib.suppress(OSError):
                os.write(self._descriptor, line + b"\n")
                self._dropped = 0
                return
        self._dropped = dropped + 1

    def _has_room(self) -> bool:
        room = select.poll()
        room.register(self._descriptor, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in room.poll(1000.0 * self._wait_s))
