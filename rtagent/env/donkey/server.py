"""The simulator's end of the wire: one thread, many clients, frames on an absolute schedule.

Why it is correct. One thread owns everything; it waits in one place, for the next frame's time or
for a socket, whichever comes first. Frame k is due at the start plus k / fps, so lateness does not
add up; after a hold-up of more than `MOST_CAUGHT_UP` frames the rest is left out. No send blocks:
what a client does not take stays in its outbox, it gets no telemetry until that is gone, and so it
never gets half a message, and never holds up another. What a client sends is bounded by the
decoder, and what it asks for by `LARGEST_OUTBOX`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rtagent.clock import Clock
from rtagent.env.donkey.protocol import Message, ObjectDecoder, ProtocolError, from_simulator
from rtagent.env.donkey.race import Rules
from rtagent.env.donkey.session import Session, TrackKind

MOST_CAUGHT_UP = 5
LARGEST_OUTBOX = 1 << 24
"""Bytes: several of the largest pictures."""
RECEIVE = 1 << 16
LONGEST_WAIT_S = 0.2
"""Between two looks at whether to stop."""


@dataclass
class Figures:
    """What the simulator has done.

    Attributes:
        connections: accepted.
        turned_away: because there were enough clients.
        frames: telemetry sent.
        withheld: telemetry not sent to a client that had not taken the last.
        left_out: frames that were never made, because the simulator was held up.
        malformed: what was no message.
        refused: messages that could not be carried out.
        broken: clients that were sent away: they sent or asked for too much.
    """

    connections: int = 0
    turned_away: int = 0
    frames: int = 0
    withheld: int = 0
    left_out: int = 0
    malformed: int = 0
    refused: int = 0
    broken: int = 0


@dataclass
class Client:
    """A connected client."""

    sock: socket.socket
    session: Session
    decoder: ObjectDecoder = field(default_factory=ObjectDecoder)
    outbox: bytearray = field(default_factory=bytearray)


class Simulator:
    """Serves clients on a listening socket.

    Args:
        listener: bound and listening; the simulator closes it.
        clock: time.
        fps: telemetry frames per second.
        seed: of roads and noise.
        track: the road of every scene; none: each scene has its own.
        race: rules of the race that each client drives on its own; none: no race.
        most_clients: further ones are turned away.
    """

    def __init__(
        self,
        listener: socket.socket,
        clock: Clock,
        *,
        fps: float = 20.0,
        seed: int = 0,
        track: TrackKind | None = None,
        race: Rules | None = None,
        most_clients: int = 16,
    ) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._clock = clock
        self._period = 1.0 / fps
        self._seed = seed
        self._track = track
        self._race = race
        self._most_clients = most_clients
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._clients: dict[int, Client] = {}
        self._start = clock.now()
        self._frame = 1
        self._quit = False
        self.figures = Figures()

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._clients)

    def run(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Serve until told to stop, or until a client sends `quit_app`; then close.

        Args:
            go_on: asked at least every `LONGEST_WAIT_S` seconds.
        """
        try:
            while go_on() and not self._quit:
                self.turn()
        finally:
            self.close()

    def turn(self) -> None:
        """Wait for the next frame or for sockets, and do what is due."""
        due = self._start + self._frame * self._period
        wait = min(max(due - self._clock.now(), 0.0), LONGEST_WAIT_S)
        for key, events in self._selector.select(wait):
            if key.fileobj is self._listener:
                self._accept()
                continue
            client = self._clients[key.fd]
            if events & selectors.EVENT_READ:
                self._read(client)
            if events & selectors.EVENT_WRITE and client.sock.fileno() >= 0:
                self._flush(client)
        now = self._clock.now()
        if now >= due:
            self._make_frames(now)

    def close(self) -> None:
        """Close every socket."""
        for client in list(self._clients.values()):
            self._drop(client)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
        self._listener.close()
        self._selector.close()

    def _make_frames(self, now: float) -> None:
        """Let the time that has passed pass for every car, then show it."""
        passed = int((now - self._start) / self._period) - self._frame + 1
        self._frame += passed
        steps = min(passed, MOST_CAUGHT_UP)
        self.figures.left_out += passed - 1
        for client in list(self._clients.values()):
            session = client.session
            if session.synchronous_step is not None:
                continue
            for _ in range(steps):
                self._send(client, session.advance(self._period))
            self._show(client)

    def _show(self, client: Client) -> None:
        """Send telemetry, unless the client is still busy with the last."""
        if client.sock.fileno() < 0 or client.session.drive is None:
            return
        if client.outbox:
            self.figures.withheld += 1
            return
        telemetry = client.session.telemetry()
        if telemetry is not None:
            self.figures.frames += 1
            self._send(client, [telemetry])

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sock, _ = self._listener.accept()
            if len(self._clients) >= self._most_clients:
                self.figures.turned_away += 1
                sock.close()
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            session = Session(seed=self._seed, track=self._track, rules=self._race)
            client = Client(sock, session)
            self._clients[sock.fileno()] = client
            self._selector.register(sock, selectors.EVENT_READ)
            self.figures.connections += 1
            self._send(client, client.session.greet())

    def _read(self, client: Client) -> None:
        try:
            data = client.sock.recv(RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(client)
            return
        before = client.decoder.malformed, client.session.refused
        try:
            for message in client.decoder.feed(data):
                self._send(client, client.session.handle(message))
                if client.session.wants_telemetry:
                    self._show(client)
                self._quit = self._quit or client.session.quit_asked
        except ProtocolError:
            self.figures.broken += 1
            self._drop(client)
        self.figures.malformed += client.decoder.malformed - before[0]
        self.figures.refused += client.session.refused - before[1]

    def _send(self, client: Client, messages: Iterable[Message]) -> None:
        for message in messages:
            client.outbox += from_simulator(message)
        if client.outbox and client.sock.fileno() >= 0:
            self._flush(client)

    def _flush(self, client: Client) -> None:
        try:
            sent = client.sock.send(client.outbox)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(client)
            return
        del client.outbox[:sent]
        if len(client.outbox) > LARGEST_OUTBOX:
            self.figures.broken += 1
            self._drop(client)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outbox else 0)
        if self._selector.get_key(client.sock).events != wanted:
            self._selector.modify(client.sock, wanted)
        if client.session.wants_telemetry and not client.outbox:
            self._show(client)

    def _drop(self, client: Client) -> None:
        if client.sock.fileno() < 0:
            return
        del self._clients[client.sock.fileno()]
        self._selector.unregister(client.sock)
        client.sock.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address cannot be had.
    """
    listener = socket.create_server((host, port))
    listener.setblocking(False)
    return listener
