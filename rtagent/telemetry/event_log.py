"""The events of a run, stored as JSON lines: written by the supervisor, read by any process.

Why it is correct. `put` appends to a bounded queue, under a lock that is not held during disk
operations, so the supervisor never waits for a disk. One thread writes, in whole batches; an event
leaves the queue after its batch is in the file, not before. The file only grows, and is renamed
when it is full, before the next is begun, so reading backwards gives descending ids: an id that is
not below the previous one has been read already, from a file that was renamed meanwhile. A line
that a killed writer has not finished is no JSON, and is skipped. The thread is a daemon thread: a
disk that hangs may block it for ever, and must not delay the end of the process. It starts no
processes: a child's death signal belongs to the thread that started it, and this thread may end
before the run does.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from rtagent.clock import Clock, MonotonicClock
from rtagent.errors import UserError, reason_of
from rtagent.files.append import append_whole, make_room, older
from rtagent.files.pruning import MIB
from rtagent.files.regular_file import open_regular

EVENTS_FILE = "events.jsonl"
"""Name of the file in the run's folder."""
MOST_BYTES = 16 * MIB
"""Most bytes of the file: about 80,000 events."""
CAPACITY = 10_000
"""Events that may wait for the disk; beyond that the oldest are dropped."""
BATCH = 500
PAUSE_S = 0.1
"""Pause between two batches, so that a burst of events takes few writes."""
RETRY_S = 5.0
HANG_S = 10.0
"""How long the disk may take before that counts as a failure."""
BLOCK = 1 << 16

KEYS = ("id", "at", "uptime_s", "kind", "source")
"""The keys of every event; all others are its details."""


class EventLog:
    """Stores events in a file, when the disk takes them. Never raises, never makes callers wait.

    Args:
        path: of the file; made with its folder when the first event comes.
        on_failure: called with a reason when events stop reaching the file, and with None when they
            do again; from any thread and under the log's lock, so it must not block.
        most_bytes: of the file and its predecessor. A file that has half of them is renamed.
        retry_s: seconds between attempts, once one has failed.
    """

    def __init__(
        self, path: Path, on_failure: Callable[[str | None], None], most_bytes: int = MOST_BYTES,
        retry_s: float = RETRY_S, clock: Clock | None = None
    ) -> None:
        self._path = path
        self._on_failure = on_failure
        self._most_bytes = most_bytes
        self._retry_s = retry_s
        self._clock = clock or MonotonicClock()
        self._changed = threading.Condition()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=CAPACITY)
        self._failing = False
        self._closing = False
        self._writing_since: float | None = None
        self._writer = threading.Thread(target=self._write_all, name="event log", daemon=True)
        self._writer.start()

    def put(self, event: dict[str, Any]) -> None:
        """Have an event stored.

        Args:
            event: id (1, 2, 3 ...), at (ISO 8601, UTC), uptime_s, kind, source, and details that
                JSON can hold. Must not be changed afterwards.
        """
        with self._changed:
            self._waiting.append(event)
            since = self._writing_since
            if since is not None and self._clock.now() - since > HANG_S:
                self._note_failure(f"the disk has not answered for {HANG_S:g} s")
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Write the events that wait, and end; after `timeout` seconds do not wait any longer."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._writer.join(timeout)

    # ---- the writer's thread

    def _write_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                batch = list(islice(self._waiting, BATCH))
                last_attempt = self._closing
                self._writing_since = self._clock.now()
            if not batch:
                break
            written = self._write(batch)
            if last_attempt and not written:
                break
            with self._changed:
                self._writing_since = None
                self._changed.wait_for(lambda: self._closing, PAUSE_S if written else self._retry_s)

    def _write(self, batch: Sequence[dict[str, Any]]) -> bool:
        """Whether the batch is in the file now, without the events that JSON cannot hold."""
        lines: list[str] = []
        for event in batch:
            with suppress(TypeError, ValueError):
                lines.append(json.dumps(event) + "\n")
        data = "".join(lines).encode()
        try:
            if data:
                make_room(self._path, len(data), self._most_bytes)
                append_whole(self._path, data)
        except OSError as error:
            with self._changed:
                self._note_failure(reason_of(error))
            return False
        with self._changed:
            # The oldest of the batch may have been dropped while it was being written.
            while self._waiting and self._waiting[0]["id"] <= batch[-1]["id"]:
                self._waiting.popleft()
            self._note_failure(None)
        return True

    def _note_failure(self, reason: str | None) -> None:
        """Call `on_failure` if this has changed. Under the lock, so that the last call is right."""
        if self._failing != (reason is not None):
            self._failing = reason is not None
            self._on_failure(reason)


def read_events(
    path: Path, limit: int, before: int | None = None, kinds: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The events in a file, newest first, whether or not it is being written to.

    Args:
        limit: most events.
        before: only events with a smaller id. If None, the newest.
        kinds: only events of these kinds; if empty, of all.

    Returns:
        Events as they were put; none if there is no file yet.

    Raises:
        UserError: the file cannot be read.
    """
    events: list[dict[str, Any]] = []
    below = inf if before is None else before
    # As they stand in a line. A page with a filter has the whole file searched for a rare kind
    # every two seconds, and to parse a line takes many times as long as to search it.
    named = [json.dumps({"kind": kind})[1:-1].encode() for kind in kinds]
    try:
        for each in (path, older(path)):
            with suppress(FileNotFoundError, NotADirectoryError), open_regular(each) as file:
                lines = _lines_backwards(file)
                if named:
                    lines = (line for line in lines if any(name in line for name in named))
                for event in filter(None, map(_parsed, lines)):
                    if event["id"] < below:
                        below = event["id"]
                        if not kinds or event["kind"] in kinds:
                            events.append(event)
                    if len(events) >= limit:
                        return events
    except OSError as error:
        raise UserError(f"cannot read the events in {path}: {reason_of(error)}") from None
    return events


def _lines_backwards(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, the last one first."""
    rest, end = b"", file.seek(0, os.SEEK_END)
    while end:
        start = file.seek(max(0, end - BLOCK))
        rest, *lines = (file.read(end - start) + rest).split(b"\n")
        yield from reversed(lines)
        end = start
    yield rest


def _parsed(line: bytes) -> dict[str, Any] | None:
    """The event of a line; None if it is damaged."""
    with suppress(ValueError, RecursionError):
        event = json.loads(line)
        if isinstance(event, dict) and event.keys() >= set(KEYS) and isinstance(event["id"], int):
            return event
    return None
