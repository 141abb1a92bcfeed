"""Turns of acting and learning: one update for each permission, and nobody waits for ever."""

from __future__ import annotations

import threading

from rtagent.clock import MonotonicClock
from rtagent.memory.alternation import Alternation
from tests.conftest import private

CLOCK = MonotonicClock()
LIMIT_S = 60.0


def test_each_permission_is_answered_once() -> None:
    shared, seen = private(Alternation), []

    def learn() -> None:
        while len(seen) < 200:
            permit = shared.wait_for_permit(CLOCK, LIMIT_S)
            seen.append(permit)
            shared.answer(permit)

    learner = threading.Thread(target=learn)
    learner.start()
    for _ in range(200):
        assert shared.wait_for_answer(shared.permit(), CLOCK, LIMIT_S)
    learner.join()
    assert seen == list(range(1, 201))
    assert shared.wait_for_permit(CLOCK, 0.0) is None


def test_nobody_waits_for_ever() -> None:
    shared = private(Alternation)
    assert shared.wait_for_permit(CLOCK, 0.01) is None
    assert not shared.wait_for_answer(shared.permit(), CLOCK, 0.01)


def test_a_late_answer_does_not_count_for_the_next_permission() -> None:
    shared = private(Alternation)
    late = shared.permit()
    assert shared.wait_for_permit(CLOCK, 0.0) == late
    newest = shared.permit()
    shared.answer(late)
    assert not shared.wait_for_answer(newest, CLOCK, 0.0)
    assert shared.wait_for_permit(CLOCK, 0.0) == newest
