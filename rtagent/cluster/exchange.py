"""The conversation of a buffer node with the learner: what is asked, repeated, answered, counted.

Why it is correct. The learner takes every share in once, whatever is repeated (`learner.py`), and
the buffer node takes every answer once (`buffer_node.py`). So this module may repeat what has no
answer, and forget a session at any time: what was on its way then may be learned from, but its
answer comes to nobody. Nothing here waits: calls are begun, and their results collected; the link
between is one of `link.py`, which delivers at once where nothing is emulated. Time is given with
every call, so tests need none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from rtagent.cluster.buffer_node import BufferNode, Sent, Settings
from rtagent.cluster.in_flight import InFlight
from rtagent.cluster.learner import Joining, Welcome
from rtagent.cluster.link import Direction, Emulation
from rtagent.cluster.message import Bytes, unpack
from rtagent.errors import UserError

MOST_IN_FLIGHT = 64
SMALL_BYTES = 256
"""What a call without a message is counted as."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 10.0
"""Between two attempts to join."""
LEAST_REPEAT_S = 1.0
"""A share without an answer is repeated after so long, or..."""
REPEAT_DELAYS = 4.0
"""...after so many of the smallest times from a share to its answer."""
WEIGHTS_WAIT_S = 2.0
"""How long the learner may wait for new weights before it says that there are none."""
CUT_S = 3.0
"""Without any answer for so long, and a wait for one, the link counts as cut."""


class Remote(Protocol):
    """Calls to the learner that do not wait."""

    def begin(self, method: str, *arguments: Any) -> Hashable:
        """Begin a call; what its result will be found under."""
        ...

    def finished(self) -> list[tuple[Hashable, Any]]:
        """The calls that have ended since the last time, each with its result or its exception."""
        ...


class Weights(NamedTuple):
    """New weights.

    Attributes:
        updates: behind them.
        values: (parameters,) float32.
        age_s: from the update to the arrival here; the way here is estimated as half of the
            smallest round trip.
    """

    updates: int
    values: Any
    age_s: float


class Learned(NamedTuple):
    """A share that has been learned from.

    Attributes:
        sent: the share.
        loss: of its batch.
        updates: of the learner after it.
        seconds: that the update took.
    """

    sent: Sent
    loss: float
    updates: int
    seconds: float


@dataclass
class _Call:
    """A call on its way, or begun."""

    method: str
    arguments: tuple[Any, ...]
    seq: int | None = None


class Exchange:
    """One node's side of the conversation.

    Args:
        remote: reaches the learner.
        node: makes shares.
        joining: how the node introduces itself.
        first_state: gives all that is learned, as a message, to a learner that has nothing yet.
        emulation: of the link.
        random: gives numbers in [0, 1).

    Attributes:
        share: transitions that the learner asks this node for.
        in_flight: measures the link.
        connected: whether the learner answers.
        since: when `connected` last changed, seconds.
        reason: why it is not connected; None if it is.
        snapshots: answers to `ask_for_snapshot`.
    """

    def __init__(
        self,
        remote: Remote,
        node: BufferNode,
        joining: Joining,
        first_state: Callable[[], Bytes],
        emulation: Emulation,
        random: Callable[[], float],
        now: float,
    ) -> None:
        self._remote, self._node, self._joining = remote, node, joining
        self._first_state = first_state
        self._emulation = emulation
        self._up, self._down = Direction(emulation, random), Direction(emulation, random)
        self._calls: dict[Hashable, _Call] = {}
        self._welcome: Welcome | None = None
        self._begun = False
        self._sent_at: dict[int, float] = {}
        self._version = 0
        self._asked_weights: float | None = None
        self._asked_join: float | None = None
        self._pause_s, self._try_at = FIRST_PAUSE_S, now
        self._heard = now
        self._learned: deque[Learned] = deque()
        self._weights: Weights | None = None
        self.in_flight = InFlight(MOST_IN_FLIGHT)
        self.share = joining.config.learning.batch_size
        self.connected, self.since = False, now
        self.reason: str | None = "the learner has not been reached yet"
        self.snapshots: deque[Bytes] = deque()

    @property
    def node_name(self) -> str:
        """The name under which the node has joined."""
        return self._joining.node

    @property
    def has_room(self) -> bool:
        """Whether another share may be sent."""
        ready = self.connected and self._begun
        return ready and len(self._node.under_way) < self.in_flight.limit

    def send(self, settings: Settings, now: float) -> bool:
        """Make and send a share; whether there was one to make."""
        sent = self._node.make(self.share, settings, now)
        if sent is None:
            return False
        self._send(sent, now)
        return True

    def ask_for_snapshot(self, now: float) -> None:
        """Ask for all that is learned; it comes into `snapshots`, unless the link is cut."""
        self._call(_Call("snapshot", ()), SMALL_BYTES, now)

    def advance(self, now: float) -> None:
        """Do all that is due: join, deliver, collect, repeat."""
        for call in self._up.arrived(now):
            self._calls[self._remote.begin(call.method, *call.arguments)] = call
        for ticket, result in self._remote.finished():
            done = self._calls.pop(ticket, None)
            if done is not None:
                self._down.send(now, _size(result), (done, result))
        for done, result in self._down.arrived(now):
            self._take(done, result, now)
        if self._welcome is None:
            self._join(now)
        else:
            self._repeat(now)
            self._ask_for_weights(now)
        waiting = bool(self._node.under_way) or self._welcome is None
        if self.connected and waiting and now - self._heard > self._patience_s:
            self._cut("no answer", now)

    def learned(self) -> list[Learned]:
        """The shares that were answered since the last call."""
        found = list(self._learned)
        self._learned.clear()
        return found

    def weights(self) -> Weights | None:
        """The newest weights, once."""
        found, self._weights = self._weights, None
        return found

    @property
    def next_arrival(self) -> float | None:
        """When the link delivers next, seconds; None: nothing is on its way."""
        times = [each for each in (self._up.next_arrival, self._down.next_arrival) if each]
        return min(times, default=None)

    # ---- what is due

    @property
    def _patience_s(self) -> float:
        return CUT_S + REPEAT_DELAYS * self.in_flight.delay_s

    def _call(self, call: _Call, size: int, now: float) -> None:
        self._node.counts.bytes_up += size
        self._up.send(now, size, call)

    def _send(self, sent: Sent, now: float) -> None:
        assert self._welcome is not None
        self._sent_at[sent.seq] = now
        arguments = (self._joining.node, self._welcome.session, sent.block)
        self._call(_Call("offer", arguments, sent.seq), len(sent.block), now)

    def _join(self, now: float) -> None:
        waited = None if self._asked_join is None else now - self._asked_join
        if now < self._try_at or (waited is not None and waited < self._patience_s):
            return
        self._asked_join = now
        self._call(_Call("join", (self._joining,)), SMALL_BYTES, now)

    def _repeat(self, now: float) -> None:
        """Send again what is neither being worked on nor answered in time."""
        busy = {call.seq for call in self._calls.values()}
        after = max(LEAST_REPEAT_S, REPEAT_DELAYS * self.in_flight.delay_s)
        for sent in list(self._node.under_way.values()):
            if sent.seq not in busy and now - self._sent_at[sent.seq] > after:
                self._send(sent, now)

    def _ask_for_weights(self, now: float) -> None:
        asked = self._asked_weights
        if asked is not None and now - asked < WEIGHTS_WAIT_S + self._patience_s:
            return
        self._asked_weights = now
        assert self._welcome is not None
        arguments = (self._joining.node, self._version, WEIGHTS_WAIT_S)
        self._call(_Call("weights", arguments), SMALL_BYTES, now)

    # ---- what comes back

    def _take(self, call: _Call, result: Any, now: float) -> None:
        self._node.counts.bytes_down += _size(result)
        if isinstance(result, BaseException):
            self._fail(call, result, now)
            return
        self._heard = now
        if call.method == "join":
            self._take_welcome(result, now)
        elif call.method == "offer":
            self._take_answer(call, result, now)
        elif call.method == "weights":
            self._take_weights(result)
        elif call.method == "snapshot":
            self.snapshots.append(result)
        elif call.method == "begin":
            self._begun = True
        if self._welcome is not None and not self.connected:
            self.connected, self.since, self.reason = True, now, None
            self._pause_s = FIRST_PAUSE_S

    def _take_welcome(self, welcome: Welcome, now: float) -> None:
        if self._welcome is not None and welcome.session <= self._welcome.session:
            return
        self._welcome, self._asked_join = welcome, None
        self._node.begin_session()
        self._sent_at.clear()
        self.in_flight.forget()
        self.share, self._begun = welcome.share, welcome.begun
        self._version, self._asked_weights = 0, None
        if not welcome.begun:
            block = self._first_state()
            self._call(_Call("begin", (block,)), len(block), now)

    def _take_answer(self, call: _Call, block: Bytes, now: float) -> None:
        answer = unpack(block)
        if self._welcome is None or call.arguments[1] != self._welcome.session:
            return
        sent = self._node.answered(answer)
        if sent is None:
            return
        self.in_flight.answered(self._sent_at.pop(sent.seq), now)
        self.share = int(answer.values["share"])
        values = answer.values
        self._learned.append(Learned(
            sent, float(values["loss"]), int(values["updates"]), float(values["seconds"])
        ))

    def _take_weights(self, block: Bytes | None) -> None:
        self._asked_weights = None
        if block is None:
            return
        message = unpack(block)
        self._version = int(message.values["version"])
        age_s = float(message.values["age_s"]) + self._emulation.rtt_s / 2
        values = np.asarray(message.arrays["weights"])
        self._weights = Weights(int(message.values["updates"]), values, age_s)

    def _fail(self, call: _Call, error: BaseException, now: float) -> None:
        """A call has not worked: whatever the reason, the node joins anew."""
        if call.method == "weights":
            self._asked_weights = None
        if call.method == "snapshot" and isinstance(error, UserError):
            return
        self._cut(str(error).strip().splitlines()[0] if str(error).strip() else repr(error), now)
        self._welcome, self._asked_join = None, None
        self._try_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _cut(self, reason: str, now: float) -> None:
        if self.connected:
            self.connected, self.since = False, now
        self.reason = reason


def _size(result: Any) -> int:
    return len(result) if isinstance(result, np.ndarray) else SMALL_BYTES
