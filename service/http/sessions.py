"""Sessions of browsers, and the one-time codes that open them.

A code is part of the address that is printed. It opens one session, and expires soon, so a copy in
a browser's history or in a log is worthless. A session is named by a random number that reveals
nothing about the token; it ends after a week, or when it is revoked. The file holds only digests,
so reading it opens nothing. The file outlives the daemon; with another token, its content is void.

Times are those of a clock that nobody sets; in the file they are on the wall clock, because they
outlive the machine's uptime. A session of the file that would last longer than `SESSION_S` was made
before the wall clock was set back, and is void.

Why it is correct. One process at a time writes the file, and writes it whole: `rtagent serve`
before it starts the service, then the service. There everything else of this module runs in the
event loop, which starts no write before the last one has ended.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from rtagent.errors import UserError
from rtagent.files.atomic_write import atomic_write
from rtagent.supervisor.state_dir import read_private

FILE_NAME = "sessions.json"
CODE_S = 600.0
SESSION_S = 7 * 86_400.0
MOST_CODES = 16
MOST_SESSIONS = 64
"""With one more, the oldest ends."""
_LONGEST_FILE = 32_768
_BYTES = 24
_UNREADABLE = (
    OSError, UserError, AttributeError, KeyError, TypeError, ValueError, OverflowError,
    RecursionError,
)
"""What reading a damaged file raises."""


def uptime() -> float:
    """Seconds since the machine's start, in which it may have slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_clock() -> float:
    """Seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Sessions:
    """The sessions of one daemon.

    Args:
        token: of the daemon; sessions of another token are void.
        path: of their file, in the state directory. If None, they are kept in memory only.
        now: seconds, of a clock that nobody sets.
        wall: the wall clock.
    """

    def __init__(
        self, token: str, path: Path | None = None, now: Callable[[], float] = uptime,
        wall: Callable[[], float] = wall_clock,
    ) -> None:
        self._token_digest = _digest(token)
        self._path = path
        self._now, self._wall = now, wall
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        if path is not None:
            self._read(path)

    def new_code(self) -> str:
        """A code that opens one session within ten minutes."""
        return self._new_secret(self._codes, CODE_S, MOST_CODES)

    def new_session(self) -> str:
        """The name of a new session."""
        return self._new_secret(self._sessions, SESSION_S, MOST_SESSIONS)

    def redeem(self, code: str) -> bool:
        """Use up a code; returns whether it opens a session."""
        until = self._codes.pop(_digest(code), None)
        return until is not None and self._is_valid(until, CODE_S)

    def knows(self, session: str) -> bool:
        """Whether a session of this name exists and has not ended."""
        until = self._sessions.get(_digest(session))
        return until is not None and self._is_valid(until, SESSION_S)

    def end(self, session: str) -> bool:
        """End one session; returns whether it existed."""
        return self._sessions.pop(_digest(session), None) is not None

    def end_all(self) -> int:
        """End every session and every code; returns how many sessions there were."""
        ended = sum(self._is_valid(until, SESSION_S) for until in self._sessions.values())
        self._sessions.clear()
        self._codes.clear()
        return ended

    def content(self) -> bytes:
        """What the file should contain."""
        ahead = self._wall() - self._now()
        kept = {
            name: {digest: until + ahead for digest, until in table.items()}
            for name, table in (("codes", self._codes), ("sessions", self._sessions))
        }
        return json.dumps({"of": self._token_digest, **kept}).encode()

    def write(self, content: bytes) -> None:
        """Write what `content` returned into the file. From any thread.

        Raises:
            OSError: the file cannot be written, and is unchanged.
        """
        if self._path is not None:
            with atomic_write(self._path, f".{FILE_NAME}-") as write:
                write(content)

    def _new_secret(self, table: dict[str, float], lasts_s: float, most: int) -> str:
        for digest, until in list(table.items()):
            if not self._is_valid(until, lasts_s):
                del table[digest]
        while len(table) >= most:
            del table[next(iter(table))]
        secret = secrets.token_urlsafe(_BYTES)
        table[_digest(secret)] = self._now() + lasts_s
        return secret

    def _is_valid(self, until: float, lasts_s: float) -> bool:
        return 0.0 < until - self._now() <= lasts_s

    def _read(self, path: Path) -> None:
        # Without the file every browser has to log in again, and nothing else is lost.
        with suppress(*_UNREADABLE):
            kept = json.loads(read_private(path, "remove it", secret=True, longest=_LONGEST_FILE))
            if kept["of"] == self._token_digest:
                ahead = self._wall() - self._now()
                self._codes, self._sessions = (
                    {str(digest): float(until) - ahead for digest, until in kept[name].items()}
                    for name in ("codes", "sessions")
                )


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
