"""The simulator's end of the connections: one thread, many clients, frames on a fixed schedule.

Why it is correct. One thread owns everything; it waits in one place, for the next frame's time or
for a socket, whichever comes first. Frame k is due at the start plus k / fps, so lateness does not
add up; after a hold-up of more than `MOST_CAUGHT_UP` frames the rest is left out. No send blocks:
what a client does not take stays in its outbox, and the client gets no telemetry until the outbox
is empty. So it never gets half a message, and never holds up another client. The decoder bounds
what a client sends; `LARGEST_OUTBOX` and `_room` bound what it asks for.

Clients share one thread, so each is served in slices: the client that recently took the least of
the processor's time comes first, and a turn ends when its time is up. The longest slices draw a
road or large pictures. Each of these is followed by a rest of the same length, in which no client
is served that recently had such a slice: all heavy clients together get half of the time. An
exception while a client is served ends this client's connection alone.

The number of clients is limited. A client that sends nothing at first, or nothing for very long, is
disconnected; when no place is free, a client that has sent nothing yet, or nothing for long, makes
room for a new one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rtagent.clock import Clock
from rtagent.env.donkey.protocol import Message, ObjectDecoder, ProtocolError, from_simulator
from rtagent.env.donkey.race import Rules
from rtagent.env.donkey.session import Session, TrackKind

MOST_CAUGHT_UP = 5
LARGEST_OUTBOX = 1 << 23
"""Bytes: more than the two largest pictures."""
RECEIVE = 1 << 16
LONGEST_WAIT_S = 0.2
"""Longest time between two questions whether to go on."""
SLICE_S = 0.005
"""Longest time of reading one client's messages."""
READING_S = 0.02
"""Longest time of reading all clients' messages before frames are looked at."""
LONG_S = 0.02
"""Processor time of a slice above which a rest follows."""
HEAVY_FOR_S = 5.0
"""Time after such a slice in which the client is not served during a rest."""
HALF_LIFE_S = 1.0
"""Time in which the processor time that counts against a client is halved."""
FIRST_WORD_S = 10.0
"""Longest time until a client's first message."""
SILENCE_S = 600.0
"""Longest time between two messages; a client may learn meanwhile."""
GIVES_WAY_S = 60.0
"""Silence after which a client makes room when no place is free."""
MOST_PIXELS = 2 * 640 * 480
"""Most pixels of one client's cameras together."""
FREE_PIXELS = 2 * 320 * 240
"""Pixels that every client may have; beyond, all clients share `SHARED_BY` times `most_pixels`."""
SHARED_BY = 4

_log = logging.getLogger(__name__)
_CREDENTIALS = struct.Struct("3i")
"""SO_PEERCRED: pid, uid, gid."""


@dataclass
class Figures:
    """Counts since the start.

    Attributes:
        connections: accepted connections.
        turned_away: connections closed at once, for want of a place or as another process's.
        frames: telemetry frames sent.
        withheld: frames not sent, because the client had not taken the last or there was no time.
        left_out: frames that were never made, because the simulator was held up.
        malformed: objects that were not messages.
        refused: messages that could not be carried out.
        broken, silent, failed: clients that were disconnected: they sent or asked for too much,
            sent nothing, or an exception arose while they were served.
    """

    connections: int = 0
    turned_away: int = 0
    frames: int = 0
    withheld: int = 0
    left_out: int = 0
    malformed: int = 0
    refused: int = 0
    broken: int = 0
    silent: int = 0
    failed: int = 0


@dataclass(eq=False)
class Client:
    """A connected client.

    Attributes:
        heard_at: time of its last message, or of its connection.
        spoke: whether it has sent a message.
        spent: processor time that it has taken recently, seconds.
        heavy_until: until this time it is not served during a rest.
    """

    sock: socket.socket
    session: Session
    heard_at: float
    spoke: bool = False
    spent: float = 0.0
    heavy_until: float = 0.0
    decoder: ObjectDecoder = field(default_factory=ObjectDecoder)
    outbox: bytearray = field(default_factory=bytearray)

    @property
    def gone(self) -> bool:
        """Whether it has been disconnected."""
        return self.sock.fileno() < 0


class Simulator:
    """Serves clients on a listening socket.

    Args:
        listener: bound and listening; the simulator closes it.
        clock: time.
        fps: telemetry frames per second.
        seed: of roads and noise.
        track: the road of every scene. If None, each scene has its own.
        race: rules of the race that each client drives on its own. If None, no race.
        most_clients: further clients are turned away.
        most_pixels: most pixels of one client's cameras together.
        may_quit: whether a client may end the simulator.
        only_for: pid of the one process of this user that may connect; on a Unix socket only. If
            None, any process may.
        worked: gives the processor time of this thread, in seconds.
    """

    def __init__(
        self, listener: socket.socket, clock: Clock, *, fps: float = 20.0, seed: int = 0,
        track: TrackKind | None = None, race: Rules | None = None, most_clients: int = 16,
        most_pixels: int = MOST_PIXELS, may_quit: bool = False, only_for: int | None = None,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        listener.setblocking(False)
        self._listener, self._clock, self._worked = listener, clock, worked
        self._period = 1.0 / fps
        self._new_session = partial(Session, seed, track, race, may_quit=may_quit)
        self._most_clients, self._most_pixels = most_clients, most_pixels
        self._only_for = only_for
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._clients: dict[int, Client] = {}
        self._start = self._faded_at = self._rest_until = clock.now()
        self._frame = 1
        self._quit = False
        self.figures = Figures()

    @property
    def address(self) -> tuple[str, int]:
        """Address at which it listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def clients(self) -> int:
        """Number of connected clients."""
        return len(self._clients)

    def run(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Serve while `go_on()`, asked every `LONGEST_WAIT_S` or sooner, or until `quit_app`."""
        try:
            while go_on() and not self._quit:
                self.turn()
        finally:
            self.close()

    def turn(self) -> None:
        """Wait for the next frame or for sockets, and do what is due."""
        due = self._start + self._frame * self._period
        speaking = {client for client in self._clients.values() if client.decoder.pending}
        wait = 0.0 if speaking else min(max(due - self._clock.now(), 0.0), LONGEST_WAIT_S)
        for key, events in self._selector.select(wait):
            if key.fileobj is self._listener:
                self._accept()
                continue
            # A client that has just made room for another is not among them any more.
            client = self._clients.get(key.fd)
            if client and events & selectors.EVENT_READ:
                speaking.add(client)
            if client and events & selectors.EVENT_WRITE:
                with self._served(client):
                    self._flush(client)
        left = self._serve(speaking, self._read, READING_S)
        now = self._clock.now()
        if left and len(left) == len(speaking):
            # All of them rest; their sockets are readable, so `select` would not wait.
            self._clock.sleep_until(min(due, self._rest_until, now + SLICE_S))
            now = self._clock.now()
        if now >= due:
            self._make_frames(now)
            self._review_clients(now)

    def close(self) -> None:
        """Close every socket."""
        for client in list(self._clients.values()):
            self._drop(client)
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
        self._listener.close()
        self._selector.close()

    def _serve(
        self, clients: Iterable[Client], act: Callable[[Client], None], seconds: float
    ) -> list[Client]:
        """Serve clients, those that took least first, until the time is up; those not served."""
        until = self._clock.now() + seconds
        resting: list[Client] = []
        waiting = sorted(clients, key=lambda client: client.spent, reverse=True)
        while waiting and (now := self._clock.now()) < until:
            client = waiting.pop()
            if now < min(self._rest_until, client.heavy_until):
                resting.append(client)
            elif not client.gone:
                with self._served(client):
                    act(client)
        return waiting + resting

    @contextlib.contextmanager
    def _served(self, client: Client) -> Iterator[None]:
        """Note the processor time that a client takes; an exception ends its connection alone."""
        began, worked = self._clock.now(), self._worked()
        try:
            yield
        except Exception:
            _log.exception("a client is disconnected")
            self._drop(client, "failed")
        finally:
            took = self._worked() - worked
            client.spent += took
            if took > LONG_S and len(self._clients) > 1:
                now = self._clock.now()
                client.heavy_until = now + HEAVY_FOR_S
                self._rest_until = now + (now - began)

    def _make_frames(self, now: float) -> None:
        """Advance every car by the time that has passed, then send telemetry."""
        passed = int((now - self._start) / self._period) - self._frame + 1
        self._frame += passed
        steps = min(passed, MOST_CAUGHT_UP)
        self.figures.left_out += passed - 1
        driving = [
            client for client in self._clients.values()
            if client.session.synchronous_step is None and client.session.drive is not None
        ]
        for client in driving:
            with self._served(client):
                for _ in range(steps):
                    self._send(client, client.session.advance(self._period))
        self.figures.withheld += len(self._serve(driving, self._show, self._period))

    def _review_clients(self, now: float) -> None:
        """Disconnect silent clients, and count less of the time that each client took earlier."""
        kept = 0.5 ** ((now - self._faded_at) / HALF_LIFE_S)
        self._faded_at = now
        for client in list(self._clients.values()):
            client.spent *= kept
            if now - client.heard_at > (SILENCE_S if client.spoke else FIRST_WORD_S):
                self._drop(client, "silent")

    def _show(self, client: Client) -> None:
        """Send telemetry, unless the client has not taken all that was sent before."""
        session = client.session
        if client.gone or session.drive is None:
            return
        if client.outbox:
            self.figures.withheld += 1
            return
        telemetry = session.telemetry()
        if telemetry is not None:
            self.figures.frames += 1
            self._send(client, [telemetry])

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            # No descriptor is free; `select` would offer the connection again at once.
            self._clock.sleep_until(self._clock.now() + SLICE_S)
            return
        if not self._may_enter(sock):
            self.figures.turned_away += 1
            sock.close()
            return
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = self._new_session()
        session.room = partial(self._room, session)
        client = Client(sock, session, self._clock.now())
        self._clients[sock.fileno()] = client
        self._selector.register(sock, selectors.EVENT_READ)
        self.figures.connections += 1
        with self._served(client):
            self._send(client, session.greet())

    def _may_enter(self, sock: socket.socket) -> bool:
        """Whether the client may connect, and a place is free or can be freed."""
        if self._only_for is not None:
            peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(peer)
            if (pid, uid) != (self._only_for, os.getuid()):
                return False
        if len(self._clients) < self._most_clients:
            return True
        quietest = min(self._clients.values(), key=lambda client: (client.spoke, client.heard_at))
        if quietest.spoke and self._clock.now() - quietest.heard_at <= GIVES_WAY_S:
            return False
        self._drop(quietest, "silent")
        return True

    def _room(self, session: Session) -> int:
        """Pixels that a client's cameras may have now, given those of the other clients."""
        sessions = [client.session for client in self._clients.values()]
        others = sum(each.pixels for each in sessions if each is not session)
        return max(min(SHARED_BY * self._most_pixels - others, self._most_pixels), FREE_PIXELS)

    def _read(self, client: Client) -> None:
        """Carry out a client's messages, for `SLICE_S` at most."""
        ends = self._clock.now() + SLICE_S
        data = b""
        if not client.decoder.pending:
            try:
                data = client.sock.recv(RECEIVE)
            except BlockingIOError:
                return
            except OSError:
                pass
            if not data:
                self._drop(client)
                return
        malformed, refused = client.decoder.malformed, client.session.refused
        try:
            for message in client.decoder.feed(data):
                if message is not None:
                    client.heard_at, client.spoke = self._clock.now(), True
                    self._send(client, client.session.handle(message))
                if client.session.wants_telemetry:
                    self._show(client)
                self._quit = self._quit or client.session.quit_asked
                if client.gone or self._clock.now() >= ends:
                    break
        except ProtocolError:
            self._drop(client, "broken")
        self.figures.malformed += client.decoder.malformed - malformed
        self.figures.refused += client.session.refused - refused

    def _send(self, client: Client, messages: Iterable[Message]) -> None:
        for message in messages:
            client.outbox += from_simulator(message)
        if client.outbox and not client.gone:
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
            self._drop(client, "broken")
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.outbox else 0)
        if self._selector.get_key(client.sock).events != wanted:
            self._selector.modify(client.sock, wanted)
        if client.session.wants_telemetry and not client.outbox:
            self._show(client)

    def _drop(self, client: Client, reason: str = "") -> None:
        """Disconnect a client; `reason` is the figure that counts it."""
        if reason:
            setattr(self.figures, reason, getattr(self.figures, reason) + 1)
        if client.gone:
            return
        del self._clients[client.sock.fileno()]
        self._selector.unregister(client.sock)
        client.sock.close()
