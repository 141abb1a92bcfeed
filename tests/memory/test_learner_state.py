"""The learners' shared state: whole at any instant, whoever dies, and exact for its readers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rtagent.memory.arena import PAGE
from rtagent.memory.array_buffer import into
from rtagent.memory.learner_state import LearnerState, Progress

N = 5000


@pytest.fixture
def buffer(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(LearnerState.size(N))


def put(state: LearnerState, value: float, progress: Progress) -> None:
    copy = state.copies[state.begin()]
    for array in (copy.weights, copy.mean, copy.square):
        array[:] = value
    state.commit(progress)


def test_there_is_none_at_first(buffer: memoryview) -> None:
    state = LearnerState(buffer, N)
    assert state.number == state.target_number == 0
    assert state.read_weights(into(np.empty(N, np.float32))) is None
    assert state.read_target(into(np.empty(N, np.float32))) is None


def test_the_newest_is_read(buffer: memoryview) -> None:
    state, out = LearnerState(buffer, N), np.empty(N, np.float32)
    for number in range(5):
        wanted = Progress(10 + number, number, 32 * number, 2 * (number // 2))
        put(state, number, wanted)
        assert LearnerState(buffer, N).read_weights(into(out)) == wanted
        assert (out == number).all()
        assert state.number == number + 1
        assert (state.current.mean == number).all()


def test_a_copy_begun_and_not_committed_changes_nothing(buffer: memoryview) -> None:
    state, out = LearnerState(buffer, N), np.empty(N, np.float32)
    put(state, 1.0, Progress(1))
    put(state, 2.0, Progress(2))
    state.copies[state.begin()].weights[:] = 99.0
    assert LearnerState(buffer, N).read_weights(into(out)) == Progress(2)
    assert (out == 2.0).all()
    put(state, 3.0, Progress(3))
    assert state.progress == Progress(3)


def test_the_target_is_versioned_by_itself(buffer: memoryview) -> None:
    state, out = LearnerState(buffer, N), np.empty(N, np.float32)
    for _ in state.copies:
        put(state, 7.0, Progress(1))
    for number in range(3):
        state.begin_target()[:] = number
        state.commit_target(100 * number)
        assert state.read_target(into(out)) == Progress(100 * number)
        assert (out == number).all()
        assert state.target_number == number + 1
        assert (state.target == number).all()
        assert state.target_updates == 100 * number
    assert state.number == 2
    for copy in state.copies:
        assert (np.stack([copy.weights, copy.mean, copy.square]) == 7.0).all()


def test_the_words_of_both_lie_on_the_first_page(buffer: memoryview) -> None:
    state = LearnerState(buffer, N)
    put(state, 1.0, Progress(1))
    state.begin_target()[:] = 1.0
    state.commit_target(1)
    state.checkpoints.served = 1
    values = np.frombuffer(buffer, np.float32, (len(buffer) - PAGE) // 4, PAGE)
    assert {*values.tolist()} == {0.0, 1.0}
