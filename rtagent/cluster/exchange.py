"""A buffer node's exchange with the learner: calls, their repetitions, and their answers.

Why it is correct. The learner processes every share once, whatever is repeated (`session.py`), and
the buffer node uses every answer once (`node.py`). So this module may repeat whatever has no
answer, and may give up a session at any time: shares in flight may still be learned from, but their
answers are ignored. A call that fails counts as a call without an answer, unless the learner itself
refuses it: then the node joins anew. Only `wait` waits: calls are begun, and their results are
collected later. Both pass through an emulated link (`link.py`), which delivers at once if nothing
is emulated. The time is an argument of every function that needs it, so tests need no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rtagent.cluster.calls import EndedError, Learned, Remote, Weights
from rtagent.cluster.in_flight import InFlight
from rtagent.cluster.joining import Joining, Welcome
from rtagent.cluster.link import Direction, Emulation
from rtagent.cluster.message import Bytes, MessageError, unpack
from rtagent.cluster.node import Node, Sent, Settings
from rtagent.errors import UserError, first_line

SMALL_BYTES = 256
"""Size that is counted for a call or a result without a message."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.3, 10.0
"""Pauses between two attempts to join: they double, from the first to the longest."""
REPEAT_DELAYS, LEAST_REPEAT_S = 4.0, 0.2
"""A share without an answer is repeated after so many of the smallest times from a share to its
answer, and after so long at least; the learner processes no later share before it."""
FIRST_REPEAT_S = 1.0
"""The same least time, while no answer has been measured."""
WEIGHTS_WAIT_S = 2.0
"""How long the learner may wait for new weights before it answers that there are none."""
OTHERS_EVERY_S = 2.0
"""Time between two calls for the state of the other nodes."""
CUT_S = 3.0
"""The link counts as cut when an answer is due and none has come for so long."""
LOST_S, FIRST_ANSWER_S = 45.0, 120.0
"""The learner must be looked for anew when no answer has come for so long; longer before the first
answer, since a learner that is being started has much to load."""
ENDED_S = 10.0
"""The same, if the learner could not start or was ended. A gateway that ended sooner would count as
a process that dies at its start (`processes/restart_policy.py`)."""


class _Call(NamedTuple):
    """A call that has no result yet.

    Attributes:
        session: in which it was made. If None, the node had not joined.
        seqs: numbers of the shares in it.
    """

    method: str
    arguments: tuple[Any, ...]
    session: int | None
    seqs: tuple[int, ...] = ()


class _Sending(NamedTuple):
    """How a share was last sent.

    Attributes:
        at: when it was sent, seconds.
        left_at: when it, or then its answer, has left over the link, seconds.
        repeated: whether it was sent before.
    """

    at: float
    left_at: float
    repeated: bool


class Exchange:
    """One node's side of the exchange.

    Args:
        remote: calls the learner.
        node: makes the messages.
        joining: what the node joins with.
        first_state: gives the daemon's learned state, as a message, for a learner without a state.
        random: gives numbers in [0, 1).
        now: seconds.
        since: when the link was cut, seconds.

    Attributes:
        share: transitions that the learner asks this node for.
        in_flight: measures the link, anew in every session.
        others: the other nodes, as the learner's newest status describes them.
        connected: whether the learner answers.
        since: when `connected` last changed, seconds.
        reason: why the learner does not answer; None if it does.
        wants_snapshot: whether the learner is asked for its learned state, until that comes; set by
            the caller.
        snapshot: the learned state that came, as a message; the caller sets it to None.
    """

    def __init__(
        self, remote: Remote, node: Node, joining: Joining, first_state: Callable[[], Bytes],
        emulation: Emulation, random: Callable[[], float], now: float, since: float,
    ) -> None:
        self._remote, self._node, self._joining = remote, node, joining
        self._first_state = first_state
        self._emulation = emulation
        self._up, self._down = Direction(emulation, random), Direction(emulation, random)
        self._calls: dict[Hashable, _Call] = {}
        self._welcome: Welcome | None = None
        self._begun = False
        self._made: list[Sent] = []
        self._sendings: dict[int, _Sending] = {}
        self._version = 0
        self._asked: dict[str, float] = {}
        self._others_at = now
        self._pause_s, self._try_at = FIRST_PAUSE_S, now
        self._last_answer_at = now
        self._answered = self._ended = False
        self._failure: str | None = None
        self._learned: list[Learned] = []
        self._weights: Weights | None = None
        self.in_flight = InFlight()
        self.share = joining.config.learning.batch_size
        self.others: list[dict[str, Any]] = []
        self.connected, self.since = False, since
        self.reason: str | None = "the learner has not been reached yet"
        self.wants_snapshot = False
        self.snapshot: Bytes | None = None

    @property
    def node_name(self) -> str:
        """The name under which the node has joined."""
        return self._joining.node

    @property
    def learns(self) -> bool:
        """Whether the learner answers, and has a state to learn on."""
        return self.connected and self._begun

    @property
    def room(self) -> int:
        """Number of shares that may be sent now, in one call; 0 unless a full call may be sent."""
        if not self.learns:
            return 0
        link = self.in_flight
        free = link.limit - len(self._node.under_way)
        return link.per_call if free >= link.per_call else 0

    def make(self, settings: Settings, *, learn: bool) -> bool:
        """Make a message, which `send` will send; whether there was anything to send.

        Args:
            learn: whether the message asks the learner to learn from this node's share of a batch.
        """
        sent = self._node.make(self.share if learn else 0, settings)
        if sent is not None:
            self._made.append(sent)
        return sent is not None

    def send(self, now: float) -> bool:
        """Send the messages that were made, in one call; whether there were any."""
        made, self._made = self._made, []
        if made:
            self._send_shares(made, now)
        return bool(made)

    def advance(self, now: float) -> None:
        """Do all that is due: join, begin calls, collect results, repeat."""
        for call in self._up.arrived(now):
            self._calls[self._remote.begin(call.method, *call.arguments)] = call
        for ticket, result in self._remote.finished():
            done = self._calls.pop(ticket, None)
            if done is not None:
                self._down.send(now, _size(result), (done, result, now))
                self._note_answering(done)
        for done, result, sent_at in self._down.arrived(now):
            self._take(done, result, sent_at, now)
        if self._welcome is None:
            if now >= self._try_at:
                self._ask("join", (self._introduction,), now)
        else:
            self._ask_what_is_due(now)
            self._repeat(now)
        waiting = bool(self._node.under_way or self._asked) or self._welcome is None
        if self.connected and waiting and self._silent_for(now) > self._patience_s:
            self._cut(self._failure or "no answer", self._last_answer_at)

    def lost(self, now: float) -> bool:
        """Whether no answer has come for so long that the learner must be looked for anew."""
        limit = ENDED_S if self._ended else LOST_S if self._answered else FIRST_ANSWER_S
        return self._silent_for(now) > limit + self._patience_s

    def wait(self, longest_s: float, now: float) -> None:
        """Wait until a call has ended, or something arrives over the emulated link.

        Called before each `advance`, which takes the results of the calls that have ended by then.

        Args:
            longest_s: longest wait.
            now: seconds.
        """
        arrivals = [self._up.next_arrival, self._down.next_arrival]
        until = min([now + longest_s, *(at for at in arrivals if at is not None)])
        self._remote.wait(max(0.0, until - now))

    def learned(self) -> list[Learned]:
        """The updates in which this node had a share, answered since the last call."""
        found, self._learned = self._learned, []
        return found

    def weights(self) -> Weights | None:
        """The newest weights; None if they were returned before."""
        found, self._weights = self._weights, None
        return found

    # ---- what is due

    @property
    def _session(self) -> int | None:
        return None if self._welcome is None else self._welcome.session

    @property
    def _answer_s(self) -> float:
        """Time from a share to its answer; before the first answer, the emulated part of it."""
        return self.in_flight.answer_s or self._emulation.rtt_s

    @property
    def _patience_s(self) -> float:
        return CUT_S + REPEAT_DELAYS * self._answer_s

    def _silent_for(self, now: float) -> float:
        """Seconds without an answer; 0 while a slow link is still busy with a call or a result."""
        busy = max(self._up.free_at, self._down.free_at) > now
        return 0.0 if busy else now - self._last_answer_at

    def _send_call(self, call: _Call, size: int, now: float) -> None:
        self._node.counts.bytes_up += size
        self._up.send(now, size, call)

    def _note_answering(self, call: _Call) -> None:
        """Note when the answer to a call, which has just been sent, has left."""
        left_at = self._down.free_at
        if call.method in self._asked:
            self._asked[call.method] = max(self._asked[call.method], left_at)
        for seq in call.seqs:
            sending = self._sendings.get(seq)
            if sending is not None and call.session == self._session:
                latest = max(sending.left_at, left_at)
                self._sendings[seq] = sending._replace(left_at=latest)

    def _send_shares(self, shares: list[Sent], now: float) -> None:
        seqs, blocks = tuple(each.seq for each in shares), [each.block for each in shares]
        arguments = self.node_name, self._session, blocks
        self._send_call(_Call("offer", arguments, self._session, seqs), _size(blocks), now)
        for each in shares:
            self.in_flight.sent(max(len(each.block), each.unpacked_bytes))
            # The wait for an answer begins when the share has left: a slow link takes long for it.
            repeated = each.seq in self._sendings
            self._sendings[each.seq] = _Sending(now, self._up.free_at, repeated)

    def _introduction(self) -> Joining:
        node = self._node
        return replace(self._joining, generated=node.generated, shipped=node.counts.shipped)

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
        """Make a call, unless an earlier one may still be answered."""
        session = self._session
        if any((call.method, call.session) == (method, session) for call in self._calls.values()):
            # It has arrived, and is worked on: a learner that was just started has much to load.
            return
        asked = self._asked.get(method)
        if asked is not None and now - asked < takes_s + self._patience_s:
            return
        # Arguments that are functions are called only now: the learned state is large.
        values = tuple(each() if callable(each) else each for each in arguments)
        self._send_call(_Call(method, values, session), _size(values), now)
        # The wait begins when the call has left: a state may take a slow link very long.
        self._asked[method] = self._up.free_at

    def _repeat(self, now: float) -> None:
        """Send again the shares that were not answered in time, and are not being worked on."""
        calls = [call for call in self._calls.values() if call.session == self._session]
        busy = {seq for call in calls for seq in call.seqs}
        least = LEAST_REPEAT_S if self.in_flight.answer_s else FIRST_REPEAT_S
        after = max(least, REPEAT_DELAYS * self._answer_s)
        if not self.connected:
            after = max(after, CUT_S)
        late = [
            sent for sent in self._node.under_way.values()
            if sent.seq not in busy and now - self._sendings[sent.seq].left_at > after
        ]
        if late:
            self._send_shares(late, now)

    # ---- what comes back

    def _take(self, call: _Call, result: Any, sent_at: float, now: float) -> None:
        self._node.counts.bytes_down += _size(result)
        if call.session != self._session:
            # The call was made in a session that is over.
            return
        if isinstance(result, BaseException) and not isinstance(result, UserError):
            self._note_failure(call, result, now)
            return
        self._last_answer_at, self._failure, self._answered = now, None, True
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
            self._take_weights(result, now - sent_at)
        elif call.method == "snapshot":
            self.wants_snapshot, self.snapshot = False, result
        elif call.method == "begin":
            self._begun = True
        elif call.method == "status":
            self._others_at = now + OTHERS_EVERY_S
            self.others = [each for each in result["nodes"] if each["id"] != self.node_name]
            if len(self.others) == len(result["nodes"]):
                # A node that is paused sends no share that could be refused.
                self._join_anew("the learner does not know this node any more", now)
        if self._welcome is not None and not self.connected:
            self.connected, self.since, self.reason = True, now, None
            self._pause_s = FIRST_PAUSE_S

    def _note_share(self, share: int, now: float) -> None:
        """Note the share that is asked for; join anew if its frames need more slots than it has."""
        self.share, needed = share, self._node.slots_for(share)
        if needed > self._joining.slots:
            self._joining = replace(self._joining, slots=needed)
            self._join_anew("the learner makes room for larger batches", now)

    def _take_welcome(self, welcome: Welcome, now: float) -> None:
        self._welcome = welcome
        self._asked.clear()
        self._node.begin_session(welcome.expected, self._joining.slots)
        self._sendings.clear()
        self.in_flight = InFlight()
        self._begun, self._version = welcome.begun, 0
        self._note_share(welcome.share, now)

    def _take_answer(self, block: Bytes, now: float, *, last: bool) -> None:
        """Take the answer to a share; only the last of a call has not waited for others."""
        answer = unpack(block)
        sent = self._node.answered(answer)
        if sent is None:
            return
        values = answer.values
        sending = self._sendings.pop(sent.seq)
        held_s = float(values["held_s"]) if last and not sending.repeated else None
        self.in_flight.answered(sending.at, held_s, now, values.get("seconds"))
        self._note_share(int(values.get("share", self.share)), now)
        if "outcome" in values:
            self._learned.append(Learned(
                values["outcome"], float(values["loss"]), float(values["norm"]),
                int(values["updates"]), int(values["samples"]), float(values["seconds"]),
                values.get("sampled", sent.priority), values.get("transferred", sent.priority),
                values["precision"], float(values["loss_scale"]),
            ))

    def _take_weights(self, block: Bytes | None, emulated_s: float) -> None:
        """Take weights that were on their way over the emulated link for so long."""
        if block is None:
            return
        message = unpack(block)
        self._version = int(message.values["version"])
        round_trip_s = self.in_flight.delay_s or self._emulation.rtt_s
        age_s = float(message.values["age_s"]) + max(round_trip_s / 2, emulated_s)
        values = np.asarray(message.arrays["weights"])
        if values.shape != (self._joining.blueprint.parameters,) or np.isnan(values).any():
            raise MessageError("the learner's weights are of another network, or have NaN")
        self._weights = Weights(int(message.values["updates"]), values, age_s)

    def _note_failure(self, call: _Call, error: BaseException, now: float) -> None:
        """Note why a call or its answer was lost; the call will be repeated."""
        self._failure = first_line(error)
        self._ended = isinstance(error, EndedError)
        if call.method == "join":
            self._join_anew(self._failure, now)

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


def _size(carried: Any) -> int:
    """Bytes of the messages among arguments or results, or of a call without any."""
    several = carried if isinstance(carried, list | tuple) else [carried]
    return sum(len(each) for each in several if isinstance(each, np.ndarray)) or SMALL_BYTES
