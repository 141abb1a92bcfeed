"""The supervisor's orders, as a worker reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields, replace

import pytest

from rtagent.memory.control import Control, Orders

ORDERS = Orders(
    processes=3,
    rows=5,
    algorithm="maximum-time",
    fill=1,
    injected_latency_ms=82.5,
    injected_latency_distribution="gauss",
    injected_latency_spread=0.1,
    go=True,
    learning_paused=True,
    stop=True,
)
Images = Callable[..., list[bytes]]


@pytest.fixture
def memory(shared: Callable[[int], memoryview]) -> memoryview:
    return shared(Control.size())


def test_every_order_arrives(memory: memoryview) -> None:
    Control(memory).write(ORDERS)
    assert Control(memory).orders == ORDERS


def test_a_change_is_seen(memory: memoryview) -> None:
    supervisor, worker = Control(memory), Control(memory)
    supervisor.write(ORDERS)
    assert worker.orders is worker.orders
    for processes in range(1, 6):
        supervisor.write(replace(ORDERS, processes=processes))
        assert worker.orders.processes == processes


def test_longest_orders_fit(memory: memoryview) -> None:
    longest = replace(
        ORDERS, processes=256, rows=256, algorithm="published-maximum-time",
        injected_latency_ms=1 / 3 * 1e5, injected_latency_spread=1 / 3,
    )
    Control(memory).write(longest)
    assert Control(memory).orders == longest
    assert set(asdict(longest)) == {field.name for field in fields(Orders)}


def test_torn_orders_are_read_again(memory: memoryview) -> None:
    supervisor, worker = Control(memory), Control(memory)
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


def test_supervisor_held_up_anywhere(memory: memoryview, images: Images) -> None:
    control, worker = Control(memory), Control(memory)
    control.write(ORDERS)
    assert worker.orders == ORDERS
    new = replace(ORDERS, processes=9)
    code = type(control._cell).write.__code__
    left = images(memory, code, lambda: control.write(new))
    assert len(left) > 4
    seen = []
    for image in left:
        memory[:] = image
        assert worker.orders in (ORDERS, new)
        assert Control(memory).orders in (ORDERS, new)
        seen.append(worker.orders.processes)
    assert seen == sorted(seen)
    assert {*seen} == {3, 9}
