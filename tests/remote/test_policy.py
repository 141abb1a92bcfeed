"""Asking a policy server, in virtual time."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from rtagent.remote.answers import Terms
from rtagent.remote.policy import (
    FIRST_ANSWER_S,
    LEAST_PATIENCE_S,
    LONGEST_PAUSE_S,
    REFUSED_PAUSE_S,
    SLICE_S,
)
from rtagent.remote.protocol import encode
from rtagent.remote.wire import LostError, RefusedError
from tests.remote.asking import ANSWER_S, DIALLED_S, GOOD, OBSERVATION, Bench


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_new_connection_is_no_answer_for_the_world_has_gone_on(bench: Bench) -> None:
    assert bench.ask() is None
    assert bench.record.connected == 0
    np.testing.assert_array_equal(bench.ask(), [0.0, 2.0, 1.0])
    assert bench.record.connected == 1
    assert not bench.policy.answers_actions


def test_network_queue_and_compute_are_told_apart(bench: Bench) -> None:
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


def test_a_cut_link_is_tried_again_and_again_and_told_once(bench: Bench) -> None:
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


def test_a_refusal_is_tried_again_seldom(bench: Bench) -> None:
    bench.server.refusal = RefusedError("the server refuses the token (RTAGENT_REMOTE_TOKEN)")
    bench.ask_for(60.0)
    assert len(bench.server.dialled) <= 60.0 / REFUSED_PAUSE_S + 1
    assert [kind for kind, _ in bench.events] == ["remote_lost"]
    assert np.diff(bench.beats).max() <= SLICE_S + DIALLED_S + 1e-9


def test_a_server_of_other_actions_is_left(bench: Bench) -> None:
    bench.server.metadata = {"outputs": 7}
    bench.ask_for(20.0)
    assert bench.server.open == 0
    assert bench.events == [("remote_lost", {
        "reason": "the server's policy has 7 actions, and the environment has 3"
    })]


@pytest.mark.parametrize("took_s", [[ANSWER_S], [FIRST_ANSWER_S / 2, ANSWER_S]])
def test_a_server_that_falls_silent_is_left_in_good_time(bench: Bench, took_s: list[float]) -> None:
    """A first answer that took long is not the usual one."""
    bench.server.takes = iter([*took_s, ANSWER_S]).__next__
    for _ in took_s:
        bench.answer()
    bench.server.reply = lambda: None
    began = bench.clock.now()
    assert bench.ask() is None
    assert LEAST_PATIENCE_S <= bench.clock.now() - began < 2.0
    assert bench.server.open == 0
    assert bench.record.in_flight == 0


def test_a_server_that_has_become_slower_for_good_acts_again(bench: Bench) -> None:
    bench.answer()
    bench.server.takes = lambda: 12.0 * ANSWER_S
    began = bench.clock.now()
    bench.answer()
    assert bench.clock.now() - began < 60.0 * ANSWER_S


def test_the_first_answer_may_take_long(bench: Bench) -> None:
    assert bench.ask() is None
    bench.server.reply = lambda: None
    began = bench.clock.now()
    assert bench.ask() is None
    assert bench.clock.now() - began >= FIRST_ANSWER_S
    assert np.diff(bench.beats).max() <= SLICE_S + 1e-9


def test_a_server_that_now_and_then_answers_badly_is_told_of_once(bench: Bench) -> None:
    replies = [encode(GOOD), encode({"values": np.full(3, np.nan)})]
    bench.server.reply = lambda: replies[len(bench.server.asked) % 2]
    for _ in range(100):
        bench.ask()
    assert [kind for kind, _ in bench.events].count("remote_lost") == 1


@pytest.mark.parametrize("good", [0, 1])
def test_reasons_that_change_all_the_time_are_told_seldom(bench: Bench, good: int) -> None:
    # As of a GPU whose memory is full: each error names another number of bytes.
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
def test_bad_answers_are_one_line_and_no_action(
    bench: Bench, reply: bytes | str, reason: str
) -> None:
    bench.server.reply = lambda: reply
    for _ in range(50):
        assert bench.ask() is None
    assert bench.server.open <= 1
    (kind, details), = bench.events
    assert kind == "remote_lost"
    assert reason in details["reason"]
    bench.server.reply = lambda: encode(GOOD)
    np.testing.assert_array_equal(bench.answer(), [0.0, 2.0, 1.0])


def test_a_second_answer_is_not_taken_for_the_answer_to_the_next_question(bench: Bench) -> None:
    bench.answer()
    (connection,) = bench.server.connections
    connection.answer_at = bench.clock.now()
    assert bench.ask() is None
    assert (bench.server.open, len(bench.server.asked)) == (0, 1)
    kind, details = bench.events[-1]
    assert (kind, details["reason"]) == ("remote_lost", "the server answers what was not asked")
    assert bench.answer() is not None
