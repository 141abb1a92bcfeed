"""A race against the clock: so many laps, through gates in their order, from lobby to stop.

Nothing here knows roads, sockets or the clock: a race is told the time and where the car is, and
says what its client is to hear.

    race_start         the car may go
    missed_checkpoint  checkpoint: the gate that was due, 0 being the starting line
    DQ                 missed_cp: whether gates are the reason; reason: in words
    race_stop          the race is over, by the last lap or by DQ
    ping               every few seconds, from the lobby on; it wants no answer

Gates stand at equal distances, the first one on the starting line, and are a little wider than the
road. The one that is due may be driven through only after all before it; to and fro through the
last one is allowed. Whoever goes round a gate or takes another one has missed the one that was due,
and goes on from there.
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
"""Distance from the centre line at which a car has left the road for good."""
MOST_MISSED = 1
PING_S = 5.0


@dataclass(frozen=True)
class Rules:
    """What makes a race: laps, the time limit for all of them, and the gates in a lap."""

    laps: int
    time_limit_s: float
    checkpoints: int


class Race:
    """One client's race by its rules; `in_lobby` until it is started.

    Times are seconds of the world; `rounds` is the way along the road since the starting line, in
    rounds, backwards negative.
    """

    def __init__(self, rules: Rules, time: float) -> None:
        self._rules, self._pinged = rules, time
        self.in_lobby = True
        self._started: float | None = None
        self._passed = self._due = self._missed = 0

    def start(self, time: float, rounds: float) -> list[Message]:
        """Begin, or begin anew."""
        self.in_lobby, self._started = False, time
        self._due = self._missed = 0
        self.put(rounds)
        return [{"msg_type": "race_start"}]

    def put(self, rounds: float) -> None:
        """The car has been put elsewhere: it has driven through none of the gates in between."""
        self._passed = self._last_gate(rounds)

    def advance(self, time: float, rounds: float, cte: float) -> list[Message]:
        """The car has driven on, with this cross-track error: what there is to say about it."""
        before, self._passed = self._passed, self._last_gate(rounds)
        forwards = range(before + 1, self._passed + 1)
        said: list[Message] = []
        if self._started is not None:
            gates = forwards or range(before, self._passed, -1)
            said += self._judge(time - self._started, gates, abs(cte))
        if time - self._pinged >= PING_S:
            self._pinged = time
            said.append({"msg_type": "ping"})
        return said

    def _last_gate(self, rounds: float) -> int:
        """Gates are counted on from lap to lap."""
        return floor(rounds * self._rules.checkpoints)

    def _judge(self, seconds: float, gates: Iterable[int], off: float) -> list[Message]:
        rules, said = self._rules, []
        for gate in gates:
            if gate == self._due - 1:
                continue
            if gate != self._due or off > GATE_HALF_WIDTH:
                self._missed += 1
                checkpoint = self._due % rules.checkpoints
                said.append({"msg_type": "missed_checkpoint", "checkpoint": checkpoint})
            self._due = gate + 1
        if self._missed > MOST_MISSED:
            return said + self._disqualify("missed checkpoints")
        if self._due > rules.laps * rules.checkpoints:
            return said + self._stop()
        if off > OFF_ROAD:
            return said + self._disqualify("off the road")
        if seconds > rules.time_limit_s:
            return said + self._disqualify("time limit exceeded")
        return said

    def _disqualify(self, reason: str) -> list[Message]:
        missed = self._missed > MOST_MISSED
        return [{"msg_type": "DQ", "missed_cp": missed, "reason": reason}, *self._stop()]

    def _stop(self) -> list[Message]:
        self._started = None
        return [{"msg_type": "race_stop"}]
