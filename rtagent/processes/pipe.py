"""The messages between a child and the supervisor: short ones, and neither waits for the other.

Why it is correct. The two ends are a pair of SEQPACKET sockets: the kernel takes and delivers a
message whole or not at all. A child that is stopped or killed in the middle of anything leaves no
half message behind. `receive` never waits. `send` does not wait either, unless it is asked to:
if the other end does not read, the message is not sent, and the return value says so. A message is
JSON: decoding it runs nothing and imports nothing, whatever a child sends; what cannot be decoded
becomes `None`.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from multiprocess import connection

from rtagent.clock import MonotonicClock

MOST_BYTES = 64 << 10
"""Most bytes of one message. A socket's usual buffer holds three of these."""
MOST_AT_ONCE = 64
"""Messages that one call receives: a child that never stops sending must not delay the others."""
RETRY_S = 0.005


class Pipe:
    """One end of the connection between child and supervisor, a SEQPACKET socket. Picklable."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Any, wait_s: float = 0.0) -> bool:
        """Send a message; whether it was sent. From one thread at a time.

        Args:
            message: what JSON can hold.
            wait_s: seconds to wait for the other end to read, if the socket is full.

        Raises:
            OSError: the other end is closed.
            ValueError: it is longer than `MOST_BYTES`.
        """
        packet = json.dumps(message).encode()
        if len(packet) > MOST_BYTES:
            raise ValueError(f"a message of {len(packet)} bytes; {MOST_BYTES} at most")
        clock = MonotonicClock()
        deadline = clock.now() + wait_s
        while True:
            try:
                self._end.send(packet, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if clock.now() >= deadline:
                    return False
                clock.sleep_until(min(deadline, clock.now() + RETRY_S))
            else:
                return True

    def receive(self, most: int = MOST_AT_ONCE) -> list[Any]:
        """The messages that have arrived, at most `most` of them. Never waits.

        Raises:
            EOFError: nothing is left, and the other end is closed.
            OSError: the connection is broken.
        """
        received: list[Any] = []
        while len(received) < most:
            try:
                packet = self._end.recv(MOST_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The other end was closed before it had read everything; what it sent is kept.
                continue
            if not packet:
                if not received:
                    raise EOFError
                break
            received.append(_decoded(packet))
        return received

    def recv(self) -> Any:
        """The next message; waits for it.

        Raises:
            EOFError: the other end is closed.
            OSError: the connection is broken.
        """
        packet = self._end.recv(MOST_BYTES + 1)
        if not packet:
            raise EOFError
        return _decoded(packet)

    def poll(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a message or the end; whether there is one."""
        return bool(connection.wait([self._end], timeout))

    @property
    def closed(self) -> bool:
        """Whether this end has been closed."""
        return self._end.fileno() < 0

    def fileno(self) -> int:
        """A descriptor that is readable when there is a message, or the end."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end."""
        self._end.close()


def open_pipe() -> tuple[Pipe, Pipe]:
    """Both ends of a new connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Pipe(ours), Pipe(theirs)


def _decoded(packet: bytes) -> Any:
    try:
        return json.loads(packet)
    except (ValueError, RecursionError):
        return None
