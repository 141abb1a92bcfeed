"""Which state an inference begins with, and what the ledger keeps of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rtagent.memory.ledger import Ledger
from rtagent.memory.policy_states import ENTRIES, Beginning, PolicyStates
from tests.conftest import make_blueprint
from tests.rows import write_row

SIZE = 3
ROWS = 4
OTHER = 7
"""The process that left what each inference began with."""


@pytest.fixture
def states() -> PolicyStates:
    memory = memoryview(bytearray(PolicyStates.size(SIZE)))
    PolicyStates.format(memory, SIZE)
    return PolicyStates(memory, SIZE)


def keep(states: PolicyStates, worker: int, frame: int, lag: int = 0) -> None:
    """An inference that leaves the number of its frame."""
    began, left = (np.full(SIZE, each, np.float32) for each in (frame - lag, frame))
    states.keep(worker, frame, Beginning(lag, began, OTHER), left)


def test_the_first_inference_begins_with_zeros(states: PolicyStates) -> None:
    lag, state, _ = states.begin(0, ROWS, 7, 0)
    assert lag == 0
    assert state.tolist() == [0.0] * SIZE


def test_the_newest_frame_counts_and_not_who_ended_last(states: PolicyStates) -> None:
    keep(states, 1, 12)
    keep(states, 0, 10)
    keep(states, 2, 5)
    lag, state, worker = states.begin(3, ROWS, 14, 0)
    assert (lag, state.tolist(), worker) == (2, [12.0] * SIZE, 1)


def test_neither_the_same_frame_nor_a_newer_one_is_the_past(states: PolicyStates) -> None:
    keep(states, 0, 8)
    keep(states, 0, 11)
    keep(states, 1, 10)
    lag, state, _ = states.begin(2, ROWS, 10, 0)
    assert (lag, state[0]) == (2, 8.0)


def test_what_was_before_a_reset_is_forgotten(states: PolicyStates) -> None:
    keep(states, 0, 9)
    keep(states, 1, 10)
    assert states.begin(2, ROWS, 12, 10).lag == 2
    lag, state, _ = states.begin(3, ROWS, 12, 11)
    assert (lag, state.tolist()) == (0, [0.0] * SIZE)


def test_processes_that_do_not_act_are_not_asked(states: PolicyStates) -> None:
    keep(states, 3, 9)
    assert states.begin(0, 3, 12, 0).lag == 0


def test_the_same_inference_again_begins_as_before(states: PolicyStates) -> None:
    keep(states, 0, 9, lag=4)
    keep(states, 1, 8)
    lag, state, worker = states.begin(0, ROWS, 9, 0)
    assert (lag, state[0], worker) == (4, 5.0, OTHER)


def test_what_an_inference_began_with_is_known_for_a_while(states: PolicyStates) -> None:
    for frame in range(2, 3 * ENTRIES, 2):
        keep(states, 0, frame, lag=2)
    newest = 3 * ENTRIES - 2
    for frame in range(newest, newest - 2 * ENTRIES, -2):
        found = states.behind(0, frame)
        assert (found.lag, found.state[0]) == (2, frame - 2)
    assert states.behind(0, newest - 2 * ENTRIES) is None
    assert states.behind(0, newest - 1) is None
    assert states.behind(1, newest) is None


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_process_killed_while_it_writes_hurts_nobody(states: PolicyStates, steps: int) -> None:
    keep(states, 1, 3)
    for frame in range(20, 20 + ENTRIES):
        keep(states, 0, frame)
    ring = states._ring(0)
    half = ring._begin(ring.newest + 1)
    if steps:
        ring._entries[half]["left"] = np.nan
    if steps > 1:
        ring._entries[half]["frame"] = 40
    # The oldest is gone, the newest is there.
    assert states.behind(0, 20) is None
    assert states.begin(2, ROWS, 50, 0).state[0] == 19 + ENTRIES
    assert states.begin(2, ROWS, 21, 0).state[0] == 3.0
    keep(states, 0, 45)
    assert states.begin(2, ROWS, 50, 0).state[0] == 45.0


def test_what_was_used_stays_in_the_row(either_way: str) -> None:
    blueprint = replace(make_blueprint(), state_size=SIZE, pending_actions=2)
    ledger = Ledger.private(blueprint, 16)
    state = np.array([0.5, -1.0, 2.0], np.float32)
    for tick, beginning in enumerate((None, Beginning(0, 0.0 * state), Beginning(3, state, 5))):
        write_row(ledger, tick, beginning=beginning)
    ledger.truncate_episode()
    rows = ledger.read(0, 3)
    assert rows["state_lag"].tolist() == [-1, 0, 3]
    assert rows["state_worker"].tolist() == [-1, -1, 5]
    assert rows["flags"].tolist() == [0, 0, 2]
    np.testing.assert_array_equal(rows["state"], [0.0 * state, 0.0 * state, state])
    raw = ledger._rows.view(np.uint8).reshape(16, -1)
    raw[2, ledger.dtype.fields["state"][1] + 4 * SIZE - 1] ^= 1  # type: ignore[index]
    assert len(ledger.read(0, 3)) == 2
