"""Accepts connections. asyncio's own server has no limit, and logs a traceback for each failure.

Why it is correct. One callback of the event loop accepts, a few connections at a time, so that open
connections are served in between. A connection that cannot be accepted for lack of descriptors or
memory stays in the kernel's queue, and is tried again after a pause. A connection is counted before
anything is made for it, so a client that never finishes its TLS handshake is counted, too. Its
transport is made when it has sent something: a silent client costs a descriptor and little else.
Until then its socket is closed here, when it is readable and holds no data, as after `Connections`
has ended it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from rtagent.clock import Clock
from service.http.connections import Connections
from service.http.rate_limited_log import RateLimitedLog

AT_ONCE = 64
PAUSE_S = 0.1
HANDSHAKE_S = 10.0


class Listener:
    """Accepts on a listening socket until it is closed; to uvicorn it is an `asyncio.Server`.

    Args:
        sock: listening.
        make_protocol: makes the protocol of a connection.
        connections: the open connections.
        tls: the certificate. If None, there is no TLS.
        log: takes a line about what goes wrong.
    """

    def __init__(
        self, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol],
        connections: Connections, tls: ssl.SSLContext | None, clock: Clock, log: RateLimitedLog
    ) -> None:
        self._sock = sock
        self._make_protocol = make_protocol
        self._connections = connections
        self._tls = tls
        self._clock = clock
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._silent: set[socket.socket] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._retry: asyncio.TimerHandle | None = None
        sock.setblocking(False)
        self._loop.add_reader(sock.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._retry is not None:
            self._retry.cancel()
        self._loop.remove_reader(self._sock.fileno())
        for sock in list(self._silent):
            self._stop_watching(sock)
            sock.close()

    async def wait_closed(self) -> None:
        """Give up connections whose TLS handshake is not finished."""
        for task in list(self._opening):
            task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, peer = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if not self._connections.admit(sock, peer, self._clock.now()):
                sock.close()
                self._log("a connection was refused: every place is taken")
                continue
            sock.setblocking(False)
            self._silent.add(sock)
            self._loop.add_reader(sock.fileno(), self._begin, sock)

    def _begin(self, sock: socket.socket) -> None:
        """Serve a connection that has sent something, or close one that has ended."""
        try:
            sent = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = b""
        self._stop_watching(sock)
        if not sent:
            sock.close()
            return
        task = self._loop.create_task(self._open(sock))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _stop_watching(self, sock: socket.socket) -> None:
        """Wait no longer for the first data of a connection."""
        self._silent.discard(sock)
        self._loop.remove_reader(sock.fileno())

    async def _open(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._make_protocol, sock, ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
            )
        except OSError:
            # It has hung up, or does not know TLS.
            sock.close()

    def _pause(self, error: OSError) -> None:
        """Make room, and accept again after a pause."""
        self._log(f"no connection can be accepted: {error.strerror}")
        self._connections.make_room()
        self._loop.remove_reader(self._sock.fileno())
        self._retry = self._loop.call_later(
            PAUSE_S, self._loop.add_reader, self._sock.fileno(), self._accept
        )
