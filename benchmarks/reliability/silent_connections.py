"""Connections that send nothing, held by a thread; one that ends is replaced within a second."""

from __future__ import annotations

import resource
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DESCRIPTORS = 4096
EVERY_S = 0.05


@contextmanager
def silent_connections(port: int, count: int) -> Iterator[None]:
    """A context in which `count` connections to a port of this machine are held."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if most == resource.RLIM_INFINITY else min(DESCRIPTORS, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    stop = threading.Event()
    thread = threading.Thread(target=_hold, args=(port, count, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _hold(port: int, count: int, stop: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        while not stop.wait(EVERY_S):
            missing = count - len(selector.get_map())
            for _ in range(min(missing, round(count * EVERY_S))):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
                selector.register(sock, selectors.EVENT_READ)
            for key, _ in selector.select(0):
                _close(selector, key)
        for key in list(selector.get_map().values()):
            _close(selector, key)


def _close(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    selector.unregister(key.fileobj)
    assert isinstance(key.fileobj, socket.socket)
    with suppress(OSError):
        key.fileobj.close()
