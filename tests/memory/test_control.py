"""The desired state, as a worker reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rtagent.config import MAX_LEARNERS, Config
from rtagent.memory.control import Control
from tests.desired import make_desired, with_changes

CONFIG = Config()
DESIRED = make_desired(
    processes=3, rows=5, go=True, stop=True, learning={"paused": True},
    inference={"algorithm": "maximum-time", "injected_latency_ms": 82.5},
)


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(Control.size())


def test_every_setting_arrives(memory: memoryview) -> None:
    Control(memory, CONFIG).write(DESIRED)
    assert Control(memory, CONFIG).desired == DESIRED


def test_a_change_is_seen(memory: memoryview) -> None:
    supervisor, worker = Control(memory, CONFIG), Control(memory, CONFIG)
    supervisor.write(DESIRED)
    assert worker.desired is worker.desired
    for processes in range(1, 6):
        supervisor.write(replace(DESIRED, processes=processes))
        assert worker.desired.processes == processes


def test_the_longest_state_fits(memory: memoryview) -> None:
    longest = with_changes(
        DESIRED, processes=256, rows=256, learner_ring=list(range(MAX_LEARNERS)),
        inference={"injected_latency_ms": 1 / 3 * 1e5},
        env={"default_action": [-1 / 3 * 1e-300] * 256},
    )
    Control(memory, CONFIG).write(longest)
    assert Control(memory, CONFIG).desired == longest


def test_only_live_settings_travel(memory: memoryview) -> None:
    Control(memory, CONFIG).write(with_changes(DESIRED, learning={"gamma": 0.5, "batch_size": 8}))
    learning = Control(memory, CONFIG).desired.learning
    assert (learning.gamma, learning.batch_size) == (CONFIG.learning.gamma, 8)


def test_a_torn_state_is_read_again(memory: memoryview) -> None:
    supervisor, worker = Control(memory, CONFIG), Control(memory, CONFIG)
    supervisor.write(DESIRED)
    assert worker.desired == DESIRED
    new = replace(DESIRED, processes=9, stop=False)
    supervisor.write(new)
    at = bytes(memory).index(b'"processes": 9')
    memory[at + 13] ^= 1
    # The rest of the writer's stores is on its way: the state before is in force until it comes.
    assert worker.desired == worker.desired == DESIRED
    memory[at + 13] ^= 1
    assert worker.desired == new
