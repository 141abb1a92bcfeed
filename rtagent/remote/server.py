"""A policy server: answers the observations of anybody who has the token.

Why it is correct. One thread runs the event loop and all connections; the policy is called in the
batcher's threads alone. A connection is read one message at a time, and its next message only when
the answer to the last one has been sent, so nobody can make others wait by asking much. Messages
and connections are bounded. A bad question ends its own connection, with the reason as a text, as
openpi's server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import ipaddress
import math
import signal
import socket
import ssl
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from rtagent.clock import Clock
from rtagent.errors import UserError
from rtagent.memory.array_buffer import Floats
from rtagent.remote.answers import ACTIONS, ANSWERS, OBSERVATION, OUTPUTS, TIMING, VALUES
from rtagent.remote.batching import Answered, Batcher
from rtagent.remote.protocol import ProtocolError, decode, encode
from rtagent.remote.wire import TOKEN_VARIABLE

MOST_CLIENTS = 256
LEAST_MESSAGE = 1 << 20
INTERNAL_ERROR = 1011
LEAVING_S = 1.0
SILENT_S, PROBE_S, PROBES = 30, 10, 3
"""A client whose machine is gone is told by the kernel: after so long it asks, so often."""


@dataclass(frozen=True)
class Served:
    """A policy and what is said of it.

    Attributes:
        answer: from observations (B, *shape) to values or actions: (B, n), or (B, H, n) for
            consecutive ticks.
        shape: of an observation.
        dtype: of its elements.
        outputs: discrete actions, or components of one.
        discrete: which of both.
        about: further metadata.
    """

    answer: Callable[[npt.NDArray[Any]], Floats]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    outputs: int
    discrete: bool
    about: Mapping[str, Any] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """The first message to a client."""
        return {
            **self.about, ANSWERS: VALUES if self.discrete else ACTIONS, OUTPUTS: self.outputs,
            OBSERVATION: {"shape": list(self.shape), "dtype": self.dtype.name},
        }

    def observation(self, message: Mapping[str, Any]) -> npt.NDArray[Any]:
        """The observation of a question.

        Raises:
            ProtocolError: there is none, or another one is needed.
        """
        found = message.get(OBSERVATION)
        if not isinstance(found, np.ndarray):
            raise ProtocolError(f"the question has no array {OBSERVATION!r}")
        if found.size != math.prod(self.shape) or found.dtype.kind != self.dtype.kind:
            raise ProtocolError(
                f"the observation is {found.shape} {found.dtype}, and this policy sees "
                f"{self.shape} {self.dtype}"
            )
        return found.reshape(self.shape).astype(self.dtype)

    def said(self, answered: Answered) -> dict[str, Any]:
        """The message that answers a question."""
        said, timing = np.atleast_2d(answered.answer), answered.timing
        timed = {"infer_ms": timing.compute_s * 1e3, "queue_ms": timing.queue_s * 1e3}
        if not self.discrete:
            return {ACTIONS: said, TIMING: timed}
        # Who knows no values finds the best action, too.
        best = said.argmax(axis=-1, keepdims=True)
        return {VALUES: answered.answer, ACTIONS: best, TIMING: timed}


@dataclass
class Counts:
    """What a server has done so far: answers, and the seconds that they took altogether."""

    clients: int = 0
    answers: int = 0
    refused: int = 0
    compute_s: float = 0.0
    queue_s: float = 0.0

    def note(self, answered: Answered) -> None:
        """Add an answer."""
        self.answers += 1
        self.compute_s += answered.timing.compute_s
        self.queue_s += answered.timing.queue_s


class PolicyServer:
    """Serves a policy until it is stopped.

    Args:
        served: the policy.
        clock: time.
        token: that clients must have. If None, everybody is served.
        parallel: batches that are computed at the same time.
    """

    def __init__(
        self, served: Served, clock: Clock, token: str | None = None, parallel: int = 1
    ) -> None:
        self._served, self._token = served, token
        self._batcher = Batcher(served.answer, clock, parallel)
        self._metadata = encode(served.metadata())
        self._stopped = asyncio.Event()
        self.counts = Counts()

    async def run(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        """Serve on a listening socket, over TLS if there is a context; ends soon after `stop`."""
        size = math.prod(self._served.shape) * self._served.dtype.itemsize
        server = await serve(
            self._talk, sock=sock, compression=None, max_size=max(LEAST_MESSAGE, 4 * size),
            process_request=self._admit, ping_interval=None, close_timeout=LEAVING_S, ssl=tls,
        )
        await self._stopped.wait()
        server.close()
        self._batcher.close()
        # Nobody waits for a policy that hangs.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 2.0 * LEAVING_S)

    def stop(self) -> None:
        """End `run`. From the event loop's thread."""
        self._stopped.set()

    def stop_at_signals(self) -> None:
        """End `run` at SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if not self._knows_token(request.headers.get("Authorization", "")):
            self.counts.refused += 1
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "wrong token\n")
        if self.counts.clients >= MOST_CLIENTS:
            self.counts.refused += 1
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "too many clients\n")
        return None

    def _knows_token(self, header: str) -> bool:
        if self._token is None:
            return True
        scheme, _, given = header.partition(" ")
        same = hmac.compare_digest(given.strip().encode(), self._token.encode())
        return same and scheme.lower() in ("api-key", "bearer")

    async def _talk(self, connection: ServerConnection) -> None:
        self.counts.clients += 1
        try:
            await connection.send(self._metadata)
            async for question in connection:
                await connection.send(encode(await self._answer(question)))
        except ConnectionClosed:
            pass
        except ProtocolError as error:
            await self._refuse(connection, str(error))
        except Exception:
            await self._refuse(connection, traceback.format_exc())
        finally:
            self.counts.clients -= 1

    async def _answer(self, question: str | bytes) -> dict[str, Any]:
        if isinstance(question, str):
            raise ProtocolError("questions are binary messages")
        observation = self._served.observation(decode(question))
        answered = await asyncio.wrap_future(self._batcher.submit(observation))
        self.counts.note(answered)
        return self._served.said(answered)

    async def _refuse(self, connection: ServerConnection, reason: str) -> None:
        self.counts.refused += 1
        try:
            await connection.send(reason)
            await connection.close(INTERNAL_ERROR, "see the message before")
        except ConnectionClosed:
            pass


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """Take the address to serve at.

    Raises:
        UserError: it cannot be had, or others can reach it and there is no token.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family)
        # Connections inherit it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, SILENT_S), (socket.TCP_KEEPINTVL, PROBE_S),
            (socket.TCP_KEEPCNT, PROBES),
        ):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot listen on {host} port {port}: {reason}") from None
    address = ipaddress.ip_address(sock.getsockname()[0].partition("%")[0])
    if token is None and not address.is_loopback:
        sock.close()
        raise UserError(
            f"{host} can be reached from other machines: set a token in {TOKEN_VARIABLE}, here and "
            "at the clients; or bind 127.0.0.1 and forward the port with ssh"
        )
    return sock
