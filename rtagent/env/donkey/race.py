"""A race against the clock: a number of laps through gates in their order, from lobby to stop.

Nothing in this module knows roads, sockets or the clock: a race is given the time and the car's
place, and returns the messages for its client:

    race_start         the car may go
    missed_checkpoint  checkpoint: the gate that was due, 0 being the starting line
    DQ                 missed_cp: whether gates are the reason; reason: in words
    race_stop          the race is over, by the last lap or by DQ
    ping               every few seconds, from the lobby on; it needs no answer

Gates stand at equal distances, the first one on the starting line, and are a little wider than the
road. They are due in their order; driving back and forth through the last gate passed is allowed.
A car that drives round the gate that is due, or through another gate, has missed the due gate; the
gate after the one that it took is due then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor

from rtagent.env.donkey.protocol import Message
from rtagent.env.donkey.track import HALF_WIDTH

GATE_HALF_WIDTH = HALF_WIDTH + 1.0
"""A car with two wheels on the road still drives through a gate."""
OFF_ROAD = 2.0 * HALF_WIDTH
"""Distance from the centre line beyond which a car is disqualified."""
MOST_MISSED = 1
PING_S = 5.0


@dataclass(frozen=True)
class Rules:
    """Laps, the time limit for all of them together, and the gates of a lap."""

    laps: int
    time_limit_s: float
    checkpoints: int


class Race:
    """One client's race; `in_lobby` until it is started.

    Times are seconds of the world; `rounds` is the distance along the road since the starting line,
    in rounds, backwards negative.
    """

    def __init__(self, rules: Rules, time: float) -> None:
        self._rules, self._pinged = rules, time
        self.in_lobby = True
        self._started: float | None = None
        self._passed = self._due = self._missed = 0

    def start(self, time: float, rounds: float) -> list[Message]:
        """Begin the race, or begin it anew."""
        self.in_lobby, self._started = False, time
        self._due = self._missed = 0
        self.put(rounds)
        return [{"msg_type": "race_start"}]

    def put(self, rounds: float) -> None:
        """Note that the car was put elsewhere, and so drove through none of the gates between."""
        self._passed = self._last_gate(rounds)

    def advance(self, time: float, rounds: float, cte: float) -> list[Message]:
        """Note where the car has driven, with this cross-track error; the messages about it."""
        before, self._passed = self._passed, self._last_gate(rounds)
        forwards = range(before + 1, self._passed + 1)
        messages: list[Message] = []
        if self._started is not None:
            gates = forwards or range(before, self._passed, -1)
            messages += self._judge(time - self._started, gates, abs(cte))
        if time - self._pinged >= PING_S:
            self._pinged = time
            messages.append({"msg_type": "ping"})
        return messages

    def _last_gate(self, rounds: float) -> int:
        """The number of the last gate passed; gates are counted on from lap to lap."""
        return floor(rounds * self._rules.checkpoints)

    def _judge(self, seconds: float, gates: Iterable[int], off: float) -> list[Message]:
        rules, messages = self._rules, []
        for gate in gates:
            if gate == self._due - 1:
                continue
            if gate != self._due or off > GATE_HALF_WIDTH:
                self._missed += 1
                checkpoint = self._due % rules.checkpoints
                messages.append({"msg_type": "missed_checkpoint", "checkpoint": checkpoint})
            self._due = gate + 1
        if self._missed > MOST_MISSED:
            return messages + self._disqualify("missed checkpoints")
        if self._due > rules.laps * rules.checkpoints:
            return messages + self._stop()
        if off > OFF_ROAD:
            return messages + self._disqualify("off the road")
        if seconds > rules.time_limit_s:
            return messages + self._disqualify("time limit exceeded")
        return messages

    def _disqualify(self, reason: str) -> list[Message]:
        missed = self._missed > MOST_MISSED
        return [{"msg_type": "DQ", "missed_cp": missed, "reason": reason}, *self._stop()]

    def _stop(self) -> list[Message]:
        self._started = None
        return [{"msg_type": "race_stop"}]
