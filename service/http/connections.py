"""The connections that are open: how many, and for how long without a request.

Why it is correct. All of it runs in the thread of the event loop. A connection either *waits* (for
its TLS handshake, for the head of a request, for the next one) or is being answered; the
application is called once a head is whole, so what stands around it knows. One that waits for too
long is ended, and so is one whose place somebody else needs: the oldest of those that have never
sent a whole request, or else the one that has been idle for longest; but none whose words wait to
be read, for then it is us who are slow. Who is being answered is never ended, and of streams and
sockets, which are answered for long, there is a bound of their own (`places.py`). The end of an
answer may wait in the kernel for a slow client: as long as it takes some of it, it does not wait.

Whether a connection is still there is the socket's own business: its transport closes it, and then
its descriptor is -1. So nothing has to be told here when one ends, whatever ends it. It is ended by
`shutdown`, which its transport notices like a client that hangs up; `close` would take the
descriptor away from under the event loop.
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

from starlette.types import ASGIApp, Receive, Scope, Send

from rtagent.clock import Clock
from rtagent.processes.launch import MOST_OPEN, raise_descriptor_limit
from service.http.authorities import address_of

RESERVED_DESCRIPTORS = 256
"""For shared memory, files, threads, and connections that were ended a moment ago."""
Peer = tuple[str, int]


@dataclass(eq=False)
class Connection:
    """One connection.

    Attributes:
        sock: the accepted socket, which its transport closes.
        address: whom it counts for.
        waiting_since: seconds. If None, it is being answered.
        has_asked: whether it has ever sent a whole request.
        untaken: bytes for it that were in the kernel when it was last looked.
    """

    sock: socket.socket
    address: str
    waiting_since: float | None
    has_asked: bool = False
    untaken: int = 0

    @property
    def gone(self) -> bool:
        """Whether its transport has closed it."""
        return self.sock.fileno() < 0

    @property
    def unread(self) -> bool:
        """Whether it has said something that the event loop has not come to yet."""
        try:
            return bool(self.sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def takes_answer(self) -> bool:
        """Whether it has taken some of its answer since this was last asked."""
        try:
            left = fcntl.ioctl(self.sock, termios.TIOCOUTQ, bytes(4))
        except OSError:
            return False
        before, self.untaken = self.untaken, int.from_bytes(left, sys.byteorder)
        return self.untaken != before


class Connections:
    """Who is connected.

    Args:
        most: connections at once.
        most_per_address: of one client's address.
        patience_s: how long a connection may wait for a whole request.
    """

    def __init__(self, most: int, most_per_address: int, patience_s: float) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._patience_s = patience_s
        # In the order in which they came.
        self._open: dict[Peer, Connection] = {}
        self._at: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(not each.gone for each in self._open.values())

    def admit(self, sock: socket.socket, peer: Any, now: float) -> bool:
        """Take in what was just accepted, in place of another connection if need be.

        Returns:
            Whether it may stay; if not, every place is taken by somebody who is being answered.
        """
        key, address = _key(peer), counted_address(str(peer[0]))
        # One that has been closed may have had the same port.
        self._drop(key)
        crowded = self._at[address] >= self._most_per_address
        if (crowded or len(self._open) >= self._most) and not self.make_room(
            address if crowded else None
        ):
            return False
        self._open[key] = Connection(sock, address, now)
        self._at[address] += 1
        return True

    def make_room(self, address: str | None = None) -> bool:
        """End the connection that is missed least, of one client if its address is given.

        Returns:
            Whether there is room now.
        """
        idle: tuple[float, Peer] | None = None
        for key, each in self._open.items():
            if address not in (None, each.address):
                continue
            if each.gone:
                self._drop(key)
                return True
            if each.waiting_since is None or each.unread:
                continue
            if not each.has_asked:
                self._end(key)
                return True
            idle = min(idle or (each.waiting_since, key), (each.waiting_since, key))
        if idle is None:
            return False
        self._end(idle[1])
        return True

    def end_silent(self, now: float) -> None:
        """End what has waited for too long, and forget what is gone."""
        for key, each in list(self._open.items()):
            if each.gone:
                self._drop(key)
            elif each.waiting_since is None:
                continue
            elif each.takes_answer():
                each.waiting_since = now
            elif now - each.waiting_since > self._patience_s:
                self._end(key)

    def find(self, peer: Any) -> Connection | None:
        """The connection of a client, as ASGI names it."""
        return None if peer is None else self._open.get(_key(peer))

    def _end(self, key: Peer) -> None:
        with contextlib.suppress(OSError):
            self._open[key].sock.shutdown(socket.SHUT_RDWR)
        self._drop(key)

    def _drop(self, key: Peer) -> None:
        if connection := self._open.pop(key, None):
            self._at[connection.address] -= 1
            if not self._at[connection.address]:
                del self._at[connection.address]


@dataclass(frozen=True)
class Noticing:
    """Notes when a connection's request begins and ends to be answered."""

    app: ASGIApp
    connections: Connections
    clock: Clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = self.connections.find(scope.get("client"))
        if connection is None:
            await self.app(scope, receive, send)
            return
        connection.has_asked, connection.waiting_since = True, None
        try:
            await self.app(scope, receive, send)
        finally:
            connection.waiting_since = self.clock.now()


def counted_address(host: str) -> str:
    """Whom a connection counts for: an address, of IPv6 the network that one customer is given."""
    address = address_of(host)
    if address is None:
        return host
    if address.version == 4 or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, 64), strict=False))


def descriptor_limit() -> int:
    """How many descriptors this process may have, after the limit is raised as far as possible."""
    raise_descriptor_limit()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_OPEN if soft == resource.RLIM_INFINITY else soft


def _key(peer: Any) -> Peer:
    return str(peer[0]), int(peer[1])
