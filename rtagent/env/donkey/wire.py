"""A client's socket, which never blocks; what it does not take at once waits in an outbox."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from rtagent.env.donkey.protocol import LONGEST_FROM_SIMULATOR, LineDecoder, Message, from_client

LARGEST_OUTBOX = 1 << 16
RECEIVE = 1 << 18
MOST_RECEIVED = 1 << 23
"""Most bytes taken by one `receive`, so that a flood cannot hold up the caller."""

Address = tuple[int, Any]
"""Address family and socket address."""


class Wire:
    """One connection at a time, closed at first; a message has `longest` bytes at most.

    Attributes:
        decoder: of what this connection receives.
    """

    def __init__(self, longest: int = LONGEST_FROM_SIMULATOR) -> None:
        self._longest = longest
        self._sock: socket.socket | None = None
        self.decoder = LineDecoder(longest)
        self._outbox = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket, connected or connecting."""
        return self._sock is not None

    @property
    def busy(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outbox)

    def connect(self, address: Address) -> None:
        """Begin to connect, or raise OSError; once the socket can be written, `check` it."""
        family, where = address
        self._sock = socket.socket(family, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        if family != socket.AF_UNIX:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._sock.connect_ex(where)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))

    def check(self) -> None:
        """Raise an OSError if the connection could not be made."""
        assert self._sock is not None
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def wait(self, seconds: float, *, writing: bool) -> tuple[bool, bool]:
        """Wait until the socket can be read or written; not at all if messages are left.

        Args:
            seconds: the longest wait.
            writing: whether to wait for writing, too.

        Returns:
            Whether there is something to read, and whether the socket can be written, if `writing`.

        Raises:
            OSError: the socket is broken.
        """
        assert self._sock is not None
        pending = self.decoder.pending
        news = select.poll()
        news.register(self._sock, select.POLLIN | select.POLLOUT * writing)
        events = sum(found for _, found in news.poll(0.0 if pending else 1000.0 * seconds))
        writable = writing and bool(events & (select.POLLOUT | select.POLLERR))
        return pending or bool(events & ~select.POLLOUT), writable

    def receive(self) -> Iterator[Message | None]:
        """The objects that have arrived, in `MOST_RECEIVED` bytes at most; None for no message.

        If the caller stops in the middle, the next call goes on there.

        Raises:
            OSError: the other side has closed the connection, or it is broken.
            ProtocolError: a message is longer than permitted.
        """
        yield from self.decoder.feed()
        taken = 0
        while taken < MOST_RECEIVED and self._sock is not None:
            try:
                data = self._sock.recv(RECEIVE)
            except BlockingIOError:
                return
            if not data:
                raise OSError("the simulator has closed the connection")
            taken += len(data)
            yield from self.decoder.feed(data)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message, or as much of it as the socket takes now.

        Raises:
            OSError: the connection is broken, or the other side has long taken nothing.
        """
        self._outbox += from_client(message)
        if len(self._outbox) > LARGEST_OUTBOX:
            raise OSError("the simulator takes no messages")
        self.flush()

    def flush(self) -> None:
        """Send what waits, or as much of it as the socket takes now; OSError if it is broken."""
        assert self._sock is not None
        with contextlib.suppress(BlockingIOError):
            sent = self._sock.send(self._outbox)
            del self._outbox[:sent]

    def close(self) -> None:
        """Close the socket and forget what was on its way; may be called twice."""
        if self._sock is not None:
            self._sock.close()
        self._sock = None
        self.decoder = LineDecoder(self._longest)
        self._outbox.clear()
