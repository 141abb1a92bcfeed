"""A policy server: answers the questions of every client that has the token.

Why it is correct. One thread runs the event loop and all connections; the policy is called in the
batcher's threads alone. A connection's next message is read when the answer to the last one has
been sent, so a client that asks much does not make others wait; pings are bounded, too
(`_Connection`). The size of messages and the number of connections are bounded, also of those that
never finish their handshake: without a descriptor left, asyncio would write tracebacks without end.
Pages in a browser, which name their site in `Origin`, are refused: any site that somebody visits
could connect to a server on that machine, which may have no token. A bad question ends its own
connection, with the reason as a text, as openpi's server does. The state of a recurrent policy
comes with the question and is returned with the answer, so clients do not share one; for a client
that sends none, the state after its last question is used.
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
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import Event

from rtagent.clock import Clock
from rtagent.errors import UserError, reason_of
from rtagent.memory.array_buffer import Floats
from rtagent.remote.answers import (
    ACTIONS,
    ANSWERS,
    OBSERVATION,
    OUTPUTS,
    PENDING,
    STATE,
    TIMING,
    VALUES,
)
from rtagent.remote.batching import Answered, Arrays, Batcher
from rtagent.remote.protocol import ProtocolError, decode, encode
from rtagent.remote.wire import TOKEN_VARIABLE

MOST_CLIENTS = 256
MOST_WAITING = 1
"""Frames of a client that wait for its answer; each may be as large as a message."""
MOST_SILENT = 256
"""Further connections at once, whose client has not been admitted."""
LEAST_MESSAGE = 1 << 20
MOST_FRAMES, COUNTED_BYTES = 512, 16 << 10
"""Frames of a client in what is read at once; they are counted after so many bytes of it."""
INTERNAL_ERROR = 1011
LEAVING_S = 1.0
SILENT_S, PROBE_S = 30, 10
"""Of a client that sends nothing: seconds until the kernel asks its machine whether it is there,
and seconds until it asks again."""
GONE_S = 60
"""A connection is ended when the client's machine has confirmed nothing, or has taken nothing of
the answers that wait for it, for so long."""


@dataclass(frozen=True)
class Served:
    """A policy, and its description for clients.

    Attributes:
        answer: takes observations (B, *shape), states (B, state) if there is a state, and pending
            actions (B, pending) if it needs them. Returns values or actions, (B, n), or (B, H, n)
            for consecutive ticks; and the next states (B, state) if there is a state.
        shape: of an observation.
        dtype: of its elements.
        outputs: number of discrete actions, or of components of a continuous action.
        discrete: whether the actions are discrete.
        state: size of the state that the policy carries from one inference to the next.
        pending: size of the pending actions that the policy needs.
        about: further metadata.
    """

    answer: Callable[..., Arrays]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    outputs: int
    discrete: bool
    state: int = 0
    pending: int = 0
    about: Mapping[str, Any] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """The first message to a client."""
        return {
            **self.about, ANSWERS: VALUES if self.discrete else ACTIONS, OUTPUTS: self.outputs,
            OBSERVATION: {"shape": list(self.shape), "dtype": self.dtype.name},
            STATE: self.state, PENDING: self.pending,
        }

    def blank(self) -> Arrays:
        """A question of zeros, with the state of the beginning and no pending action."""
        beside = (np.zeros(size, np.float32) for size in (self.state, self.pending) if size)
        return np.zeros(self.shape, self.dtype), *beside

    def question(self, message: Mapping[str, Any], carried: Floats) -> Arrays:
        """The arguments of `answer` for one question.

        Args:
            message: of a client.
            carried: (state,) after the last question of the same connection, for a client that
                sends no state.

        Raises:
            ProtocolError: an array is missing, or has another shape or kind of elements.
        """
        arrays = [_array(message, OBSERVATION, self.shape, self.dtype)]
        if self.state:
            known = {STATE: carried, **message}
            arrays.append(_array(known, STATE, (self.state,), carried.dtype))
        if self.pending:
            arrays.append(_array(message, PENDING, (self.pending,), carried.dtype))
        return tuple(arrays)

    def answer_message(self, answered: Answered) -> dict[str, Any]:
        """The message that answers a question."""
        (answer, *next_state), timing = answered.arrays, answered.timing
        actions = np.atleast_2d(answer)
        message: dict[str, Any] = {
            TIMING: {"infer_ms": timing.compute_s * 1e3, "queue_ms": timing.queue_s * 1e3}
        }
        if next_state:
            message[STATE] = next_state[0]
        if not self.discrete:
            return {ACTIONS: actions, **message}
        # Clients that do not know `values` find the best action.
        return {VALUES: answer, ACTIONS: actions.argmax(axis=-1, keepdims=True), **message}


def _array(
    message: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    found = message.get(name)
    if not isinstance(found, np.ndarray):
        raise ProtocolError(f"the question has no array {name!r}")
    if found.size != math.prod(shape) or found.dtype.kind != dtype.kind:
        raise ProtocolError(
            f"the {name} is {found.shape} {found.dtype}, and this policy sees {shape} {dtype}"
        )
    array = found.reshape(shape).astype(dtype)
    # A number that is too large for its type would begin again at the smallest.
    if dtype.kind == "u" and found.dtype.itemsize > dtype.itemsize and found.max(initial=0) > (
        largest := np.iinfo(dtype).max
    ):
        raise ProtocolError(f"the {name} has numbers above {largest}, the largest {dtype}")
    return array


@dataclass
class Counts:
    """What a server has done so far; the seconds are sums over all answers."""

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


class Listener(socket.socket):
    """A listening socket that ends the oldest silent connection where there are too many of them.

    A connection counts as silent from its beginning until its client is admitted, also where the
    client never ends a handshake.
    """

    _silent: tuple[socket.socket, ...] = ()

    def accept(self) -> tuple[socket.socket, Any]:
        sock, address = super().accept()
        # Its transport closes it.
        self._silent = tuple(each for each in self._silent if each.fileno() >= 0)
        if len(self._silent) >= MOST_SILENT:
            with contextlib.suppress(OSError):
                self._silent[0].shutdown(socket.SHUT_RDWR)
            self._silent = self._silent[1:]
        self._silent += (sock,)
        return sock, address

    def admit(self, number: int) -> None:
        """Leave the connection with this descriptor alone."""
        self._silent = tuple(each for each in self._silent if each.fileno() != number)


class _Connection(ServerConnection):
    """A client's connection, whose frames cost others little time and memory.

    A ping is answered as soon as it is read, and is no question: so a client that takes no answers
    is not read from, and one that sends thousands of frames at once is disconnected.
    """

    _frames = 0

    def data_received(self, data: bytes) -> None:
        self._frames = 0
        for start in range(0, len(data), COUNTED_BYTES):
            super().data_received(data[start : start + COUNTED_BYTES])
            if self._frames > MOST_FRAMES:
                self.transport.abort()
                return

    def process_event(self, event: Event) -> None:
        self._frames += 1
        super().process_event(event)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        # While many of its messages wait, it is not read from either.
        if not self.recv_messages.paused:
            self.transport.resume_reading()


class _ClientGoneError(Exception):
    """The client that has asked is gone."""


class PolicyServer:
    """Serves a policy until it is stopped.

    Args:
        token: that clients must send. If None, every client is served.
        parallel: number of batches that are computed at the same time.
    """

    def __init__(
        self, served: Served, clock: Clock, token: str | None = None, parallel: int = 1
    ) -> None:
        self._served, self._token = served, token
        self._batcher = Batcher(served.answer, clock, parallel)
        self._metadata = encode(served.metadata())
        self._stopped = asyncio.Event()
        self.counts = Counts()

    async def run(self, sock: Listener, tls: ssl.SSLContext | None = None) -> None:
        """Serve on a listening socket, over TLS if `tls` is given, until soon after `stop`."""
        size = sum(each.nbytes for each in self._served.blank())

        async def serve_client(connection: ServerConnection) -> None:
            sock.admit(connection.transport.get_extra_info("socket").fileno())
            await self._serve_client(connection)

        server = await serve(
            serve_client, sock=sock, compression=None, max_size=max(LEAST_MESSAGE, 4 * size),
            process_request=self._admit, ping_interval=None, close_timeout=LEAVING_S, ssl=tls,
            create_connection=_Connection, max_queue=MOST_WAITING,
        )
        await self._stopped.wait()
        server.close()
        self._batcher.close()
        # A policy that hangs must not keep the server.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 2.0 * LEAVING_S)

    def stop(self) -> None:
        """End `run`. Called in the event loop's thread."""
        self._stopped.set()

    def stop_at_signals(self) -> None:
        """End `run` at SIGTERM and SIGINT."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if request.path == "/healthz":
            return connection.respond(http.HTTPStatus.OK, "OK\n")
        if request.headers.get_all("Origin"):
            self.counts.refused += 1
            return connection.respond(http.HTTPStatus.FORBIDDEN, "pages of sites are refused\n")
        if not self._knows_token(request.headers.get_all("Authorization")):
            self.counts.refused += 1
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "wrong token\n")
        if self.counts.clients >= MOST_CLIENTS:
            self.counts.refused += 1
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "too many clients\n")
        return None

    def _knows_token(self, headers: list[str]) -> bool:
        if self._token is None:
            return True
        scheme, _, given = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
        same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._token.encode())
        return same and scheme.lower() in ("api-key", "bearer")

    async def _serve_client(self, connection: ServerConnection) -> None:
        self.counts.clients += 1
        try:
            await connection.send(self._metadata)
            carried = np.zeros(self._served.state, np.float32)
            async for question in connection:
                answer = await self._answer(connection, question, carried)
                carried = answer.get(STATE, carried)
                await connection.send(encode(answer))
        except (ConnectionClosed, _ClientGoneError):
            pass
        except ProtocolError as error:
            await self._refuse(connection, str(error))
        except Exception:
            await self._refuse(connection, traceback.format_exc())
        finally:
            self.counts.clients -= 1

    async def _answer(
        self, connection: ServerConnection, message: str | bytes, carried: Floats
    ) -> dict[str, Any]:
        if isinstance(message, str):
            raise ProtocolError("questions are binary messages")
        question = self._served.question(decode(message), carried)
        answered = await _unless_gone(connection, self._batcher.submit(*question))
        self.counts.note(answered)
        return self._served.answer_message(answered)

    async def _refuse(self, connection: ServerConnection, reason: str) -> None:
        self.counts.refused += 1
        try:
            await connection.send(reason)
            await connection.close(INTERNAL_ERROR, "see the message before")
        except ConnectionClosed:
            pass


async def _unless_gone(connection: ServerConnection, answer: Future[Answered]) -> Answered:
    """Wait for an answer. If the client goes before its computation begins, it is cancelled."""
    asked = asyncio.wrap_future(answer)
    gone = asyncio.ensure_future(connection.wait_closed())
    try:
        await asyncio.wait((asked, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        asked.cancel()
    if asked.cancelled():
        raise _ClientGoneError
    return asked.result()


def listen(host: str, port: int, token: str | None) -> Listener:
    """Bind a listening socket.

    Raises:
        UserError: the address cannot be bound, or other machines can reach it and there is no
            token.
    """
    try:
        six = ":" in host
        family = socket.AF_INET6 if six else socket.AF_INET
        # Python's default would refuse clients of IPv4 at the address ::.
        bound = socket.create_server((host, port), family=family, dualstack_ipv6=six)
        sock = Listener(fileno=bound.detach())
        # Connections inherit these options.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, SILENT_S), (socket.TCP_KEEPINTVL, PROBE_S),
            (socket.TCP_USER_TIMEOUT, GONE_S * 1000),
        ):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    # A kernel may have no IPv6; TypeError is raised for a name that no host can have.
    except (OSError, TypeError, ValueError) as error:
        reason = reason_of(error)
        raise UserError(
            f"cannot listen on {host} port {port}: {reason}; choose another --host or --port"
        ) from None
    address = ipaddress.ip_address(sock.getsockname()[0].partition("%")[0])
    if token is None and not address.is_loopback:
        sock.close()
        raise UserError(
            f"{host or address} can be reached from other machines: set a token in "
            f"{TOKEN_VARIABLE}, here and at the clients; or bind 127.0.0.1 and forward the "
            "port with ssh"
        )
    return sock
