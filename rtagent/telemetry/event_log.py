"""What happened in a run: written by the supervisor, read by everybody, kept in SQLite.

Why it is correct. `put` appends to a bounded queue, under a lock that nobody holds while a disk is
at work, so the supervisor never waits for one. One thread owns the connection and writes whole
batches: a transaction is there or not, whenever the process is killed. An event leaves the queue
after its batch is committed, not before; ids are the primary key, so a batch that is written twice
changes nothing. The write-ahead log lets other processes read meanwhile. The thread is a daemon
thread, for a disk that hangs may hold it for ever, and must not hold up the end of the process. It
starts no processes: a child's death signal belongs to the thread that started it, and this one may
end before the run does.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from rtagent.clock import Clock, MonotonicClock
from rtagent.errors import UserError

EVENTS_FILE = "events.sqlite"
"""In the run's folder."""
CAPACITY = 10_000
"""Events that wait for the disk; then the oldest are dropped."""
MOST_KEPT = 100_000
"""Events in the file, 8 kB each at most: a run that lasts for years must not fill the disk."""
BATCH = 500
PAUSE_S = 0.1
"""Between two batches: a burst of events is then few transactions."""
RETRY_S = 5.0
HANG_S = 10.0
"""How long the disk may take before that counts as a failure."""
BUSY_S = 1.0

KEYS = ("id", "at", "uptime_s", "kind", "source")
"""What every event has; whatever else it holds are its details."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    uptime_s REAL NOT NULL,
    kind TEXT NOT NULL,
    source TEXT,
    details TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS events_by_kind ON events (kind);
"""
_TABLE_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'events'"
_NOT_PLAIN = (TypeError, ValueError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""How JSON and SQLite refuse a value."""


class EventLog:
    """Keeps events in a file, whenever the disk takes them. Never raises, never makes anybody wait.

    Args:
        path: of the file; made with its folder when the first event comes.
        on_failure: called with a reason when events stop reaching the file, and with None when they
            do again. From any thread and under the log's lock: it may only take note.
        retry_s: seconds between attempts, once one has failed.
        clock: time.
    """

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[str | None], None],
        retry_s: float = RETRY_S,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._on_failure = on_failure
        self._retry_s = retry_s
        self._clock = clock or MonotonicClock()
        self._changed = threading.Condition()
        self._waiting: deque[dict[str, Any]] = deque(maxlen=CAPACITY)
        self._dropped = 0
        self._failing = False
        self._closing = False
        self._writing_since: float | None = None
        self._connection: sqlite3.Connection | None = None
        self._writer = threading.Thread(target=self._write_all, name="event log", daemon=True)
        self._writer.start()

    @property
    def dropped(self) -> int:
        """Events that will never be in the file: too many waited, or they were not plain values."""
        return self._dropped

    def put(self, event: dict[str, Any]) -> None:
        """Have an event kept.

        Args:
            event: id (1, 2, 3 ...), at (ISO 8601, UTC), uptime_s, kind, source, and whatever else
                JSON can hold. Must not be changed afterwards.
        """
        with self._changed:
            self._dropped += len(self._waiting) == CAPACITY
            self._waiting.append(event)
            since = self._writing_since
            if since is not None and self._clock.now() - since > HANG_S:
                self._tell(f"the disk has not answered for {HANG_S:g} s")
            self._changed.notify()

    def close(self, timeout: float) -> None:
        """Write what waits, and end.

        Args:
            timeout: seconds; a disk that takes longer is left alone with what is still waiting.
        """
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
                self._changed.wait_for(
                    lambda: self._closing, PAUSE_S if written else self._retry_s
                )
        self._disconnect()

    def _write(self, batch: Sequence[dict[str, Any]]) -> bool:
        """Whether the batch is in the file now."""
        refused = 0
        try:
            with self._connected() as connection:
                for event in batch:
                    try:
                        connection.execute(
                            "INSERT OR IGNORE INTO events VALUES (?, ?, ?, ?, ?, ?)", _row(event)
                        )
                    except _NOT_PLAIN:
                        refused += 1
                connection.execute(
                    "DELETE FROM events WHERE id <= ?", (batch[-1]["id"] - MOST_KEPT,)
                )
        except (OSError, sqlite3.Error) as error:
            self._disconnect()
            with self._changed:
                self._tell(_reason(error))
            return False
        with self._changed:
            self._forget(batch)
            self._dropped += refused
            self._tell(None)
        return True

    def _forget(self, batch: Sequence[dict[str, Any]]) -> None:
        """Take a written batch from the queue."""
        left = 0
        while self._waiting and self._waiting[0]["id"] <= batch[-1]["id"]:
            self._waiting.popleft()
            left += 1
        # The others were dropped while they were being written: not lost after all.
        self._dropped -= len(batch) - left

    def _tell(self, reason: str | None) -> None:
        """Call the owner if this is news. Under the lock, so that the last call is the truth."""
        if self._failing != (reason is not None):
            self._failing = reason is not None
            self._on_failure(reason)

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and not self._path.exists():
            # Somebody has tidied up; SQLite would go on writing to a file that has no name.
            self._disconnect()
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._path, timeout=BUSY_S)
            self._connection.execute("PRAGMA journal_mode=WAL")
            # With a write-ahead log, NORMAL waits for the disk at checkpoints alone, not at each
            # commit. A power cut may cost the last events; OFF could cost the whole file.
            self._connection.execute("PRAGMA synchronous=NORMAL")
            # Events are written once and not read here: 256 KiB of cache are enough.
            self._connection.execute("PRAGMA cache_size=-256")
            self._connection.executescript(_SCHEMA)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()


def read_events(
    path: Path, limit: int, before: int | None = None, kinds: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The events in a file, newest first, whether or not it is being written to.

    Args:
        path: of the file.
        limit: most events.
        before: only those with a smaller id; none: the newest.
        kinds: only these; empty: all.

    Returns:
        Events as they were put; none if there is no file yet.

    Raises:
        UserError: the file is damaged, or cannot be read.
    """
    conditions: list[str] = []
    values: list[str | int] = []
    if before is not None:
        conditions.append("id < ?")
        values.append(before)
    if kinds:
        conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values.extend(kinds)
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    try:
        if not path.exists():
            return []
        address = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S)) as connection:
            if not connection.execute(_TABLE_IS_THERE).fetchall():
                return []
            rows = connection.execute(
                f"SELECT id, at, uptime_s, kind, source, details FROM events {where}"
                "ORDER BY id DESC LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [{**dict(zip(KEYS, row, strict=False)), **json.loads(row[-1])} for row in rows]
    except (OSError, TypeError, ValueError, sqlite3.Error) as error:
        raise UserError(
            f"cannot read the events in {path}: {_reason(error)}; move the file away if it stays so"
        ) from None


def _row(event: dict[str, Any]) -> tuple[Any, ...]:
    details = {key: value for key, value in event.items() if key not in KEYS}
    return (*(event[key] for key in KEYS), json.dumps(details))


def _reason(error: Exception) -> str:
    """Why, without the path: reasons are shown over HTTP."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
