"""Calls that are handed over to another thread."""

from __future__ import annotations

import threading

import pytest

from rtagent.placement.second_core import SecondCore


@pytest.fixture
def core():
    made = SecondCore()
    yield made
    made.close()


def test_calls_run_in_their_order_in_another_thread(core: SecondCore) -> None:
    ran: list[int] = []
    pending = [core.submit(lambda n=n: ran.append(n)) for n in range(100)]
    assert core.submit(threading.current_thread).result() is not threading.current_thread()
    for each in pending:
        each.result()
    assert ran == list(range(100))


def test_what_a_call_raises_is_raised_where_its_result_is_asked_for(core: SecondCore) -> None:
    failed = core.submit(lambda: 1 // 0)
    assert core.submit(lambda: 7).result() == 7
    with pytest.raises(ZeroDivisionError):
        failed.result()


def test_the_thread_finishes_what_it_was_given() -> None:
    core, ran = SecondCore(), []
    core.submit(lambda: ran.append(1))
    core.close()
    assert ran == [1]
