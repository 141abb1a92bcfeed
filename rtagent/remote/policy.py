"""A policy on another machine, which an inference process uses like a policy of its own.

Why it is correct. A process has one connection and one question without an answer, and nothing has
come before the question is sent, so an answer belongs to the newest question. Every wait is divided
into short ones, between which `attend` sends a heartbeat, and raises if the process is told to
leave. If an answer does not come in time, or is wrong, the connection is closed: a late answer
cannot be taken for the answer to a newer frame. `values` returns None then, and when it has made a
new connection: its caller asks about the newest frame. A connection that is down holds up this
process alone, which has nothing else to do.

With hedged requests (J. Dean and L. A. Barroso, The Tail at Scale, Communications of the ACM 56(2),
2013, doi:10.1145/2408776.2408794) there is a second connection. If an answer is late, the newest
frame is asked about on the other connection; the first one is not used until the late answer has
come and been dropped, and is closed if none comes for long. So a connection still has one question
at a time, and a process two at most. The answer after a late one is always waited for: so after one
question too many, the usual time of a server that has become slower for good is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.clock import NANO, Clock
from rtagent.memory.array_buffer import Floats
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.remote.answers import OBSERVATION, PENDING, STATE, Terms, timing_of
from rtagent.remote.protocol import ProtocolError, decode, encode
from rtagent.remote.wire import LostError, RefusedError, WebsocketDialer, Wire

SLICE_S, LEAST_SLICE_S = 0.1, 0.001
LEAST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.25
"""Pauses between two attempts to connect: they double. When a link is back, the longest pause is
most of the time until the next action."""
REFUSED_PAUSE_S = 5.0
"""Pause after the server has refused, which a further attempt will hardly change."""
FIRST_ANSWER_S = 60.0
"""How long the server may take for the very first answer: its policy may have to be compiled."""
LEAST_PATIENCE_S = 1.0
PATIENCE_TIMES = 10.0
"""An answer may take so many times as long as usual; then the link counts as cut."""
MOST_DOUBLINGS = 6
"""The patience doubles with each question in a row that was not answered, so often at most."""
SMOOTHING = 1.0 / 16.0
STEADY_S = 1.0
"""If the link was good for less, losing it again for the same reason, or soon after the last event,
is no new event."""


@dataclass
class MeanTimes:
    """Running means of the times of answers, seconds; 0 before the first answer.

    The first answer counts until the second one only: for it a policy may have been compiled.
    """

    answers: int = 0
    whole_s: float = 0.0
    network_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0

    def note(self, whole_s: float, queue_s: float, compute_s: float) -> None:
        """Add an answer."""
        network_s = max(0.0, whole_s - queue_s - compute_s)
        self.answers += 1
        share = SMOOTHING if self.answers > 2 else 1.0
        self.whole_s += share * (whole_s - self.whole_s)
        self.network_s += share * (network_s - self.network_s)
        self.queue_s += share * (queue_s - self.queue_s)
        self.compute_s += share * (compute_s - self.compute_s)


@dataclass
class LinkEvents:
    """Reports the link's state: one event when it is lost, one when it is back, and one for a
    further reason for which the server refuses, unless another was told a short time ago: the text
    of an error may differ each time.

    Args:
        address: of the server.
        event: reports an event.
    """

    address: str
    event: Callable[..., None]
    clock: Clock
    _reason: str | None = None
    _good_since: float | None = None
    _told_at: float = -math.inf
    _known: bool | None = None

    def lost(self, reason: str, *, refused: bool) -> None:
        """Note that there is no connection, why, and whether the server has refused one."""
        now = self.clock.now()
        old = reason == self._reason or now - self._told_at < REFUSED_PAUSE_S
        since, self._good_since = self._good_since, None
        flaps = old and since is not None and now - since < STEADY_S
        if not flaps and (self._known is not False or (refused and not old)):
            self.event("remote_lost", reason=reason)
            self._known, self._reason, self._told_at = False, reason, now

    def answered(self) -> None:
        """Note a good answer."""
        if self._good_since is None:
            self._good_since = self.clock.now()
        if not self._known:
            self.event("remote_answers", address=self.address)
            self._known = True


class _LateError(Exception):
    """The answer is late, and the other connection is free to ask about the newest frame."""


class RemotePolicy:
    """The policy of a server.

    Attributes:
        state: (state,) with which the next inference of a recurrent policy begins. It is sent with
            the question and comes back with the answer, so the server keeps none.

    Args:
        address: of the server, for events.
        terms: what the world needs.
        attend: called again and again during every wait; may raise.
        inputs: further entries of every question, beside the observation.
        hedge: after so many times the usual time of an answer, the newest frame is asked about on a
            second connection. If None, late answers are waited for.
    """

    def __init__(
        self, address: str, terms: Terms, dialer: WebsocketDialer, clock: Clock,
        attend: Callable[[], None], record: InferenceRecord, event: Callable[..., None],
        inputs: Mapping[str, Any], hedge: float | None = None,
    ) -> None:
        self._needed, self._terms = terms, terms
        self._dialer, self._clock, self._attend = dialer, clock, attend
        self._record, self._events = record, LinkEvents(address, event, clock)
        self._inputs = inputs
        self._hedge = math.inf if hedge is None else hedge
        self._wire: Wire | None = None
        self._other: Wire | None = None
        self._answer_owed = self._hedged = False
        self._owed_since = 0.0
        self._unanswered = 0
        self._usual, self._pause_s = MeanTimes(), 0.0
        self.state: Floats = np.zeros(terms.state, np.float32)
        record.connected = record.in_flight = 0

    @property
    def answers_actions(self) -> bool:
        """Whether the server answers with actions, not with a value for each action."""
        return self._terms.answers == "actions"

    def values(
        self, observation: npt.NDArray[Any], pending: Callable[[], Floats] | None = None
    ) -> Floats | None:
        """The server's answer to an observation.

        Args:
            observation: (stack, ...) uint8 or float32.
            pending: gives the pending actions, (1, pending); called just before the question is
                sent.

        Returns:
            (outputs,) float32, or (H, outputs) for consecutive ticks; None if there is no answer,
            and the observation is old by now.
        """
        if self._wire is None:
            self._connect()
            return None
        try:
            return self._ask(self._wire, self._question(observation, pending))
        except _LateError:
            self._switch_connection()
            return None
        except (LostError, ProtocolError) as error:
            self._give_up(error)
            return None
        finally:
            self._record.in_flight = int(not self._other_is_free())

    def _question(
        self, observation: npt.NDArray[Any], pending: Callable[[], Floats] | None
    ) -> dict[str, Any]:
        # Servers other than ours know no stacks: a stack of one frame is sent as that frame.
        shown = observation[0] if len(observation) == 1 else observation
        question = {**self._inputs, OBSERVATION: shown}
        if self._needed.state:
            question[STATE] = self.state
        if pending is not None:
            question[PENDING] = pending()[0]
        return question

    def _ask(self, wire: Wire, question: Mapping[str, Any]) -> Floats:
        if wire.receive(0.0) is not None:
            # All later answers would be taken for answers to newer frames.
            raise ProtocolError("the server answers what was not asked")
        began = self._clock.now()
        wire.send(encode(question), self._attend)
        self._record.in_flight = 1 + int(not self._other_is_free())
        message = self._await_answer(wire, began)
        whole_s = self._clock.now() - began
        found = decode(message)
        answer, timing = self._terms.read(found), timing_of(found)
        if self._terms.state:
            self.state = self._terms.next_state(found)
        self._usual.note(whole_s, timing.queue_s, timing.compute_s)
        self._pause_s, self._hedged, self._unanswered = 0.0, False, 0
        self._write_figures()
        self._events.answered()
        return answer

    def _await_answer(self, wire: Wire, began: float) -> bytes | str:
        usual_s = self._usual.whole_s
        patience = max(LEAST_PATIENCE_S, PATIENCE_TIMES * usual_s) if usual_s else FIRST_ANSWER_S
        # A server that has become slower for good answers later than was usual.
        longer = patience * 2.0 ** min(self._unanswered, MOST_DOUBLINGS)
        patience = max(patience, min(FIRST_ANSWER_S, longer))
        late_s = self._hedge * usual_s if usual_s and not self._hedged else math.inf
        if late_s < math.inf:
            # Where the other connection may still be asked, the link is not given up before.
            patience = max(patience, late_s)
        waited = 0.0
        while (message := wire.receive(min(SLICE_S, max(LEAST_SLICE_S, late_s - waited)))) is None:
            self._attend()
            waited = self._clock.now() - began
            if waited >= late_s:
                if self._other_is_free():
                    raise _LateError
                late_s = math.inf
            if waited > patience:
                self._unanswered += 1
                raise LostError(f"no answer within {patience:.1f} s")
        return message

    def _other_is_free(self) -> bool:
        """Whether no answer is due on the other connection; if there is none yet, it is free."""
        if self._other is not None and self._answer_owed:
            longest_s = max(FIRST_ANSWER_S, PATIENCE_TIMES * self._usual.whole_s)
            try:
                self._answer_owed = self._other.receive(0.0) is None
                if self._answer_owed and self._clock.now() - self._owed_since > longest_s:
                    raise LostError("the answer will not come")
            except LostError:
                self._close_other()
        return not self._answer_owed

    def _switch_connection(self) -> None:
        """Go on with the other connection; the late answer will come on this one."""
        self._record.hedged += 1
        self._hedged = True
        self._wire, self._other, self._answer_owed = self._other, self._wire, True
        self._owed_since = self._clock.now()
        if self._wire is None:
            self._connect()

    def _connect(self) -> None:
        """Connect, however long that takes."""
        while self._wire is None:
            self._wait(self._pause_s)
            try:
                self._dialer.dial()
                while (wire := self._dialer.outcome(SLICE_S)) is None:
                    self._attend()
                self._wire = wire
                self._terms = self._needed.agreed(wire.metadata)
            except (RefusedError, ProtocolError) as error:
                self._give_up(error, REFUSED_PAUSE_S)
            except LostError as error:
                self._give_up(error)

    def _close_other(self) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None
        self._answer_owed = False

    def _give_up(self, error: Exception, pause_s: float | None = None) -> None:
        """Close the connections, if there are any; set the pause before the next attempt."""
        self._close_other()
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._record.connected = 0
        doubled = min(LONGEST_PAUSE_S, max(LEAST_PAUSE_S, 2.0 * self._pause_s))
        self._pause_s = doubled if pause_s is None else pause_s
        self._events.lost(str(error), refused=isinstance(error, RefusedError | ProtocolError))

    def _wait(self, seconds: float) -> None:
        until = self._clock.now() + seconds
        while (rest := until - self._clock.now()) > 0.0:
            self._attend()
            self._clock.sleep_until(self._clock.now() + min(rest, SLICE_S))

    def _write_figures(self) -> None:
        record, usual = self._record, self._usual
        # Not before: a server that hangs still takes connections.
        record.connected = 1
        record.round_trip_ns = round(usual.network_s * NANO)
        record.queue_ns = round(usual.queue_s * NANO)
        record.compute_ns = round(usual.compute_s * NANO)
