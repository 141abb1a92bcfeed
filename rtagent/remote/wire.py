"""A connection to a policy server, and how it is made.

Why it is correct. An attempt to connect runs in a thread of its own, since looking up a name and a
handshake may take long; its outcome is fetched from a queue, in short waits. A client makes one
attempt at a time, and fetches its outcome before the next. If a cut link does not carry a message,
the kernel ends the connection (`TCP_USER_TIMEOUT`), also while the message is being sent. A slow
link takes long for a large message, so that is sent in pieces. The size of a message from the other
side is checked before it is read.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import websockets
from websockets.sync.client import ClientConnection, connect

from rtagent.clock import Clock
from rtagent.errors import UserError, reason_of
from rtagent.remote.protocol import ProtocolError, decode

_SILENT = logging.getLogger(f"{__name__}.websockets")
# The package logs, with a traceback, what ends a connection; its errors say it, too.
_SILENT.disabled = True

TOKEN_VARIABLE = "RTAGENT_REMOTE_TOKEN"
LARGEST_ANSWER = 16 << 20
PIECE_BYTES = 32 << 10
"""A longer message is sent as several frames of the protocol. Each leaves within a second over a
link of 256 kbit/s, and within two the supervisor waits for a heartbeat."""
UNACKNOWLEDGED_S = 1.0
"""A connection is given up when the other machine confirms nothing for so long; for longer, over a
slow link."""
LEAVING_S = 0.2
FIRST_OPEN_S = 5.0
"""How long the first attempt to connect may take, while nothing is known of the link."""
LEAST_OPEN_S = 0.4
OPEN_TIMES = 3.0
"""A further attempt to connect may take so many times as long as the last connection took."""


class LostError(Exception):
    """There is no connection any more, or none was made; one line that says why."""


class RefusedError(LostError):
    """The server answers and refuses; a further attempt will hardly change that."""


class Wire:
    """A websocket whose server has sent its metadata.

    Args:
        connection: open.
        metadata: the server's first message.
    """

    def __init__(self, connection: ClientConnection, metadata: dict[str, Any]) -> None:
        self._connection, self.metadata = connection, metadata

    def send(self, data: bytes, attend: Callable[[], None] = lambda: None) -> None:
        """Send a message, and call `attend` again and again meanwhile. Raises `LostError`."""
        try:
            self._connection.send(data if len(data) <= PIECE_BYTES else _pieces(data, attend))
        except (websockets.WebSocketException, OSError) as error:
            raise LostError(_reason(error)) from None

    def receive(self, seconds: float) -> bytes | str | None:
        """The next message; None if none comes in this time. Raises `LostError`."""
        try:
            return self._connection.recv(seconds)
        except TimeoutError:
            return None
        except (websockets.WebSocketException, OSError) as error:
            raise LostError(_reason(error)) from None

    def close(self) -> None:
        """Close the connection without waiting for the other side."""
        _close(self._connection)


class WebsocketDialer:
    """Connects to a policy server, one attempt at a time.

    Args:
        address: `ws://host:port` or `wss://host:port`, with a path if need be.
        token: of the server. If None, none is sent.
    """

    def __init__(self, address: str, token: str | None, clock: Clock) -> None:
        self._address, self._clock = address, clock
        self._headers = {"Authorization": f"Api-Key {token}"} if token else {}
        self._open_s = FIRST_OPEN_S
        self._outcomes: queue.SimpleQueue[Wire | LostError] = queue.SimpleQueue()

    def dial(self) -> None:
        """Begin an attempt."""
        threading.Thread(target=self._attempt, name="dial", daemon=True).start()

    def outcome(self, seconds: float) -> Wire | None:
        """The connection; None if the attempt goes on. Raises `LostError` or `RefusedError`."""
        try:
            found = self._outcomes.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(found, LostError):
            raise found
        return found

    def _attempt(self) -> None:
        try:
            self._outcomes.put(self._opened())
        except Exception as error:
            # The link may have become slower.
            self._open_s = min(FIRST_OPEN_S, 2.0 * self._open_s)
            lost = error if isinstance(error, LostError) else LostError(_reason(error))
            self._outcomes.put(lost)

    def _opened(self) -> Wire:
        began = self._clock.now()
        try:
            # Entered as a context, which works with older and newer versions of the package.
            connection = connect(
                self._address, compression=None, max_size=LARGEST_ANSWER, proxy=None,
                additional_headers=self._headers, open_timeout=self._open_s,
                close_timeout=LEAVING_S, ping_interval=None, logger=_SILENT,
            ).__enter__()
        except websockets.InvalidStatus as error:
            status = error.response.status_code
            kind = RefusedError if 400 <= status < 500 else LostError
            raise kind(_refusal(status)) from None
        except (websockets.InvalidHandshake, websockets.InvalidURI) as error:
            if isinstance(error.__cause__, EOFError | OSError):
                # A proxy before a server that is gone closes the connection.
                raise LostError("the connection was closed at once") from None
            raise RefusedError(f"no websocket there: {_reason(error)}") from None
        except AssertionError:
            # The package expects no greeting before its own request.
            raise RefusedError("no websocket there: the server speaks first") from None
        try:
            metadata = decode(connection.recv(self._open_s))
            # Over a slow link, it takes longer until a lost packet was sent again.
            slow_s = OPEN_TIMES * (self._clock.now() - began)
            with contextlib.suppress(OSError):
                for option, value in (
                    (socket.TCP_USER_TIMEOUT, round(max(UNACKNOWLEDGED_S, slow_s) * 1e3)),
                    # Else the kernel would take one piece of many as late as a third of its buffer.
                    (socket.TCP_NOTSENT_LOWAT, PIECE_BYTES),
                ):
                    connection.socket.setsockopt(socket.IPPROTO_TCP, option, value)
        except TimeoutError:
            _close(connection)
            raise LostError("no metadata came") from None
        except ProtocolError as error:
            _close(connection)
            raise RefusedError(str(error)) from None
        self._open_s = max(LEAST_OPEN_S, slow_s)
        return Wire(connection, metadata)


def token_of(environ: Mapping[str, str]) -> str | None:
    """The token of a policy server; None if there is none.

    Args:
        environ: variables of the environment.

    Raises:
        UserError: the token cannot be sent.
    """
    token = environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()):
        raise UserError(f"{TOKEN_VARIABLE} has characters that are not printable ASCII")
    return token or None


def _close(connection: ClientConnection) -> None:
    """Close a connection, also while its thread sends pongs that the other side does not read."""
    with contextlib.suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
    connection.close_socket()


def _pieces(data: bytes, attend: Callable[[], None]) -> Iterator[memoryview]:
    for start in range(0, len(data), PIECE_BYTES):
        attend()
        yield memoryview(data)[start : start + PIECE_BYTES]


def _refusal(status: int) -> str:
    if status in (401, 403):
        return "the server refuses the token (RTAGENT_REMOTE_TOKEN)"
    return f"the server answers with HTTP status {status}"


def _reason(error: BaseException) -> str:
    """Why a connection failed, in one line."""
    if isinstance(error, websockets.ConnectionClosed):
        cause = error.__cause__ or error.__context__
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        closing = error.sent or error.rcvd
        if closing is not None and closing.code == websockets.CloseCode.MESSAGE_TOO_BIG:
            # Who refuses a message begins to close.
            if error.rcvd_then_sent or error.sent is None:
                return "the question is larger than the server takes"
            return f"the message is larger than {LARGEST_ANSWER >> 20} MiB"
        return "the server has closed the connection"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not good: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"no TLS there: {error.reason.replace('_', ' ').lower()}"
    return reason_of(error)[:200]
