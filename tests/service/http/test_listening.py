"""Connections that send nothing, in the running service."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rtagent.clock import VirtualClock
from service.http.connections import Connections
from service.http.listening import Listener
from service.http.rate_limited_log import RateLimitedLog
from tests.forked import eventually
from tests.service.conftest import WITH_TOKEN, RunningService, Serving, closed

SILENT = 120


@pytest.fixture
def small(serving: Serving, backend: Any) -> Iterator[RunningService]:
    """A service that takes few connections and has little patience."""
    with serving(backend, most_connections=24, most_per_address=24, patience_s=1.0) as service:
        yield service


class Bench:
    """A listener in an event loop of the test, and the protocols that it has made."""

    def __init__(self) -> None:
        self.protocols: list[asyncio.Protocol] = []
        self.sock = socket.create_server(("127.0.0.1", 0))
        self.connections = Connections(9, 9, 10.0)
        clock = VirtualClock(0.0)
        log = RateLimitedLog(pytest.fail, clock)
        self.listener = Listener(
            self.sock, self._protocol, self.connections, None, clock, log
        )

    def connect(self) -> socket.socket:
        return socket.create_connection(self.sock.getsockname(), timeout=30.0)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30.0):
            while not condition():
                await asyncio.sleep(0.001)

    def _protocol(self) -> asyncio.Protocol:
        self.protocols.append(asyncio.Protocol())
        return self.protocols[-1]


def test_nothing_is_made_for_a_connection_before_it_says_something() -> None:
    async def scenario() -> None:
        bench = Bench()
        with bench.connect() as speaks, bench.connect() as silent, bench.connect() as left:
            await bench.until(lambda: len(bench.connections) == 3)
            left.close()
            # A connection that ends without data is forgotten, and no protocol is made for it.
            await bench.until(lambda: len(bench.connections) == 2)
            assert bench.protocols == []
            speaks.sendall(b"G")
            await bench.until(lambda: bench.protocols)
            bench.connections.end_silent(11.0)
            await bench.until(lambda: closed(silent))
            assert len(bench.protocols) == 1
            bench.listener.close()
            bench.sock.close()

    asyncio.run(scenario())


def test_silent_connections_are_closed_with_the_listener() -> None:
    async def scenario() -> None:
        bench = Bench()
        with bench.connect() as silent:
            await bench.until(lambda: len(bench.connections) == 1)
            bench.listener.close()
            assert closed(silent)
            assert len(bench.connections) == 0
            bench.sock.close()

    asyncio.run(scenario())


def test_silent_connections_shut_nobody_out(small: RunningService, caplog: Any) -> None:
    with ExitStack() as stack:
        stream = stack.enter_context(small.connect())
        stream.sendall(small.request("GET /v1/stats/stream?hz=20", WITH_TOKEN))
        assert stream.recv(1024).startswith(b"HTTP/1.1 200")
        silent = [stack.enter_context(small.connect()) for _ in range(SILENT)]
        with small.client() as client:
            assert client.get("/v1/status").status_code == 200
        assert sum(map(closed, silent)) >= SILENT - 24 - 1
        # The stream that is being answered stays; the last silent ones end when patience is over.
        assert eventually(lambda: all(map(closed, silent)))
        assert stream.recv(65_536)
    assert caplog.records == []


def test_a_head_that_is_never_whole_ends_the_connection(small: RunningService) -> None:
    answered = small.request("GET /livez", WITH_TOKEN)
    with ExitStack() as stack:
        slow = []
        begun = (b"", b"GET / HT", b"GET /livez HTTP/1.1\r\nHost: x\r\n", answered + b"GET /li")
        for sent in begun:
            slow.append(stack.enter_context(small.connect()))
            slow[-1].sendall(sent)
        assert slow[-1].recv(1024).startswith(b"HTTP/1.1 200")
        for sock in slow:
            assert eventually(lambda sock=sock: closed(sock))


def test_a_body_that_never_ends_is_answered(small: RunningService) -> None:
    # /livez needs no token, so anybody could keep a connection open this way.
    with small.connect() as slow:
        slow.sendall(small.request("GET /livez", WITH_TOKEN, "Content-Length: 100") + b"{")
        slow.settimeout(30.0)
        assert b" 408 " in slow.recv(4096).splitlines()[0]
        assert eventually(lambda: closed(slow))


def test_a_lack_of_descriptors_is_logged_once_and_over_when_it_is_over(
    small: RunningService, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    accept = socket.socket.accept
    lacking, refused = [True], []

    def fails(sock: socket.socket) -> Any:
        if lacking[0] and sock.getsockname()[1] == small.port:
            refused.append(sock)
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(sock)

    monkeypatch.setattr(socket.socket, "accept", fails)
    with caplog.at_level(logging.WARNING), small.connect() as waiting:
        waiting.sendall(small.request("GET /livez", WITH_TOKEN))
        assert eventually(lambda: len(refused) >= 3)
        lacking[0] = False
        assert waiting.recv(1024).startswith(b"HTTP/1.1 200")
    assert caplog.messages == ["no connection can be accepted: Too many open files"]
