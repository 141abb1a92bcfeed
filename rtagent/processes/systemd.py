"""systemd's notification protocol: ready, status, stopping, and the watchdog.

A datagram to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is sent; a socket
that is full or gone is never waited for, and what could not be sent is tried again at the next
step.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

NEEDED_ROLES = frozenset({"environment", "inference", "learner", "service"})
"""What a run cannot do without. Evaluation and recorder only watch."""
PINGS_PER_LIMIT = 3


@dataclass(frozen=True)
class Heartbeat:
    """How long ago a process gave a sign of life.

    Attributes:
        role: of the process.
        age_s: seconds since its last heartbeat; infinite if there is no process.
        limit_s: seconds after which it counts as hung.
    """

    role: str
    age_s: float
    limit_s: float


def every_role_fresh(heartbeats: Iterable[Heartbeat]) -> bool:
    """Whether each needed role has a process that works.

    One that hangs beside others of its role is the supervisor's business, which replaces it. A role
    of which nobody is left is what only a new start of the daemon can mend.

    Args:
        heartbeats: of every process that should exist.
    """
    fresh: dict[str, bool] = {}
    for beat in heartbeats:
        if beat.role in NEEDED_ROLES:
            fresh[beat.role] = fresh.get(beat.role, False) or beat.age_s <= beat.limit_s
    return all(fresh.values())


class Notifier:
    """Tells the service manager how this process is. Never waits and never raises.

    Args:
        address: a path, or a name in the abstract namespace that begins with `@`. If None, nobody
            listens.
        watchdog_s: seconds without `watchdog` after which the service manager ends this process. If
            None, it does not watch.
    """

    def __init__(self, address: str | None, watchdog_s: float | None = None) -> None:
        self.watchdog_s = watchdog_s
        self._address = address
        self._socket: socket.socket | None = None
        if address:
            kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            self._socket = socket.socket(socket.AF_UNIX, kind)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Notifier:
        """As the variables say that systemd sets for its services."""
        address = environ.get("NOTIFY_SOCKET", "")
        known = address[:1] in ("/", "@")
        for_us = environ.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        limit = environ.get("WATCHDOG_USEC", "")
        watched = known and for_us and limit.isdecimal() and int(limit) > 0
        return cls(address if known else None, int(limit) / 1e6 if watched else None)

    def ready(self, status: str) -> bool:
        """The service works; whether it could be said."""
        return self._send(f"READY=1\nSTATUS={_one_line(status)}")

    def status(self, text: str) -> bool:
        """One line for `systemctl status`; whether it could be said."""
        return self._send(f"STATUS={_one_line(text)}")

    def stopping(self) -> bool:
        """The service ends by itself; whether it could be said."""
        return self._send("STOPPING=1\nSTATUS=stopping")

    def watchdog(self) -> bool:
        """A sign of life; whether it could be given."""
        return self._send("WATCHDOG=1")

    def close(self) -> None:
        """Say no more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> bool:
        if self._socket is None or self._address is None:
            return False
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with contextlib.suppress(OSError):
            self._socket.sendto(message.encode(), address)
            return True
        return False


class Systemd:
    """Keeps systemd informed about the daemon, one step at a time.

    Args:
        notifier: speaks to it.
    """

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._ready = False
        self._said: str | None = None
        self._pinged: float | None = None

    def step(self, now: float, state: str, fresh: Callable[[float], bool]) -> None:
        """Say what has changed, and give a sign of life when one is due.

        Args:
            now: seconds.
            state: of the run, as `rtagent.supervisor.status.run_state` names it.
            fresh: given the time, whether every role's heartbeat is fresh; asked when a sign of
                life is due.
        """
        if state != self._said and self._say(state):
            self._said = state
            self._ready = self._ready or state == "running"
        limit = self._notifier.watchdog_s
        if limit is None:
            return
        due = self._pinged is None or now - self._pinged >= limit / PINGS_PER_LIMIT
        if due and fresh(now) and self._notifier.watchdog():
            self._pinged = now

    def close(self) -> None:
        """Say no more."""
        self._notifier.close()

    def _say(self, state: str) -> bool:
        if state == "stopping":
            return self._notifier.stopping()
        if state == "running" and not self._ready:
            return self._notifier.ready(state)
        return self._notifier.status(state)


def _one_line(text: str) -> str:
    """A line break would begin another message."""
    return " ".join(text.split())
