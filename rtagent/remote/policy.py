"""A policy on another machine, asked by an inference process as if it were its own.

Why it is correct. One process has one connection and one question on its way, so an answer belongs
to the question before it. Every wait is cut into slices, between which `attend` beats and leaves if
it is told to. A question that is not answered in time, or wrongly, ends its connection: a late
answer cannot be taken for that of a newer frame. `values` then says that there is none, after a new
connection has been made, and its caller asks for the newest frame. How long a connection is down
costs nobody but this process, which has nothing else to do.

With hedged requests (J. Dean and L. A. Barroso, The Tail at Scale, Communications of the ACM 56(2),
2013, doi:10.1145/2408776.2408794) there is a second connection. A question that is late keeps its
own, on which nothing is asked until the answer has come, and been thrown away; the newest frame is
asked about on the other. So there is still one question on a connection, and two of a process at
most. A question that follows a late one is waited for: a server that has become slower for good is
asked once too often, and then known to be.
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
from rtagent.remote.wire import Dialer, LostError, RefusedError, Wire

SLICE_S, LEAST_SLICE_S = 0.1, 0.001
LEAST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.25
"""Between two attempts to connect: it doubles. The longest is most of what a link that is back
waits for an action."""
REFUSED_PAUSE_S = 5.0
"""After an answer that a further attempt will hardly change."""
FIRST_ANSWER_S = 60.0
"""How long a server may take for the first observation of all: its policy may have to be
compiled."""
LEAST_PATIENCE_S = 1.0
PATIENCE_TIMES = 10.0
"""So many times as long as usual may an answer take, or the link counts as cut."""
MOST_DOUBLINGS = 6
"""Of the patience, one for each question in a row that was not answered."""
SMOOTHING = 1.0 / 16.0
STEADY_S = 1.0
"""A link that was good for less is not told of when it is lost again for the same reason."""


@dataclass
class Usual:
    """Running means of what answers take, seconds; 0 before the first."""

    whole_s: float = 0.0
    network_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0

    def note(self, whole_s: float, queue_s: float, compute_s: float) -> None:
        """Add an answer."""
        network_s = max(0.0, whole_s - queue_s - compute_s)
        share = SMOOTHING if self.whole_s else 1.0
        self.whole_s += share * (whole_s - self.whole_s)
        self.network_s += share * (network_s - self.network_s)
        self.queue_s += share * (queue_s - self.queue_s)
        self.compute_s += share * (compute_s - self.compute_s)


@dataclass
class Told:
    """What has been told about the link: one line when it is lost, one when it is back, and one for
    each further reason for which a server refuses.

    Args:
        tell: tells an event.
        clock: time.
    """

    tell: Callable[..., None]
    clock: Clock
    _reason: str | None = None
    _good_since: float | None = None
    _known: bool | None = None

    def lost(self, reason: str, *, refused: bool) -> None:
        """There is no connection, for a reason; the server may have refused one."""
        again = reason == self._reason
        since, self._good_since = self._good_since, None
        flaps = again and since is not None and self.clock.now() - since < STEADY_S
        if not flaps and (self._known is not False or (refused and not again)):
            self.tell("remote_lost", reason=reason)
            self._known, self._reason = False, reason

    def answered(self, address: str) -> None:
        """There was a good answer."""
        if self._good_since is None:
            self._good_since = self.clock.now()
        if not self._known:
            self.tell("remote_answers", address=address)
            self._known = True


class _LateError(Exception):
    """The answer is late, and the newest frame may be asked about on the other connection."""


class RemotePolicy:
    """The policy of a server.

    Attributes:
        state: (state,) that the next inference of a recurrent policy begins with; afterwards, what
            it has left. It travels with the question and with the answer, so the server keeps none.

    Args:
        address: of the server, for events.
        terms: what the world needs.
        dialer: connects.
        clock: time.
        attend: called between the slices of every wait; may raise.
        record: where figures are counted.
        tell: tells an event.
        inputs: what every question says beside the observation.
        hedge: so many times as long as usual may an answer take before the newest frame is asked
            about on a second connection. If None, it is waited for.
    """

    def __init__(
        self, address: str, terms: Terms, dialer: Dialer, clock: Clock,
        attend: Callable[[], None], record: InferenceRecord, tell: Callable[..., None],
        inputs: Mapping[str, Any], hedge: float | None = None,
    ) -> None:
        self._address, self._needed, self._terms = address, terms, terms
        self._dialer, self._clock, self._attend = dialer, clock, attend
        self._record, self._told, self._inputs = record, Told(tell, clock), inputs
        self._hedge = math.inf if hedge is None else hedge
        self._wire: Wire | None = None
        self._other: Wire | None = None
        self._other_owes = self._hedged = False
        self._unanswered = 0
        self._usual, self._pause_s = Usual(), 0.0
        self.state: Floats = np.zeros(terms.state, np.float32)
        record.connected = record.in_flight = 0

    @property
    def answers_actions(self) -> bool:
        """Whether it answers with actions, which are taken as they are, or with their values."""
        return self._terms.answers == "actions"

    def values(
        self, observation: npt.NDArray[Any], pending: Callable[[], Floats] | None = None
    ) -> Floats | None:
        """The server's answer to an observation.

        Args:
            observation: (stack, ...) uint8 or float32.
            pending: as of a network here; called just before the question is sent.

        Returns:
            (outputs,) float32, or (H, outputs) for consecutive ticks; None if there is none, and
            the observation is old by now.
        """
        if self._wire is None:
            self._connect()
            return None
        try:
            return self._asked(self._wire, self._question(observation, pending))
        except _LateError:
            self._turn_to_the_other()
            return None
        except (LostError, ProtocolError) as error:
            self._give_up(error)
            return None
        finally:
            self._record.in_flight = int(self._other_owes)

    def _question(
        self, observation: npt.NDArray[Any], pending: Callable[[], Floats] | None
    ) -> dict[str, Any]:
        # One frame without a stack is what a server expects that knows nothing of stacks.
        shown = observation[0] if len(observation) == 1 else observation
        question = {**self._inputs, OBSERVATION: shown}
        if self._needed.state:
            question[STATE] = self.state
        if pending is not None:
            question[PENDING] = pending()[0]
        return question

    def _asked(self, wire: Wire, question: Mapping[str, Any]) -> Floats:
        began = self._clock.now()
        wire.send(encode(question))
        self._record.in_flight = 1 + int(self._other_owes)
        message = self._received(wire, began)
        whole_s = self._clock.now() - began
        found = decode(message)
        answer, timing = self._terms.read(found), timing_of(found)
        if self._terms.state:
            self.state = self._terms.left(found)
        self._usual.note(whole_s, timing.queue_s, timing.compute_s)
        self._pause_s, self._hedged, self._unanswered = 0.0, False, 0
        self._account()
        self._told.answered(self._address)
        return answer

    def _received(self, wire: Wire, began: float) -> bytes | str:
        usual_s = self._usual.whole_s
        patience = max(LEAST_PATIENCE_S, PATIENCE_TIMES * usual_s) if usual_s else FIRST_ANSWER_S
        # A server that has become slower for good answers later than was usual.
        longer = patience * 2.0 ** min(self._unanswered, MOST_DOUBLINGS)
        patience = max(patience, min(FIRST_ANSWER_S, longer))
        late_s = self._hedge * usual_s if usual_s and not self._hedged else math.inf
        waited = 0.0
        while (message := wire.receive(min(SLICE_S, max(LEAST_SLICE_S, late_s - waited)))) is None:
            self._attend()
            waited = self._clock.now() - began
            if waited > patience:
                self._unanswered += 1
                raise LostError(f"no answer within {patience:.1f} s")
            if waited >= late_s:
                if self._other_is_free():
                    raise _LateError
                late_s = math.inf
        return message

    def _other_is_free(self) -> bool:
        """Whether there is nothing on its way on the second connection, if there is one."""
        if self._other is not None and self._other_owes:
            try:
                self._other_owes = self._other.receive(0.0) is None
            except LostError:
                self._leave_other()
        return not self._other_owes

    def _turn_to_the_other(self) -> None:
        """Leave a question that is late to its connection, and go on with the other one."""
        self._record.hedged += 1
        self._hedged = True
        self._wire, self._other, self._other_owes = self._other, self._wire, True
        if self._wire is None:
            self._connect()

    def _connect(self) -> None:
        """Connect, however long that takes."""
        while self._wire is None:
            self._rest(self._pause_s)
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
        self._record.connected = 1

    def _leave_other(self) -> None:
        if self._other is not None:
            self._other.close()
            self._other = None
        self._other_owes = False

    def _give_up(self, error: Exception, pause_s: float | None = None) -> None:
        """Leave the connections, if there are any, and rest before the next."""
        self._leave_other()
        if self._wire is not None:
            self._wire.close()
            self._wire = None
        self._record.connected = 0
        doubled = min(LONGEST_PAUSE_S, max(LEAST_PAUSE_S, 2.0 * self._pause_s))
        self._pause_s = doubled if pause_s is None else pause_s
        self._told.lost(str(error), refused=isinstance(error, RefusedError | ProtocolError))

    def _rest(self, seconds: float) -> None:
        until = self._clock.now() + seconds
        while (rest := until - self._clock.now()) > 0.0:
            self._attend()
            self._clock.sleep_until(self._clock.now() + min(rest, SLICE_S))

    def _account(self) -> None:
        record, usual = self._record, self._usual
        record.round_trip_ns = round(usual.network_s * NANO)
        record.queue_ns = round(usual.queue_s * NANO)
        record.compute_ns = round(usual.compute_s * NANO)
