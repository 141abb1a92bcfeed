"""systemd's notification protocol: ready, status, stopping, and the watchdog.

Messages are datagrams to the socket that `NOTIFY_SOCKET` names. Without that variable nothing is
sent. Nothing waits for a socket that is full or gone: the next step tries again.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping

PINGS_PER_LIMIT = 3


class Systemd:
    """Keeps systemd informed about the daemon, one step at a time. Never waits and never raises.

    Args:
        environ: the variables that systemd sets for its services: `NOTIFY_SOCKET`, a path, or a
            name in the abstract namespace that begins with `@`; `WATCHDOG_USEC`, `WATCHDOG_PID`.

    Attributes:
        watchdog_s: seconds without a sign of life after which systemd ends this process. If None,
            systemd does not watch it.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket: socket.socket | None = None
        self.watchdog_s: float | None = None
        self._state: str | None = None
        self._ready = False
        self._pinged: float | None = None
        if address[:1] not in ("/", "@"):
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        self._socket = socket.socket(socket.AF_UNIX, kind)
        for_us = environ.get("WATCHDOG_PID") in (None, "", str(os.getpid()))
        limit = environ.get("WATCHDOG_USEC", "")
        if for_us and limit.isdecimal() and int(limit) > 0:
            self.watchdog_s = int(limit) / 1e6

    def step(self, now: float, state: str, fresh: Callable[[float], bool]) -> None:
        """Send the state if it has changed, and a sign of life when it is due.

        Args:
            now: seconds.
            state: of the run, as `rtagent.supervisor.status.run_state` names it.
            fresh: given the time, whether every role's heartbeat is fresh; called when a sign of
                life is due.
        """
        if state != self._state:
            begin = {"running": "" if self._ready else "READY=1\n", "stopping": "STOPPING=1\n"}
            if self._send(f"{begin.get(state, '')}STATUS={state}"):
                self._state = state
                self._ready = self._ready or state == "running"
        if self.watchdog_s is None:
            return
        due = self._pinged is None or now - self._pinged >= self.watchdog_s / PINGS_PER_LIMIT
        if due and fresh(now) and self._send("WATCHDOG=1"):
            self._pinged = now

    def close(self) -> None:
        """Send nothing more."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> bool:
        """Whether the message was sent."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.sendto(message.encode(), self._address)
                return True
        return False
