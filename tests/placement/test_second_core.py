"""Calls that are handed over to another thread."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.process
def test_it_is_one_core_that_computes_there() -> None:
    """Counted in a process of its own, for OpenMP keeps all threads that it has ever made."""
    code = """
import os, torch
from rtagent.placement.second_core import SecondCore
torch.set_num_threads(1)
core, layer = SecondCore(), torch.nn.Linear(400, 300)
def run():
    with torch.no_grad():
        layer(torch.zeros(64, 400))
before = len(os.listdir("/proc/self/task"))
core.submit(run).result()
print(len(os.listdir("/proc/self/task")) - before)
"""
    free = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=free, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"
