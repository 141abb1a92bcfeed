"""Accepting connections: asyncio's own way has no bound, and logs a traceback for each it refuses.

Why it is correct. One callback of the event loop accepts, a few at a time, so that those who are
connected are served in between. What cannot be accepted for lack of descriptors or memory stays in
the kernel's queue; after a pause it is tried again. A connection is counted before anything is made
for it, so a client that never finishes its TLS handshake is counted, too. Its transport is made
when it has sent something: who sends nothing costs a descriptor and little else. Until then its
socket is closed here, when it can be read and holds nothing, as after `Connections` has ended it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from rtagent.clock import Clock
from service.http.connections import Connections
from service.http.seldom import Seldom

AT_ONCE = 64
PAUSE_S = 0.1
HANDSHAKE_S = 10.0


class Listener:
    """Accepts on a listening socket until it is closed; to uvicorn it is an `asyncio.Server`.

    Args:
        sock: listening.
        make_protocol: for each connection.
        connections: who is connected.
        tls: the certificate. If None, without TLS.
        clock: time.
        say: told what goes wrong.
    """

    def __init__(
        self, sock: socket.socket, make_protocol: Callable[[], asyncio.Protocol],
        connections: Connections, tls: ssl.SSLContext | None, clock: Clock, say: Seldom
    ) -> None:
        self._sock = sock
        self._make_protocol = make_protocol
        self._connections = connections
        self._tls = tls
        self._clock = clock
        self._say = say
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
            self._leave(sock)
            sock.close()

    async def wait_closed(self) -> None:
        """Leave those who are not yet connected alone."""
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
                self._say("a connection was refused: every place is taken")
                continue
            sock.setblocking(False)
            self._silent.add(sock)
            self._loop.add_reader(sock.fileno(), self._begin, sock)

    def _begin(self, sock: socket.socket) -> None:
        """Serve a connection that has sent something, or has ended."""
        try:
            sent = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = b""
        self._leave(sock)
        if not sent:
            sock.close()
            return
        task = self._loop.create_task(self._open(sock))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def _leave(self, sock: socket.socket) -> None:
        """Wait no longer for what a connection sends first."""
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
        """Wait for descriptors or memory, and see to it that there are some."""
        self._say(f"no connection can be accepted: {error.strerror}")
        self._connections.make_room()
        self._loop.remove_reader(self._sock.fileno())
        self._retry = self._loop.call_later(
            PAUSE_S, self._loop.add_reader, self._sock.fileno(), self._accept
        )
