"""A policy server in a thread of the tests, and a server of the protocol as openpi's is."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from openpi_client import msgpack_numpy
from websockets.sync.server import ServerConnection, serve

from rtagent.clock import MonotonicClock
from rtagent.remote.server import PolicyServer, Served, listen
from rtagent.remote.wire import WebsocketDialer, Wire

SHAPE = (2, 3)


def dialled(address: str, token: str | None = None) -> Wire:
    """A connection of our client."""
    dialer = WebsocketDialer(address, token, MonotonicClock())
    dialer.dial()
    found = dialer.outcome(30.0)
    assert found is not None
    return found


def received(wire: Wire) -> bytes | str:
    """The next message of a server."""
    message = wire.receive(30.0)
    assert message is not None
    return message


def first_of_three(observations: np.ndarray) -> np.ndarray:
    """Prefers the action that the first number of each observation names, of three."""
    return np.eye(3, dtype=np.float32)[observations[:, 0, 0].astype(int)]


def ask(wire: Wire, question: bytes) -> bytes | str:
    """What a server says to a question."""
    wire.send(question)
    return received(wire)


class Waiting:
    """A policy as `first_of_three` that notes the sizes of its batches, and answers at `go`."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.go = threading.Event()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        self.sizes.append(len(observations))
        self.go.wait(60.0)
        return first_of_three(observations)


def served(answer: Callable[..., Any] = first_of_three, **changes: Any) -> Served:
    def arrays(*question: np.ndarray) -> tuple[np.ndarray, ...]:
        found = answer(*question)
        return found if isinstance(found, tuple) else (found,)

    values: dict[str, Any] = {
        "answer": arrays, "shape": SHAPE, "dtype": np.dtype(np.float32), "outputs": 3,
        "discrete": True,
    }
    return Served(**{**values, **changes})


@contextmanager
def policy_server(
    policy: Served, token: str | None = None, parallel: int = 1, port: int = 0,
    tls: ssl.SSLContext | None = None,
) -> Iterator[tuple[str, PolicyServer]]:
    """Our server; its address."""
    started = threading.Event()
    found: list[tuple[PolicyServer, asyncio.AbstractEventLoop]] = []

    async def main() -> None:
        server = PolicyServer(policy, MonotonicClock(), token, parallel)
        found.append((server, asyncio.get_running_loop()))
        started.set()
        await server.run(sock, tls)

    with listen("127.0.0.1", port, token) as sock:
        thread = threading.Thread(target=lambda: asyncio.run(main()))
        thread.start()
        assert started.wait(30.0)
        (server, loop), = found
        try:
            yield f"ws://127.0.0.1:{sock.getsockname()[1]}", server
        finally:
            loop.call_soon_threadsafe(server.stop)
            thread.join(30.0)


@contextmanager
def openpi_like(
    infer: Callable[[dict[str, Any]], Any], metadata: Any = None,
    tls: ssl.SSLContext | None = None,
) -> Iterator[str]:
    """The loop of openpi's server, with openpi's own packing; `infer` may give bytes or text."""

    def talk(connection: ServerConnection) -> None:
        packer = msgpack_numpy.Packer()
        first = packer.pack({"name": "pi"} if metadata is None else metadata)
        connection.send(metadata if isinstance(metadata, bytes | str) else first)
        for message in connection:
            action = infer(msgpack_numpy.unpackb(message))
            if isinstance(action, dict):
                action["server_timing"] = {"infer_ms": 2.0}
                action = packer.pack(action)
            connection.send(action)

    with serve(talk, "127.0.0.1", 0, compression=None, max_size=None, ssl=tls) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join(30.0)


def seen(action: int) -> np.ndarray:
    found = np.zeros(SHAPE, np.float32)
    found[0, 0] = action
    return found
