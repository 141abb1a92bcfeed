"""The conversation of a buffer node with the learner: what is asked, repeated, answered, counted.

Why it is correct. The learner takes every share in once, whatever is repeated (`learner.py`), and
the buffer node takes every answer once (`buffer_node.py`). So this module may repeat what has no
answer, and forget a session at any time: what was on its way then may be learned from, but its
answer comes to nobody. A call that fails is one without an answer, unless the learner itself
refuses it: then the node joins anew. Nothing waits but `wait`: calls are begun, and their results
collected; the link between is one of `link.py`, which delivers at once where nothing is emulated.
Time is given with every call, so tests need none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rtagent.cluster.calls import Learned, Remote, StartFailedError, Weights
from rtagent.cluster.in_flight import InFlight
from rtagent.cluster.joining import Joining, Welcome
from rtagent.cluster.link import Direction, Emulation
from rtagent.cluster.message import Bytes, unpack
from rtagent.cluster.node import Node, Sent, Settings
from rtagent.errors import UserError

SMALL_BYTES = 256
"""What a call without a message is counted as."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 10.0
"""Between two attempts to join."""
REPEAT_DELAYS, LEAST_REPEAT_S = 4.0, 0.2
"""A share without an answer is repeated after so many of the smallest times from a share to its
answer, and so long at least: the learner takes in no later one before it."""
FIRST_REPEAT_S = 1.0
"""...and so long at least while that time is not known."""
WEIGHTS_WAIT_S = 2.0
"""How long the learner may wait for new weights before it says that there are none."""
OTHERS_EVERY_S = 2.0
"""Between two looks at how the other nodes are."""
CUT_S = 3.0
"""Without any answer for so long, and a wait for one, the link counts as cut."""
LOST_S, FIRST_ANSWER_S = 45.0, 120.0
"""...and for so long, or for so long before the first answer, the learner must be looked for anew.
One that is started, or started again, has much to load."""
START_FAILED_S = 10.0
"""...and for so long if the learner could not start. A gateway that ended sooner would count as a
process that dies at its start (`processes/restart_policy.py`)."""


@dataclass
class _Call:
    """A call on its way, or begun; `session` is the one in which it was made, `seqs` are
    the numbers of the shares in it."""

    method: str
    arguments: tuple[Any, ...]
    session: int | None
    seqs: tuple[int, ...] = ()


class Exchange:
    """One node's side of the conversation.

    Args:
        remote: reaches the learner.
        node: makes shares.
        joining: how the node introduces itself.
        first_state: gives all that is learned, as a message, to a learner that has nothing yet.
        emulation: of the link.
        random: gives numbers in [0, 1).
        now: seconds.
        since: when the link was cut, if this is not the first attempt.

    Attributes:
        share: transitions that the learner asks this node for.
        in_flight: measures the link.
        others: what the learner has said last of the other nodes, as JSON says it.
        connected: whether the learner answers.
        since: when `connected` last changed, seconds.
        reason: why it is not connected; None if it is.
        wants_snapshot: ask the learner for all that is learned until it comes; set by the user.
        snapshot: what came, as a message; taken, and set to None, by the user.
    """

    def __init__(
        self,
        remote: Remote,
        node: Node,
        joining: Joining,
        first_state: Callable[[], Bytes],
        emulation: Emulation,
        random: Callable[[], float],
        now: float,
        since: float | None = None,
    ) -> None:
        self._remote, self._node, self._joining = remote, node, joining
        self._first_state = first_state
        self._emulation = emulation
        self._up, self._down = Direction(emulation, random), Direction(emulation, random)
        self._calls: dict[Hashable, _Call] = {}
        self._welcome: Welcome | None = None
        self._begun = False
        self._made: list[Sent] = []
        self._repeated: set[int] = set()
        self._sent_at: dict[int, float] = {}
        self._version = 0
        self._asked: dict[str, float] = {}
        self._others_at = now
        self._pause_s, self._try_at = FIRST_PAUSE_S, now
        self._heard = now
        self._answered = self._start_failed = False
        self._failure: str | None = None
        self._learned: deque[Learned] = deque()
        self._weights: Weights | None = None
        self.in_flight = InFlight()
        self.share = joining.config.learning.batch_size
        self.others: list[dict[str, Any]] = []
        self.connected, self.since = False, now if since is None else since
        self.reason: str | None = "the learner has not been reached yet"
        self.wants_snapshot = False
        self.snapshot: Bytes | None = None

    @property
    def node_name(self) -> str:
        """The name under which the node has joined."""
        return self._joining.node

    @property
    def learns(self) -> bool:
        """Whether the learner is reached, and has something to learn on."""
        return self.connected and self._begun

    @property
    def room(self) -> int:
        """Shares that may be sent now, in one call; 0 while it would not be a whole one."""
        if not self.learns:
            return 0
        link = self.in_flight
        free = link.limit - len(self._node.under_way)
        return link.together if free >= link.together else 0

    def make(self, settings: Settings, *, learn: bool = True) -> bool:
        """Make a message, which `send` will send; whether there was one to make.

        Args:
            settings: in force.
            learn: whether the node's share of a batch shall be learned from.
        """
        sent = self._node.make(self.share if learn else 0, settings)
        if sent is not None:
            self._made.append(sent)
        return sent is not None

    def send(self, now: float) -> bool:
        """Send what was made, in one call; whether anything was."""
        made, self._made = self._made, []
        if made:
            self._send(made, now)
        return bool(made)

    def advance(self, now: float) -> None:
        """Do all that is due: join, deliver, collect, repeat."""
        for call in self._up.arrived(now):
            self._calls[self._remote.begin(call.method, *call.arguments)] = call
        for ticket, result in self._remote.finished():
            done = self._calls.pop(ticket, None)
            if done is not None:
                self._down.send(now, _size(result), (done, result))
                if done.method in self._asked:
                    self._asked[done.method] = max(self._asked[done.method], self._down.free_at)
        for done, result in self._down.arrived(now):
            self._take(done, result, now)
        if self._welcome is None:
            if now >= self._try_at:
                self._ask("join", (self._introduction,), now)
        else:
            self._ask_what_is_due(now)
            self._repeat(now)
        waiting = bool(self._node.under_way or self._asked) or self._welcome is None
        if self.connected and waiting and self._silent_for(now) > self._patience_s:
            self._cut(self._failure or "no answer", self._heard)

    def lost(self, now: float) -> bool:
        """Whether nobody has answered for so long that the learner must be looked for anew."""
        if self._start_failed:
            limit = START_FAILED_S
        else:
            limit = LOST_S if self._answered else FIRST_ANSWER_S
        return self._silent_for(now) > limit + self._patience_s

    def wait(self, longest_s: float, now: float) -> None:
        """Wait for something to do: a call that ends, or what arrives over the emulated link.

        Args:
            longest_s: how long at most.
            now: seconds.
        """
        arrivals = [self._up.next_arrival, self._down.next_arrival]
        until = min([now + longest_s, *(at for at in arrivals if at is not None)])
        self._remote.wait(max(0.0, until - now))

    def learned(self) -> list[Learned]:
        """The shares of updates that were answered since the last call."""
        found = list(self._learned)
        self._learned.clear()
        return found

    def weights(self) -> Weights | None:
        """The newest weights, once."""
        found, self._weights = self._weights, None
        return found

    # ---- what is due

    @property
    def _answer_s(self) -> float:
        """From a share to its answer; what is emulated of it is known before the first."""
        return self.in_flight.answer_s or self._emulation.rtt_s

    @property
    def _patience_s(self) -> float:
        return CUT_S + REPEAT_DELAYS * self._answer_s

    def _silent_for(self, now: float) -> float:
        """Seconds without an answer; 0 while a slow link still sends what shall be answered."""
        busy = max(self._up.free_at, self._down.free_at) > now
        return 0.0 if busy else now - self._heard

    def _call(self, call: _Call, size: int, now: float) -> None:
        self._node.counts.bytes_up += size
        self._up.send(now, size, call)

    def _send(self, shares: list[Sent], now: float) -> None:
        assert self._welcome is not None
        seqs, blocks = tuple(each.seq for each in shares), [each.block for each in shares]
        for each in shares:
            self.in_flight.sent(max(len(each.block), each.unpacked_bytes))
        self._sent_at.update(dict.fromkeys(seqs, now))
        session = self._welcome.session
        call = _Call("offer", (self._joining.node, session, blocks), session, seqs)
        self._call(call, _size(blocks), now)

    def _introduction(self) -> Joining:
        return replace(self._joining, generated=self._node.generated)

    def _ask_what_is_due(self, now: float) -> None:
        if not self._begun:
            self._ask("begin", (self._first_state,), now)
            return
        self._ask("weights", (self._version, WEIGHTS_WAIT_S), now, WEIGHTS_WAIT_S)
        if now >= self._others_at:
            self._ask("status", (self.node_name,), now)
        if self.wants_snapshot:
            self._ask("snapshot", (), now)

    def _ask(
        self, method: str, arguments: tuple[Any, ...], now: float, takes_s: float = 0.0
    ) -> None:
        """Make a call, unless it was made a moment ago and may yet be answered."""
        session = None if self._welcome is None else self._welcome.session
        if any((call.method, call.session) == (method, session) for call in self._calls.values()):
            # Not lost, but worked on: a learner that has just been started has much to load.
            return
        asked = self._asked.get(method)
        if asked is not None and now - asked < takes_s + self._patience_s:
            return
        # What is learned is copied only now: it is large.
        said = tuple(each() if callable(each) else each for each in arguments)
        self._call(_Call(method, said, session), sum(map(_size, said)) or SMALL_BYTES, now)
        # A state is large, and may take a slow link longer than anybody waits.
        self._asked[method] = self._up.free_at

    def _repeat(self, now: float) -> None:
        """Send again what is neither being worked on nor answered in time."""
        assert self._welcome is not None
        session = self._welcome.session
        calls = [call for call in self._calls.values() if call.session == session]
        busy = {seq for call in calls for seq in call.seqs}
        least = LEAST_REPEAT_S if self.in_flight.answer_s else FIRST_REPEAT_S
        after = max(least, REPEAT_DELAYS * self._answer_s)
        if not self.connected:
            after = max(after, CUT_S)
        late = [
            sent for sent in self._node.under_way.values()
            if sent.seq not in busy and now - self._sent_at[sent.seq] > after
        ]
        self._repeated.update(sent.seq for sent in late)
        if late:
            self._send(late, now)

    # ---- what comes back

    def _take(self, call: _Call, result: Any, now: float) -> None:
        self._node.counts.bytes_down += _size(result)
        if call.session != (None if self._welcome is None else self._welcome.session):
            # Of a session that is over: what it says, and why it failed, means nothing now.
            return
        if isinstance(result, BaseException) and not isinstance(result, UserError):
            self._note_failure(call, result, now)
            return
        self._heard, self._failure, self._answered = now, None, True
        self._asked.pop(call.method, None)
        if isinstance(result, UserError):
            self._join_anew(str(result), now)
            return
        if call.method == "join":
            self._take_welcome(result, now)
        elif call.method == "offer":
            for block in result:
                self._take_answer(block, now, last=block is result[-1])
        elif call.method == "weights":
            self._take_weights(result)
        elif call.method == "snapshot":
            self.wants_snapshot, self.snapshot = False, result
        elif call.method == "begin":
            self._begun = True
        elif call.method == "status":
            self._others_at = now + OTHERS_EVERY_S
            self.others = [each for each in result["nodes"] if each["id"] != self.node_name]
        if self._welcome is not None and not self.connected:
            self.connected, self.since, self.reason = True, now, None
            self._pause_s = FIRST_PAUSE_S

    def _note_share(self, share: int, now: float) -> None:
        """What is asked of this node; where the frames of it need more room, join with that."""
        self.share, needed = share, self._node.slots_for(share)
        if needed > self._joining.slots:
            self._joining = replace(self._joining, slots=needed)
            self._join_anew("the learner makes room for larger batches", now)

    def _take_welcome(self, welcome: Welcome, now: float) -> None:
        self._welcome = welcome
        self._asked.clear()
        self._node.begin_session(welcome.expected, self._joining.slots)
        self._sent_at.clear()
        self._repeated.clear()
        self.in_flight.forget()
        self._begun, self._version = welcome.begun, 0
        self._note_share(welcome.share, now)

    def _take_answer(self, block: Bytes, now: float, *, last: bool) -> None:
        """Take the answer to a share; those of a call have come when the last was there."""
        answer = unpack(block)
        sent = self._node.answered(answer)
        if sent is None:
            return
        values = answer.values
        timed = last and sent.seq not in self._repeated
        held_s = float(values["held_s"]) if timed else None
        self._repeated.discard(sent.seq)
        self.in_flight.answered(self._sent_at.pop(sent.seq), held_s, now, values.get("seconds"))
        self._note_share(int(values.get("share", self.share)), now)
        if "outcome" in values:
            self._learned.append(Learned(
                values["outcome"], float(values["loss"]), float(values["norm"]),
                int(values["updates"]), int(values["samples"]), float(values["seconds"]),
                values.get("sampled", sent.priority), values.get("transferred", sent.priority),
            ))

    def _take_weights(self, block: Bytes | None) -> None:
        if block is None:
            return
        message = unpack(block)
        self._version = int(message.values["version"])
        round_trip_s = self.in_flight.delay_s or self._emulation.rtt_s
        age_s = float(message.values["age_s"]) + round_trip_s / 2
        values = np.asarray(message.arrays["weights"])
        self._weights = Weights(int(message.values["updates"]), values, age_s)

    def _note_failure(self, call: _Call, error: BaseException, now: float) -> None:
        """A call has not reached the learner, or its answer not this node: it will be repeated."""
        lines = str(error).strip().splitlines() or [repr(error)]
        self._failure = lines[0]
        self._start_failed = isinstance(error, StartFailedError)
        if call.method == "join":
            self._join_anew(lines[0], now)

    def _join_anew(self, reason: str, now: float) -> None:
        self._cut(reason, now)
        self._welcome = None
        self._asked.clear()
        self._try_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _cut(self, reason: str, since: float) -> None:
        if self.connected:
            self.connected, self.since, self.others = False, since, []
        self.reason = reason


def _size(result: Any) -> int:
    if isinstance(result, list):
        return sum(map(_size, result))
    return len(result) if isinstance(result, np.ndarray) else SMALL_BYTES
