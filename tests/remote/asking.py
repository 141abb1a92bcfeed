"""A remote policy, with a stand-in for its server, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.remote.answers import Terms
from rtagent.remote.policy import RemotePolicy
from rtagent.remote.protocol import decode, encode
from rtagent.remote.wire import LostError

DIALLED_S, ANSWER_S, SLOW_S = 0.03, 0.14, 1.4
PATIENCE_S = 600.0
"""Far longer than any answer takes."""
OBSERVATION = np.zeros((1, 4), np.float32)
GOOD = {
    "values": np.array([0.0, 2.0, 1.0], np.float32),
    "server_timing": {"infer_ms": 80.0, "queue_ms": 10.0},
}


TERMS = Terms(3, discrete=True)


class Told(Exception):
    """The process was told to leave."""


class Connection:
    """One to a server."""

    def __init__(self, server: Server) -> None:
        self.server, self.metadata = server, server.metadata
        self.answer_at: float | None = None

    def send(self, data: bytes, attend: Callable[[], None]) -> None:
        server = self.server
        if server.refusal is not None:
            raise server.refusal
        assert self.answer_at is None, "a connection with a question on its way is asked another"
        server.asked.append(decode(data))
        self.answer_at = server.clock.now() + server.takes()

    def receive(self, seconds: float) -> bytes | str | None:
        clock = self.server.clock
        until = clock.now() + seconds
        late = self.answer_at is None or until < self.answer_at
        if late or (reply := self.server.reply()) is None:
            clock.sleep_until(until)
            return None
        clock.sleep_until(self.answer_at)
        self.answer_at = None
        return reply

    def close(self) -> None:
        self.server.open -= 1


class Server:
    """What a dialer reaches: open or not, and what it answers."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.refusal: LostError | None = None
        self.metadata: dict[str, Any] = {"answers": "values", "outputs": 3}
        self.reply: Callable[[], bytes | str | None] = lambda: encode(GOOD)
        self.takes: Callable[[], float] = lambda: ANSWER_S
        self.dialled: list[float] = []
        self.connections: list[Connection] = []
        self.asked: list[dict[str, Any]] = []
        self.open = 0

    def dial(self) -> None:
        self.dialled.append(self.clock.now())

    def outcome(self, seconds: float) -> Connection:
        self.clock.advance(DIALLED_S)
        if self.refusal is not None:
            raise self.refusal
        self.open += 1
        self.connections.append(Connection(self))
        return self.connections[-1]


class Bench:
    """A policy, and what it has told and counted."""

    def __init__(self, terms: Terms = TERMS, hedge: float | None = None, **inputs: Any) -> None:
        self.clock = VirtualClock(100.0)
        self.server = Server(self.clock)
        self.beats: list[float] = []
        self.leave_at = float("inf")
        self.events: list[tuple[str, dict[str, Any]]] = []
        words = np.zeros(-(-InferenceRecord.size() // 8), np.int64)
        self.record = InferenceRecord(memoryview(words).cast("B"))
        self.policy = RemotePolicy(
            "ws://there", terms, self.server, self.clock, self.attend,
            self.record, lambda kind, **details: self.events.append((kind, details)), inputs,
            hedge,
        )

    def attend(self) -> None:
        self.beats.append(self.clock.now())
        if self.clock.now() >= self.leave_at:
            raise Told

    def ask(self) -> Any:
        return self.policy.values(OBSERVATION)

    def answer(self) -> Any:
        """Ask until there is an answer."""
        until = self.clock.now() + PATIENCE_S
        while (found := self.ask()) is None:
            assert self.clock.now() < until, "no answer comes"
        return found

    def ask_for(self, seconds: float) -> None:
        """Ask for so long; then the process is told to leave."""
        self.leave_at = self.clock.now() + seconds
        with pytest.raises(Told):
            self.answer()
        self.leave_at = float("inf")

    def ask_in_vain(self) -> None:
        """Ask once what is answered late."""
        self.server.takes = lambda: SLOW_S
        assert self.ask() is None
        self.server.takes = lambda: ANSWER_S
