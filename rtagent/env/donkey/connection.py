"""The client's end of a connection to a simulator: one socket, no thread, bounded waits.

Why it is correct. Everything happens inside `poll`, on the caller's thread, and `poll` returns at
the time it is given. Sockets do not block; what a full socket does not take waits in an outbox. A
control that would have to wait is left out, for the next control is only a frame away; a reset or a
part of the handshake is never left out. A connection on which nothing usable has come for
`SILENCE_S` seconds of listening is given up, whatever the reason, and made anew after a pause that
grows and is randomised. In a race's lobby there is no telemetry yet, and pings are enough.

Whatever a simulator sends, one `_receive` takes in messages for `LOOK_S` at most, then decodes two
pictures at most, which are bounded in size. A message that raises an unexpected exception is
counted as malformed and left out.

A reset counts as done when telemetry shows it: earlier frames are not delivered, and the reset is
asked for again while it has no effect.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import Any

from rtagent.clock import Clock
from rtagent.env.donkey.protocol import Message, ProtocolError, number
from rtagent.env.donkey.telemetry import LONGEST_HIT, NO_HIT, Telemetry, longest_message, read
from rtagent.env.donkey.wire import Address, Wire

SILENCE_S = 1.9
"""Time of listening without telemetry after which a simulator counts as dead, within 2 s."""
LOADING_S = 20.0
"""Time that a simulator may take to load a scene."""
CONNECT_S = 2.0
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 3.0
WAITING = 6
"""Frames kept for the caller; a further frame pushes out the oldest."""
LOOK_S = 0.01
"""Longest time of taking in messages before `poll` looks at the time it was given."""
MOST_IN_ONE_LOOK = 1000
"""Most messages taken in within this time, for clocks that stand still meanwhile."""
RESET_AGAIN_S = 1.0
MOST_RESETS = 3
"""After so many requests any frame counts as the start."""
STANDING = 0.3
"""Highest speed of a car that has been reset."""
NEWS = 16

_log = logging.getLogger(__name__)


class State(Enum):
    """How far the connection has come."""

    DOWN = "down"
    CONNECTING = "connecting"
    LOADING = "loading"
    RUNNING = "running"


_COMPLAINTS = {
    State.CONNECTING: "does not answer", State.LOADING: "does not load the scene",
    State.RUNNING: "sends no telemetry that can be used",
}


class Connection:
    """Drives one car.

    Args:
        where: gives the addresses to try, when it is time to connect; may raise OSError.
        clock: time.
        scene: the scene to load.
        shape: of the pictures wanted, (height, width, 3).
        setup: messages sent once the car is loaded.
        max_cte: cross-track error beyond which a car does not stand at the start.
        chance: randomises the pauses.

    Attributes:
        state: now.
        race: `race_start`, `missed_checkpoint`, `DQ` and `race_stop`, the newest last, since the
            last start of a race; the caller clears it when an episode begins.
        lap_times: seconds, the newest last.
        count: figures by name: received, used, skipped, malformed, resized, resets, resets_again,
            resets_unconfirmed, controls_left_out, laps, connects, losses (given up while running).
        last_problem: why the connection was given up last.
        news: what has happened, a line each, the newest `NEWS` of them.
    """

    def __init__(
        self, where: Callable[[], Sequence[Address]], clock: Clock, *, scene: str,
        shape: tuple[int, int, int], setup: Sequence[Mapping[str, Any]] = (), max_cte: float = 8.0,
        chance: random.Random | None = None,
    ) -> None:
        self._where, self._clock = where, clock
        self._scene, self._shape, self._setup, self._max_cte = scene, shape, setup, max_cte
        self._chance = chance or random.Random()
        self.state = State.DOWN
        self.race: deque[str] = deque(maxlen=16)
        self.lap_times: deque[float] = deque(maxlen=100)
        self.count: Counter[str] = Counter(skipped=0)
        self.last_problem = ""
        self.news: deque[str] = deque(maxlen=NEWS)
        self._wire = Wire(longest_message(shape))
        self._addresses: deque[Address] = deque()
        self._frames: deque[Telemetry] = deque()
        self._hit = NO_HIT
        self._retry_at = self._since = self._polled_at = clock.now()
        self._pause = FIRST_PAUSE_S
        self._reset_asked_at: float | None = None
        self._resets_asked = 0
        self._in_lobby = False

    @property
    def running(self) -> bool:
        """Whether the car is loaded and the simulator has not fallen silent."""
        return self.state is State.RUNNING

    @property
    def resetting(self) -> bool:
        """Whether a reset has been asked for and telemetry does not show it yet."""
        return self._reset_asked_at is not None

    @property
    def waiting(self) -> int:
        """Frames that have not been taken."""
        return len(self._frames)

    def poll(self, until: float, *, enough: Callable[[], object]) -> None:
        """Send, receive and connect, until `enough` or until the time has come.

        Args:
            until: on the clock; what has arrived is taken in even if this time is past.
            enough: asked after everything that happens; true ends the call.
        """
        now = self._clock.now()
        if now - self._polled_at > SILENCE_S / 2:
            # The caller did not listen, so this silence does not mean that the simulator is dead.
            self._since = max(self._since, now - SILENCE_S / 2)
        while True:
            # What has arrived is taken in before anything is given up.
            self._exchange(0.0)
            now = self._polled_at = self._clock.now()
            self._do_due(now)
            if enough() or now >= until:
                return
            self._exchange(min(until, self._next_due()))

    def take(self) -> Telemetry:
        """Take the oldest frame that is waiting; it also tells the collisions of those left out."""
        self.count["used"] += 1
        frame, hit = self._frames.popleft(), self._hit
        self._hit = NO_HIT
        if hit == NO_HIT:
            return frame
        return replace(frame, hit=hit, info={**frame.info, "hit": hit})

    def skip(self) -> None:
        """Drop all waiting frames but the newest."""
        while len(self._frames) > 1:
            self._leave_out(self._frames.popleft().hit)

    def control(self, steering: float, throttle: float, brake: float) -> None:
        """Send a control; left out during a reset, or if the socket has not taken the last yet."""
        if not self.running or self.resetting:
            return
        if self._wire.busy:
            self.count["controls_left_out"] += 1
            return
        self._send_control(steering, throttle, brake)

    def reset(self) -> None:
        """Ask for the car to be put at the start; `resetting` until telemetry shows it."""
        if not self.running:
            return
        self.count["resets"] += 1
        self._resets_asked = 0
        self._ask_for_reset()

    def close(self) -> None:
        """Leave the scene and close the socket; may be called twice."""
        if self.state in (State.LOADING, State.RUNNING):
            self._send({"msg_type": "exit_scene"})
        self._disconnect()

    def _leave_out(self, hit: object) -> None:
        """Count a frame that is never taken, and keep what it says of a collision."""
        self.count["skipped"] += 1
        # Until a reset is done the collisions are those of the episode before.
        if isinstance(hit, str) and hit != NO_HIT and not self.resetting:
            self._hit = hit[:LONGEST_HIT]

    def _forget_frames(self) -> None:
        self._frames.clear()
        self._hit = NO_HIT

    def _ask_for_reset(self) -> None:
        self._forget_frames()
        self._reset_asked_at = self._clock.now()
        self._resets_asked += 1
        self._send_control(0.0, 0.0, 1.0)
        self._send({"msg_type": "reset_car"})

    def _patience_ends(self) -> float:
        """The time at which a silent simulator is given up."""
        limits = {State.CONNECTING: CONNECT_S, State.LOADING: LOADING_S, State.RUNNING: SILENCE_S}
        return self._since + limits[self.state]

    def _next_due(self) -> float:
        """The time at which `_do_due` must do something even if nothing arrives."""
        if self.state is State.DOWN:
            return self._retry_at
        if self._reset_asked_at is not None and self._resets_asked < MOST_RESETS:
            return min(self._patience_ends(), self._reset_asked_at + RESET_AGAIN_S)
        return self._patience_ends()

    def _do_due(self, now: float) -> None:
        """If it is time, connect, give up a silent simulator, or ask again for a reset."""
        if now < self._next_due():
            return
        if self.state is State.DOWN:
            self._connect(now)
        elif now >= self._patience_ends():
            self._give_up(f"the simulator {_COMPLAINTS[self.state]}")
        else:
            self.count["resets_again"] += 1
            self._ask_for_reset()

    def _connect(self, now: float) -> None:
        try:
            if not self._addresses:
                self._addresses.extend(self._where())
            self._wire.connect(self._addresses.popleft())
        except (OSError, UnicodeError, RuntimeError) as error:
            # A host name with an empty label, for example, cannot be encoded; a machine may have no
            # thread left that looks a name up.
            self._give_up(f"cannot connect: {error}")
            return
        self.state, self._since = State.CONNECTING, now

    def _exchange(self, until: float) -> None:
        """Wait for the socket until a time at most; then send and receive what it permits."""
        wait = max(until - self._clock.now(), 0.0)
        if not self._wire.is_open:
            if wait:
                self._clock.sleep_until(until)
            return
        connecting = self.state is State.CONNECTING
        try:
            readable, writable = self._wire.wait(wait, writing=connecting or self._wire.busy)
            if connecting:
                if writable:
                    self._wire.check()
                    self.state, self._since = State.LOADING, self._clock.now()
                return
            if writable:
                self._wire.flush()
            if readable:
                self._receive()
        except (OSError, ProtocolError) as error:
            self.count["malformed"] += isinstance(error, ProtocolError)
            self._give_up(str(error))

    def _receive(self) -> None:
        """Take in what has arrived, for a bounded time; only the newest frames are decoded."""
        frames: deque[Message] = deque()
        before, ends = self._wire.decoder.malformed, self._clock.now() + LOOK_S
        for message in islice(self._wire.receive(), MOST_IN_ONE_LOOK):
            if message is not None and message["msg_type"] == "telemetry":
                self.count["received"] += 1
                if len(frames) == WAITING:
                    self._leave_out(frames.popleft().get("hit"))
                frames.append(message)
            elif message is not None:
                try:
                    self._handle(message)
                except (ProtocolError, OSError):
                    raise
                except Exception:
                    self.count["malformed"] += 1
            if not self._wire.is_open:
                return
            if self._clock.now() >= ends:
                break
        malformed = self._wire.decoder.malformed - before
        if malformed and not self.count["malformed"]:
            self._report(f"a message that cannot be read: {self._wire.decoder.unread!r}")
        self.count["malformed"] += malformed
        while frames:
            self._take_frame(frames.popleft())
            if self._clock.now() >= ends:
                # The newest frame is worth more than the others.
                while len(frames) > 1:
                    self._leave_out(frames.popleft().get("hit"))

    def _take_frame(self, message: Message) -> None:
        if self.state is not State.RUNNING:
            return
        try:
            frame = read(message, self._shape)
        except Exception as error:
            if not self.count["malformed"]:
                self._report(f"telemetry that cannot be used: {error}")
            self.count["malformed"] += 1
            return
        self._since = self._clock.now()
        self._pause = FIRST_PAUSE_S
        self._in_lobby = False
        if frame.resized:
            if not self.count["resized"]:
                self._report("the simulator sends pictures of another size; they are resized")
            self.count["resized"] += 1
        if self.resetting and not self._at_start(frame):
            return
        if len(self._frames) == WAITING:
            self._leave_out(self._frames.popleft().hit)
        self._frames.append(frame)

    def _at_start(self, frame: Telemetry) -> bool:
        """Whether a frame shows that the reset has been done; if so, note it."""
        off = frame.cte is not None and self._max_cte < abs(frame.cte) <= 2 * self._max_cte
        standing = frame.speed <= STANDING and frame.hit == NO_HIT and not off
        if not standing and (
            self._resets_asked < MOST_RESETS
            or self._clock.now() - (self._reset_asked_at or 0.0) < RESET_AGAIN_S
        ):
            return False
        self.count["resets_unconfirmed"] += not standing
        self._reset_asked_at = None
        return True

    def _handle(self, message: Message) -> None:
        """Act on a message other than telemetry."""
        kind = message["msg_type"]
        if kind == "scene_selection_ready":
            self._send({"msg_type": "get_scene_names"})
        elif kind == "scene_names":
            names = message.get("scene_names")
            if isinstance(names, list) and self._scene not in names:
                raise ProtocolError(f"the simulator has no scene {self._scene}")
            self._send({"msg_type": "load_scene", "scene_name": self._scene})
        elif kind in ("car_loaded", "need_car_config"):
            self._in_lobby = kind == "need_car_config"
            self._start_driving()
        elif kind == "ping" and self._in_lobby:
            # A lobby, in which there is no telemetry, may last long; a ping shows that it does.
            self._since = self._clock.now()
        elif kind == "cross_start":
            with contextlib.suppress(ProtocolError):
                self.lap_times.append(number(message, "lap_time"))
                self.count["laps"] += 1
        elif kind in ("DQ", "missed_checkpoint", "race_start", "race_stop"):
            if kind == "race_start":
                # Earlier messages belong to the previous race.
                self.race.clear()
            self.race.append(kind)

    def _start_driving(self) -> None:
        self._send_control(0.0, 0.0, 1.0)
        for message in self._setup:
            self._send(message)
        if not self._wire.is_open:
            return
        if self.state is not State.RUNNING:
            self.count["connects"] += 1
            self._report(f"driving in {self._scene}")
        self.state, self._since = State.RUNNING, self._clock.now()
        self._forget_frames()

    def _send_control(self, steering: float, throttle: float, brake: float) -> None:
        control = {"steering": steering, "throttle": throttle, "brake": brake}
        self._send({"msg_type": "control", **control})

    def _send(self, message: Mapping[str, Any]) -> None:
        if not self._wire.is_open:
            return
        try:
            self._wire.send(message)
        except OSError as error:
            self._give_up(str(error))

    def _give_up(self, problem: str) -> None:
        """Close the connection, and connect again after a pause."""
        if self.running:
            self.count["losses"] += 1
            self._report(f"connection lost: {problem}; connecting anew")
        elif problem != self.last_problem:
            self._report(f"not connected: {problem}")
        self.last_problem = problem
        self._disconnect()
        pause = self._pause * self._chance.uniform(0.5, 1.5)
        self._retry_at = self._clock.now() + pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)

    def _report(self, line: str) -> None:
        self.news.append(line)
        _log.info("donkey: %s", line)

    def _disconnect(self) -> None:
        self._wire.close()
        self.state = State.DOWN
        self._retry_at = self._clock.now()
        self._forget_frames()
        self._reset_asked_at, self._in_lobby = None, False
