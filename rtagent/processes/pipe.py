"""What a child and the supervisor say to each other: short messages, for which nobody waits.

Why it is correct. The two ends are a pair of SEQPACKET sockets: the kernel takes a message whole or
not at all, and hands it out so. A child that is stopped or killed in the middle of anything leaves
no half message behind. Listening never waits. Speaking does not either, unless it is asked to:
where the other end does not read, the message is not sent, and who speaks is told. A message is
JSON: taking it in runs nothing and imports nothing, whatever a child sends; what cannot be
understood is `None`.
"""

from __future__ import annotations

import json
import select
import socket
from typing import Any

from rtagent.clock import MonotonicClock

MOST_BYTES = 64 << 10
"""Of one message. A socket's usual buffer holds three of these."""
MOST_AT_ONCE = 64
"""Messages taken in by one call: who never stops talking must not keep others waiting."""
RETRY_S = 0.005


class Pipe:
    """One end of the line, a SEQPACKET socket, between child and supervisor. Picklable."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: Any, wait_s: float = 0.0) -> bool:
        """Say something that JSON can hold; whether it is on its way. From one thread at a time.

        Args:
            message: what to say.
            wait_s: seconds to wait for the other end to read, if it is behind.

        Raises:
            OSError: nobody is there any more.
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
        """What has been said meanwhile, at most so many messages. Never waits.

        Raises:
            EOFError: nothing is left, and the other end is closed.
            OSError: the line is broken.
        """
        heard: list[Any] = []
        while len(heard) < most:
            try:
                packet = self._end.recv(MOST_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The other end did not read everything before it left; what it said is still here.
                continue
            if not packet:
                if not heard:
                    raise EOFError
                break
            heard.append(_understood(packet))
        return heard

    def recv(self) -> Any:
        """The next message; waits for it.

        Raises:
            EOFError: the other end is closed.
            OSError: the line is broken.
        """
        packet = self._end.recv(MOST_BYTES + 1)
        if not packet:
            raise EOFError
        return _understood(packet)

    def poll(self, timeout: float) -> bool:
        """Wait so many seconds for something to hear, or for the end; whether it is there."""
        news = select.poll()
        news.register(self._end, select.POLLIN)
        return bool(news.poll(1000.0 * timeout))

    @property
    def closed(self) -> bool:
        """Whether this end has been closed."""
        return self._end.fileno() < 0

    def fileno(self) -> int:
        """Descriptor, readable when there is something to hear."""
        return self._end.fileno()

    def close(self) -> None:
        """Give up this end."""
        self._end.close()


def open_pipe() -> tuple[Pipe, Pipe]:
    """Both ends of a line."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return Pipe(ours), Pipe(theirs)


def _understood(packet: bytes) -> Any:
    try:
        return json.loads(packet)
    except (ValueError, RecursionError):
        return None
