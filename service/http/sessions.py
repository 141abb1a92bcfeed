"""Sessions of browsers, and the one-time codes that open them.

A code stands in the address that is printed: it opens one session, and soon opens none any more, so
that what a browser's history or a log keeps of it is worth nothing. A session is a random number
that says nothing about the token; it ends after a week, or when it is revoked. The file holds their
digests alone, so whoever reads it can open nothing. It outlives the daemon, and all that is in it
ends when the token is another one.

Times are on the wall clock, because they outlive the machine's uptime. A session whose end lies
further ahead than a session lasts was made by a clock that has been set back since, and ends.

Why it is correct. The file is written whole by one process at a time: by `rtagent serve` before it
starts the service, then by the service, in whose event loop everything else here runs and which
begins no write before the last one has ended.
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
from rtagent.files.atomic_write import appearing
from rtagent.supervisor.state_dir import read_private

FILE_NAME = "sessions.json"
CODE_S = 600.0
SESSION_S = 7 * 86_400.0
MOST_CODES = 16
MOST_SESSIONS = 64
"""The oldest ends when there are more."""
_LONGEST_FILE = 32_768
_BYTES = 24
_UNREADABLE = (OSError, UserError, AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""How a file is refused that somebody has damaged."""


def wall_clock() -> float:
    """Seconds since 1970, for what outlives the machine's uptime."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Sessions:
    """The sessions of one daemon.

    Args:
        token: of the daemon; another one ends all sessions.
        path: of their file, in the state directory. If None, they are kept in memory.
        now: the wall clock.
    """

    def __init__(
        self, token: str, path: Path | None = None, now: Callable[[], float] = wall_clock
    ) -> None:
        self._of = _digest(token)
        self._path = path
        self._now = now
        self._codes: dict[str, float] = {}
        self._sessions: dict[str, float] = {}
        if path is not None:
            self._read(path)

    def new_code(self) -> str:
        """A code that opens one session within ten minutes."""
        return self._made(self._codes, CODE_S, MOST_CODES)

    def new_session(self) -> str:
        """What a browser shows from now on."""
        return self._made(self._sessions, SESSION_S, MOST_SESSIONS)

    def redeem(self, code: str) -> bool:
        """Whether a code opens a session; it does so once."""
        until = self._codes.pop(_digest(code), None)
        return until is not None and self._is_on(until, CODE_S)

    def knows(self, session: str) -> bool:
        """Whether it is a session that has not ended."""
        until = self._sessions.get(_digest(session))
        return until is not None and self._is_on(until, SESSION_S)

    def end(self, session: str) -> bool:
        """End one session; whether there was such a one."""
        return self._sessions.pop(_digest(session), None) is not None

    def end_all(self) -> int:
        """End every session and every code; how many sessions there were."""
        ended = sum(self._is_on(until, SESSION_S) for until in self._sessions.values())
        self._sessions.clear()
        self._codes.clear()
        return ended

    def content(self) -> bytes:
        """What the file should hold."""
        kept = {"of": self._of, "codes": self._codes, "sessions": self._sessions}
        return json.dumps(kept).encode()

    def write(self, content: bytes) -> None:
        """Put into the file what `content` gave. From any thread.

        Raises:
            OSError: it cannot be written; what was there is still there.
        """
        if self._path is not None:
            with appearing(self._path, f".{FILE_NAME}-") as write:
                write(content)

    def _made(self, table: dict[str, float], lasts_s: float, most: int) -> str:
        for digest, until in list(table.items()):
            if not self._is_on(until, lasts_s):
                del table[digest]
        while len(table) >= most:
            del table[next(iter(table))]
        secret = secrets.token_urlsafe(_BYTES)
        table[_digest(secret)] = self._now() + lasts_s
        return secret

    def _is_on(self, until: float, lasts_s: float) -> bool:
        return 0.0 < until - self._now() <= lasts_s

    def _read(self, path: Path) -> None:
        # Without the file everybody has to log in again, which is all that it is there to spare.
        with suppress(*_UNREADABLE):
            kept = json.loads(read_private(path, "remove it", secret=True, longest=_LONGEST_FILE))
            if kept["of"] == self._of:
                self._codes, self._sessions = (
                    {str(digest): float(until) for digest, until in kept[name].items()}
                    for name in ("codes", "sessions")
                )


def _digest(secret: str) -> str:
    return sha256(secret.encode("utf-8", "replace")).hexdigest()
