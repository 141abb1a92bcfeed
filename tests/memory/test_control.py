"""The supervisor's orders, as a worker reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rtagent.config import MAX_LEARNERS, Config
from rtagent.memory.control import Control
from tests.orders import make_orders, ordered

CONFIG = Config()
ORDERS = make_orders(
    processes=3, rows=5, go=True, stop=True, learning={"paused": True},
    inference={"algorithm": "maximum-time", "injected_latency_ms": 82.5},
)


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(Control.size())


def test_every_order_arrives(memory: memoryview) -> None:
    Control(memory, CONFIG).write(ORDERS)
    assert Control(memory, CONFIG).orders == ORDERS


def test_a_change_is_seen(memory: memoryview) -> None:
    supervisor, worker = Control(memory, CONFIG), Control(memory, CONFIG)
    supervisor.write(ORDERS)
    assert worker.orders is worker.orders
    for processes in range(1, 6):
        supervisor.write(replace(ORDERS, processes=processes))
        assert worker.orders.processes == processes


def test_longest_orders_fit(memory: memoryview) -> None:
    longest = ordered(
        ORDERS, processes=256, rows=256, learner_ring=list(range(MAX_LEARNERS)),
        inference={"injected_latency_ms": 1 / 3 * 1e5},
    )
    Control(memory, CONFIG).write(longest)
    assert Control(memory, CONFIG).orders == longest


def test_only_live_settings_travel(memory: memoryview) -> None:
    Control(memory, CONFIG).write(ordered(ORDERS, learning={"gamma": 0.5, "batch_size": 8}))
    learning = Control(memory, CONFIG).orders.learning
    assert (learning.gamma, learning.batch_size) == (CONFIG.learning.gamma, 8)


def test_torn_orders_are_read_again(memory: memoryview) -> None:
    supervisor, worker = Control(memory, CONFIG), Control(memory, CONFIG)
    supervisor.write(ORDERS)
    assert worker.orders == ORDERS
    new = replace(ORDERS, processes=9, stop=False)
    supervisor.write(new)
    at = bytes(memory).index(b'"processes": 9')
    memory[at + 13] ^= 1
    # The rest of the writer's stores is on its way: the orders before are in force, until it comes.
    assert worker.orders == worker.orders == ORDERS
    memory[at + 13] ^= 1
    assert worker.orders == new
