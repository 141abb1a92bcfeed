"""Connections that send nothing, held by a thread; one that ends is replaced within a second."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import threading

DESCRIPTORS = 4096
EVERY_S = 0.05


class SilentConnections:
    """Holds `count` connections to a port of this machine while the `with` block runs.

    Attributes:
        ended: connections that the other side has closed.
    """

    def __init__(self, port: int, count: int) -> None:
        self._address = ("127.0.0.1", port)
        self._count = count
        self.ended = 0

    def __enter__(self) -> SilentConnections:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS if most == resource.RLIM_INFINITY else min(DESCRIPTORS, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _hold(self) -> None:
        with selectors.DefaultSelector() as selector:
            while not self._stop.wait(EVERY_S):
                missing = self._count - len(selector.get_map())
                for _ in range(min(missing, round(self._count * EVERY_S))):
                    sock = socket.socket()
                    sock.setblocking(False)
                    sock.connect_ex(self._address)
                    selector.register(sock, selectors.EVENT_READ)
                for key, _ in selector.select(0):
                    self.ended += 1
                    self._close(selector, key)
            for key in list(selector.get_map().values()):
                self._close(selector, key)

    def _close(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        selector.unregister(key.fileobj)
        assert isinstance(key.fileobj, socket.socket)
        with contextlib.suppress(OSError):
            key.fileobj.close()
