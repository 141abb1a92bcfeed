"""The open connections: how many there may be, and how long each may wait without a request.

Why it is correct. All of it runs in the thread of the event loop. A connection either *waits* (for
its TLS handshake, for the head of a request, for the next request) or is being answered; the
application is called once the head of a request is complete, so `RequestTracking` around it knows.
A connection that waits for too long is ended. So is a connection whose place another client needs:
the oldest of those that have not sent a complete request, with its body, or else the one that has
been idle for longest. One with data that the event loop has not read yet is spared, for then it is
the service that is slow. Another connection that is being answered is never ended; streams and
sockets, which stay open for long, have a limit of their own (`places.py`). The end of an answer may
wait in the kernel for a slow client: as long as the client accepts some of it, the connection does
not count as waiting.

The socket itself tells whether a connection is still open: its transport closes it, and then its
descriptor is -1. So nothing has to be reported here when a connection ends, whatever ends it. This
module ends one with `shutdown`, which the transport notices like a client that hangs up; `close`
would take the descriptor away from the event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import resource
import socket
import sys
import termios
from collections import Counter
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rtagent.clock import Clock
from rtagent.processes.launch import MOST_OPEN, raise_descriptor_limit
from service.http.authorities import address_of

RESERVED_DESCRIPTORS = 256
"""Descriptors left for shared memory, files, threads, and connections that have just been ended."""
Peer = tuple[str, int, str]
"""A client's address and port, and the address of this machine that it has connected to: from one
port it may connect to several of them."""


@dataclass(eq=False)
class Connection:
    """One connection.

    Attributes:
        sock: the accepted socket, which its transport closes.
        address: the client's, as `counted_address` gives it.
        waiting_since: seconds. If None, it is being answered.
        has_asked: whether its last request came with its whole body.
        unsent_bytes: bytes that the kernel held for the client at the last look.
    """

    sock: socket.socket
    address: str
    waiting_since: float | None
    has_asked: bool = False
    unsent_bytes: int = 0

    @property
    def closed(self) -> bool:
        """Whether its transport has closed it."""
        return self.sock.fileno() < 0

    @property
    def has_unread_data(self) -> bool:
        """Whether the client has sent something that the event loop has not read yet."""
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def takes_its_answer(self) -> bool:
        """Whether the client has accepted some of its answer since the last call."""
        try:
            left = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
        except OSError:
            return False
        before, self.unsent_bytes = self.unsent_bytes, int.from_bytes(left, sys.byteorder)
        return self.unsent_bytes != before


class Connections:
    """The open connections.

    Args:
        most: connections at once.
        most_per_address: connections at once of one client's address.
        patience_s: how long a connection may wait for a complete request.
    """

    def __init__(self, most: int, most_per_address: int, patience_s: float) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._patience_s = patience_s
        # Oldest first.
        self._open: dict[Peer, Connection] = {}
        self._per_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(not each.closed for each in self._open.values())

    def admit(self, sock: socket.socket, peer: Any, now: float) -> bool:
        """Count a connection that was just accepted; end another one for it if there is no room.

        Returns:
            Whether it may stay; if not, all other connections are being answered.
        """
        key, address = _key(peer, sock.getsockname()), counted_address(str(peer[0]))
        # A connection that has been closed may have had the same port.
        self._drop(key)
        crowded = self._per_address[address] >= self._most_per_address
        if (crowded or len(self._open) >= self._most) and not self.make_room(
            address if crowded else None
        ):
            return False
        self._open[key] = Connection(sock, address, now)
        self._per_address[address] += 1
        return True

    def make_room(self, address: str | None = None) -> bool:
        """End the connection that matters least; among those of one address if it is given.

        Returns:
            Whether there is room now.
        """
        idle: tuple[float, Peer] | None = None
        for key, each in self._open.items():
            if address not in (None, each.address):
                continue
            if each.closed:
                self._drop(key)
                return True
            if each.has_unread_data:
                continue
            if not each.has_asked:
                self._end(key)
                return True
            if each.waiting_since is None:
                continue
            idle = min(idle or (each.waiting_since, key), (each.waiting_since, key))
        if idle is None:
            return False
        self._end(idle[1])
        return True

    def end_silent(self, now: float) -> None:
        """End connections that have waited for too long, and forget those that are closed."""
        for key, each in list(self._open.items()):
            if each.closed:
                self._drop(key)
            elif each.waiting_since is None:
                continue
            elif each.takes_its_answer():
                each.waiting_since = now
            elif now - each.waiting_since > self._patience_s:
                self._end(key)

    def find(self, peer: Any, own: Any = None) -> Connection | None:
        """The connection of a client, given as ASGI's `client` and `server`."""
        return None if peer is None else self._open.get(_key(peer, own))

    def _end(self, key: Peer) -> None:
        with contextlib.suppress(OSError):
            self._open[key].sock.shutdown(socket.SHUT_RDWR)
        self._drop(key)

    def _drop(self, key: Peer) -> None:
        if connection := self._open.pop(key, None):
            self._per_address[connection.address] -= 1
            if not self._per_address[connection.address]:
                del self._per_address[connection.address]


@dataclass(frozen=True)
class RequestTracking:
    """ASGI middleware that notes when answering a connection's request begins and ends."""

    app: ASGIApp
    connections: Connections
    clock: Clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self.connections.find(scope.get("client"), scope.get("server"))
        if connection is None:
            await self.app(scope, receive, send)
            return
        headers = dict(scope.get("headers", ()))
        has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        connection.has_asked = not has_body
        connection.waiting_since = None

        async def noticed() -> Message:
            message = await receive()
            connection.has_asked |= not message.get("more_body", False)
            return message

        try:
            await self.app(scope, noticed, send)
        finally:
            connection.waiting_since = self.clock.now()


def counted_address(host: str) -> str:
    """The address that a connection counts for; of IPv6 the /64 that one customer is given."""
    address = address_of(host)
    if address is None:
        return host
    if address.version == 4 or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def descriptor_limit() -> int:
    """Raise this process's limit of open descriptors as far as possible, and return it."""
    raise_descriptor_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else soft


def _key(peer: Any, own: Any) -> Peer:
    return str(peer[0]), int(peer[1]), str(own[0]) if own else ""
