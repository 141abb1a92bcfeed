"""Asking a policy server, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, pairwise
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.remote.answers import Terms
from rtagent.remote.policy import (
    FIRST_ANSWER_S,
    LEAST_PATIENCE_S,
    LEAST_SLICE_S,
    LONGEST_PAUSE_S,
    REFUSED_PAUSE_S,
    SLICE_S,
    RemotePolicy,
)
from rtagent.remote.protocol import decode, encode
from rtagent.remote.wire import LostError, RefusedError

DIALLED_S, ANSWER_S, SLOW_S = 0.03, 0.14, 1.4
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
        while (found := self.ask()) is None:
            pass
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


def test_a_new_connection_is_no_answer_for_the_world_has_gone_on() -> None:
    bench = Bench()
    assert bench.ask() is None
    assert bench.record.connected == 0
    np.testing.assert_array_equal(bench.ask(), [0.0, 2.0, 1.0])
    assert bench.record.connected == 1
    assert not bench.policy.answers_actions


def test_network_queue_and_compute_are_told_apart() -> None:
    bench = Bench()
    for _ in range(5):
        bench.answer()
    record = bench.record
    assert record.compute_ns == 80_000_000
    assert record.queue_ns == 10_000_000
    assert record.round_trip_ns == pytest.approx(50_000_000, abs=10)
    assert record.in_flight == 0


def test_a_state_and_what_is_pending_travel_with_the_question() -> None:
    bench = Bench(Terms(3, discrete=True, state=2, pending=3))
    bench.server.metadata |= {"policy_state": 2, "pending_actions": 3}
    left = np.array([4.0, 5.0], np.float32)
    bench.server.reply = lambda: encode({**GOOD, "policy_state": left})
    asked: list[float] = []

    def pending() -> np.ndarray:
        asked.append(bench.clock.now())
        return np.array([[0.0, 1.0, 0.0]], np.float32)

    assert bench.policy.values(OBSERVATION, pending) is None
    assert asked == []
    for state in ([0.0, 0.0], [4.0, 5.0]):
        now = bench.clock.now()
        assert bench.policy.values(OBSERVATION, pending) is not None
        question = bench.server.asked[-1]
        np.testing.assert_array_equal(question["policy_state"], state)
        np.testing.assert_array_equal(question["pending_actions"], [0.0, 1.0, 0.0])
        assert asked.pop() == now
    # An answer without the state is none, and what was known stays.
    bench.server.reply = lambda: encode(GOOD)
    assert bench.policy.values(OBSERVATION, pending) is None
    np.testing.assert_array_equal(bench.policy.state, left)


def test_one_frame_travels_without_a_stack_and_with_what_is_configured() -> None:
    bench = Bench(prompt="fold")
    bench.answer()
    assert bench.server.asked[0]["prompt"] == "fold"
    assert bench.server.asked[0]["observation"].shape == (4,)


def test_a_cut_link_is_tried_again_and_again_and_told_once() -> None:
    bench = Bench()
    bench.answer()
    bench.server.refusal = LostError("connection refused")
    bench.ask_for(10.0)
    assert bench.record.connected == 0
    waits = np.diff(bench.server.dialled)
    assert waits.max() <= LONGEST_PAUSE_S + DIALLED_S + 1e-9
    assert np.diff(bench.beats).max() <= LONGEST_PAUSE_S
    assert [kind for kind, _ in bench.events] == ["remote_answers", "remote_lost"]
    assert bench.events[1][1] == {"reason": "connection refused"}
    back = bench.clock.now()
    bench.server.refusal = None
    bench.answer()
    assert bench.clock.now() - back < LONGEST_PAUSE_S + DIALLED_S + ANSWER_S + 0.01
    assert bench.events[-1] == ("remote_answers", {"address": "ws://there"})


def test_without_a_server_there_is_one_line_and_the_process_beats_and_leaves() -> None:
    bench = Bench()
    bench.server.refusal = LostError("connection refused")
    bench.ask_for(60.0)
    assert [kind for kind, _ in bench.events] == ["remote_lost"]
    assert len(bench.beats) > 100


def test_a_refusal_is_tried_again_seldom() -> None:
    bench = Bench()
    bench.server.refusal = RefusedError("the server refuses the token (RTAGENT_REMOTE_TOKEN)")
    bench.ask_for(60.0)
    assert len(bench.server.dialled) <= 60.0 / REFUSED_PAUSE_S + 1
    assert len(bench.events) == 1
    assert np.diff(bench.beats).max() <= SLICE_S + DIALLED_S + 1e-9


def test_a_server_of_other_actions_is_left() -> None:
    bench = Bench()
    bench.server.metadata = {"outputs": 7}
    bench.ask_for(20.0)
    assert bench.server.open == 0
    assert bench.events == [("remote_lost", {
        "reason": "the server's policy has 7 actions, and the environment has 3"
    })]


def test_a_server_that_falls_silent_is_left_in_good_time() -> None:
    bench = Bench()
    bench.answer()
    bench.server.reply = lambda: None
    began = bench.clock.now()
    assert bench.ask() is None
    assert LEAST_PATIENCE_S <= bench.clock.now() - began < 2.0
    assert bench.server.open == 0
    assert bench.record.in_flight == 0


def test_a_first_answer_that_took_long_is_not_the_usual_one() -> None:
    bench = Bench()
    bench.server.takes = lambda: FIRST_ANSWER_S / 2
    bench.answer()
    bench.server.takes = lambda: ANSWER_S
    bench.answer()
    bench.server.reply = lambda: None
    began = bench.clock.now()
    assert bench.ask() is None
    assert bench.clock.now() - began < 2.0


def test_a_server_that_has_become_slower_for_good_acts_again() -> None:
    bench = Bench()
    bench.answer()
    bench.server.takes = lambda: 12.0 * ANSWER_S
    began = bench.clock.now()
    bench.answer()
    assert bench.clock.now() - began < 60.0 * ANSWER_S


def test_the_first_answer_may_take_long() -> None:
    bench = Bench()
    assert bench.ask() is None
    bench.server.reply = lambda: None
    began = bench.clock.now()
    assert bench.ask() is None
    assert bench.clock.now() - began >= FIRST_ANSWER_S
    assert np.diff(bench.beats).max() <= SLICE_S + 1e-9


def test_a_server_that_now_and_then_answers_badly_is_told_of_once() -> None:
    bench = Bench()
    replies = [encode(GOOD), encode({"values": np.full(3, np.nan)})]
    bench.server.reply = lambda: replies[len(bench.server.asked) % 2]
    for _ in range(100):
        bench.ask()
    assert [kind for kind, _ in bench.events].count("remote_lost") == 1


@pytest.mark.parametrize("good", [0, 1])
def test_reasons_that_change_all_the_time_are_told_seldom(good: int) -> None:
    # As of a GPU whose memory is full: each error names another number of bytes.
    bench = Bench()
    replies = cycle([*[None] * good, "torch.OutOfMemoryError: {} bytes are free"])
    bench.server.reply = lambda: (
        encode(GOOD) if (text := next(replies)) is None else text.format(len(bench.server.asked))
    )
    until = bench.clock.now() + 60.0
    while bench.clock.now() < until:
        bench.ask()
    assert len(bench.server.asked) > 100
    assert 60.0 / REFUSED_PAUSE_S - 2 <= len(bench.events) <= 2 * (60.0 / REFUSED_PAUSE_S + 1)


@pytest.mark.parametrize(("reply", "reason"), [
    (encode({"values": np.array([0.0, np.nan, 0.0])}), "not finite"),
    (encode({"values": np.zeros(4)}), "of the shape"),
    (encode({"actions": np.zeros((10, 1))}), "no 'values'"),
    (b"\xc1", "no msgpack"),
    ("Traceback\nKeyError: 'image'", "the server says: KeyError: 'image'"),
])
def test_bad_answers_are_one_line_and_no_action(reply: bytes | str, reason: str) -> None:
    bench = Bench()
    bench.server.reply = lambda: reply
    for _ in range(50):
        assert bench.ask() is None
    assert bench.server.open <= 1
    (kind, details), = bench.events
    assert kind == "remote_lost"
    assert reason in details["reason"]
    bench.server.reply = lambda: encode(GOOD)
    np.testing.assert_array_equal(bench.answer(), [0.0, 2.0, 1.0])


def test_a_second_answer_is_not_taken_for_the_answer_to_the_next_question() -> None:
    bench = Bench()
    bench.answer()
    (connection,) = bench.server.connections
    connection.answer_at = bench.clock.now()
    assert bench.ask() is None
    assert (bench.server.open, len(bench.server.asked)) == (0, 1)
    kind, details = bench.events[-1]
    assert (kind, details["reason"]) == ("remote_lost", "the server answers what was not asked")
    assert bench.answer() is not None


def test_a_late_answer_is_not_waited_for_and_never_taken_for_a_newer_one() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    late = bench.clock.now()
    bench.ask_in_vain()
    assert bench.clock.now() == pytest.approx(
        late + 1.5 * ANSWER_S + DIALLED_S, abs=1.1 * LEAST_SLICE_S
    )
    assert bench.record.hedged == bench.record.in_flight == 1
    newer = encode({**GOOD, "values": np.array([3.0, 0.0, 0.0], np.float32)})
    bench.server.reply = lambda: newer if bench.server.clock.now() < late + SLOW_S else encode(GOOD)
    began = bench.clock.now()
    np.testing.assert_array_equal(bench.ask(), [3.0, 0.0, 0.0])
    assert bench.clock.now() == pytest.approx(began + ANSWER_S)
    assert bench.server.open == 2
    # The next late answer goes the other way, over the connections that there are.
    while bench.clock.now() < late + SLOW_S:
        bench.answer()
    bench.ask_in_vain()
    assert bench.ask() is not None
    assert bench.record.hedged == 2
    assert len(bench.server.dialled) == 2
    assert [kind for kind, _ in bench.events] == ["remote_answers"]


def test_an_answer_is_late_before_the_link_counts_as_cut() -> None:
    bench = Bench(hedge=20.0)
    bench.answer()
    bench.server.takes = lambda: 100.0 * ANSWER_S
    began = bench.clock.now()
    assert bench.ask() is None
    assert bench.clock.now() - began == pytest.approx(
        20.0 * ANSWER_S + DIALLED_S, abs=1.1 * LEAST_SLICE_S
    )
    assert (bench.record.hedged, bench.record.connected, bench.server.open) == (1, 1, 2)


def test_a_late_answer_that_has_come_is_not_in_flight_any_more() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    seen: list[int] = []

    def takes() -> float:
        # The question before is counted until the next one is on its way.
        seen.append(bench.record.in_flight)
        return ANSWER_S

    bench.ask_in_vain()
    bench.server.takes = takes
    bench.answer()
    assert bench.record.in_flight == 1
    bench.clock.advance(SLOW_S)
    bench.answer()
    assert bench.record.in_flight == 0
    bench.answer()
    assert seen == [1, 1, 0]


def test_with_a_question_on_its_way_on_both_connections_the_answer_is_waited_for() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    bench.ask_in_vain()
    bench.answer()
    bench.server.takes = lambda: 2.0 * ANSWER_S
    began = bench.clock.now()
    assert bench.ask() is not None
    assert bench.clock.now() == pytest.approx(began + 2.0 * ANSWER_S)
    assert bench.record.hedged == 1


def test_a_server_that_has_become_slower_for_good_is_known_to_be() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    bench.server.takes = lambda: 3.0 * ANSWER_S
    answered = [bench.ask() is not None for _ in range(100)]
    assert all(one or other for one, other in pairwise(answered))
    hedged = bench.record.hedged
    assert hedged > 0
    assert all(bench.ask() is not None for _ in range(100))
    assert bench.record.hedged == hedged


def test_a_cut_link_ends_both_connections() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    bench.ask_in_vain()
    bench.server.refusal = LostError("connection refused")
    bench.ask_for(5.0)
    assert bench.server.open == bench.record.in_flight == 0


def test_a_second_connection_that_is_lost_is_made_anew() -> None:
    bench = Bench(hedge=1.5)
    bench.answer()
    bench.ask_in_vain()
    bench.answer()

    def lost(seconds: float) -> None:
        raise LostError("closed")

    bench.server.connections[0].receive = lost  # type: ignore[method-assign, assignment]
    bench.ask_in_vain()
    assert bench.answer() is not None
    assert len(bench.server.dialled) == 3
    assert bench.server.open == 2


def test_without_a_hedge_a_late_answer_is_waited_for() -> None:
    bench = Bench()
    bench.answer()
    bench.server.takes = lambda: 5.0 * ANSWER_S
    assert bench.ask() is not None
    assert bench.record.hedged == 0
    assert bench.server.open == 1
