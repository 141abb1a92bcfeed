"""The simulator's end of the wire: one thread, many clients, frames on an absolute schedule.

Why it is correct. One thread owns everything; it waits in one place, for the next frame's time or
for a socket, whichever comes first. Frame k is due at the start plus k / fps, so lateness does not
add up; after a hold-up of more than `MOST_CAUGHT_UP` frames the rest is left out. No send blocks:
what a client does not take stays in its outbox, it gets no telemetry until that is gone, and so it
never gets half a message, and never holds up another. What a client sends is bounded by the
decoder, and what it asks for by `LARGEST_OUTBOX` and `_room`.

Clients share one thread, so each is served in slices: whoever took least of the processor's time of
late comes first, and a turn ends when its time is up. The longest slices draw a road or large
pictures. Each is followed by a rest as long, in which nobody is served who has asked for such a
thing of late: the heavy ones share half of the time. What fails while a client is served costs this
client its connection.

Places are few. A client that says nothing at first, or nothing for very long, is sent away; when
all places are taken, whoever has been silent for long makes room.
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
"""Between two looks at whether to stop."""
SLICE_S = 0.005
"""Of reading what one client says."""
READING_S = 0.02
"""Of reading what all clients say, before it is time to look at the frames."""
LONG_S = 0.02
"""Of the processor's time: a slice that took longer is followed by a rest."""
HEAVY_FOR_S = 5.0
"""So long after such a slice, a client does not disturb a rest."""
HALF_LIFE_S = 1.0
"""In which half of what a client has taken is forgotten."""
FIRST_WORD_S = 10.0
"""Until a client's first message."""
SILENCE_S = 600.0
"""A client may learn between two steps."""
GIVES_WAY_S = 60.0
"""Of silence, after which a client makes room when all places are taken."""
MOST_PIXELS = 2 * 640 * 480
"""Of one client's cameras together."""
FREE_PIXELS = 2 * 320 * 240
"""Every client may have so many; beyond that, all clients share `SHARED_BY` times `most_pixels`."""
SHARED_BY = 4

_log = logging.getLogger(__name__)
_CREDENTIALS = struct.Struct("3i")
"""As the kernel gives them: pid, uid, gid."""


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
        broken, silent, failed: clients that were sent away: they sent or asked for too much, said
            nothing, or something failed while they were served.
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
        heard_at: when its last message came; at first when it connected.
        spoke: whether there was a message.
        spent: seconds of the processor that it has taken of late.
        heavy_until: until then it waits for the end of a rest.
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
        """Whether it has been sent away."""
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
        most_clients: further ones are turned away.
        most_pixels: of the cameras of one client together.
        may_quit: whether a client may end the simulator.
        only_for: pid of the one process of this user that may connect; on a Unix socket only.
        worked: gives the processor's time that this thread has had, in seconds.
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
        """Where it listens."""
        host, port = self._listener.getsockname()[:2]
        return str(host), int(port)

    @property
    def clients(self) -> int:
        """How many are connected."""
        return len(self._clients)

    def run(self, go_on: Callable[[], bool] = lambda: True) -> None:
        """Serve while `go_on`, asked at least every `LONGEST_WAIT_S`; `quit_app` ends it, too."""
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
            # Who has just made room for another one is none any more.
            client = self._clients.get(key.fd)
            if client and events & selectors.EVENT_READ:
                speaking.add(client)
            if client and events & selectors.EVENT_WRITE:
                with self._served(client):
                    self._flush(client)
        left = self._serve(speaking, self._read, READING_S)
        now = self._clock.now()
        if left and len(left) == len(speaking):
            # Those who rest could be read at once, again and again.
            self._clock.sleep_until(min(due, self._rest_until, now + SLICE_S))
            now = self._clock.now()
        if now >= due:
            self._make_frames(now)
            self._look_after(now)

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
        """Serve clients, who took least first, until the time is up; those who did not come."""
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
        """Note the time that a client takes; what fails costs nobody else."""
        began, worked = self._clock.now(), self._worked()
        try:
            yield
        except Exception:
            _log.exception("a client is sent away")
            self._drop(client, "failed")
        finally:
            took = self._worked() - worked
            client.spent += took
            if took > LONG_S and len(self._clients) > 1:
                now = self._clock.now()
                client.heavy_until = now + HEAVY_FOR_S
                self._rest_until = now + (now - began)

    def _make_frames(self, now: float) -> None:
        """Let the time that has passed pass for every car, then show it."""
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

    def _look_after(self, now: float) -> None:
        """Forget what clients took long ago, and send away who is silent."""
        kept = 0.5 ** ((now - self._faded_at) / HALF_LIFE_S)
        self._faded_at = now
        for client in list(self._clients.values()):
            client.spent *= kept
            if now - client.heard_at > (SILENCE_S if client.spoke else FIRST_WORD_S):
                self._drop(client, "silent")

    def _show(self, client: Client) -> None:
        """Send telemetry, unless the client is still busy with the last."""
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
            # No descriptor is left for it, and it would be offered again at once.
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
        """Whether there is a place, and it is for this client."""
        if self._only_for is not None:
            told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            pid, uid, _ = _CREDENTIALS.unpack(told)
            if (pid, uid) != (self._only_for, os.getuid()):
                return False
        if len(self._clients) < self._most_clients:
            return True
        quietest = min(self._clients.values(), key=lambda client: client.heard_at)
        if self._clock.now() - quietest.heard_at <= GIVES_WAY_S:
            return False
        self._drop(quietest, "silent")
        return True

    def _room(self, session: Session) -> int:
        """Pixels that a client may have now, beside those of the others."""
        sessions = [client.session for client in self._clients.values()]
        others = sum(each.pixels for each in sessions if each is not session)
        return max(min(SHARED_BY * self._most_pixels - others, self._most_pixels), FREE_PIXELS)

    def _read(self, client: Client) -> None:
        """Carry out what a client says, for a slice."""
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
        """Send a client away; `reason` is the figure that counts it."""
        if reason:
            setattr(self.figures, reason, getattr(self.figures, reason) + 1)
        if client.gone:
            return
        del self._clients[client.sock.fileno()]
        self._selector.unregister(client.sock)
        client.sock.close()


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; OSError if the address cannot be had."""
    return socket.create_server((host, port))
