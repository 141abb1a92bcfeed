"""Virtual inference processes: how long instructions take, and what comes first at equal times."""

from __future__ import annotations

from functools import partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import pytest

from rtagent.staggering.instructions import (
    Algorithm,
    Deposit,
    Infer,
    Inferred,
    Instruction,
    Learn,
    Moment,
    Reply,
    WaitFrame,
    WaitUntil,
)
from rtagent.staggering.register import ALGORITHMS
from rtagent.staggering.virtual_workers import VirtualWorkers, lateness
from tests.staggering.begun import TICK, fresh


class Script:
    """Processes that carry out the same instructions, wait for ever, and keep the replies."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *instructions: Instruction) -> None:
        self._instructions = instructions
        self.replies: list[Reply] = []
        self.begun = 0
        monkeypatch.setitem(ALGORITHMS, "unstaggered", self._follow)
        self.workers = VirtualWorkers(fresh("unstaggered", 2), TICK, repeat(0.125), self)

    def _follow(self, *of_the_process: Any) -> Algorithm:
        self.begun += 1
        for instruction in self._instructions:
            self.replies.append((yield instruction))
        yield WaitFrame(1000)

    def infer(self, worker: int, frame: int) -> float:
        return 0.5

    def deposit(self, worker: int, instruction: Deposit) -> None:
        """Register nothing."""

    def learn(self) -> float:
        return 2.0


def test_waits_end_late_and_a_tick_comes_before_what_is_due_with_it(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, WaitUntil(1.0), WaitFrame(0), WaitFrame(0), WaitUntil(1.0))
    script.workers.start(0)
    script.workers.advance(1.125)
    assert not script.replies
    script.workers.advance(2.0)
    assert script.replies == [Moment(1.125, -1)]
    script.workers.publish(0)
    script.workers.advance(3.0)
    # What is there already is not waited for.
    assert script.replies[1:] == [Moment(2.125, 0)] * 3


def test_inferences_and_updates_take_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, Infer(None), Infer(3), Infer(1), Learn())
    script.workers.publish(2, 0.25)
    script.workers.start(0)
    script.workers.advance(0.75)
    script.workers.chosen = 3
    script.workers.advance(4.0)
    assert script.replies == [
        Inferred(2, 0.5, 0.5, 2, 0.25), Inferred(2, 0.5, 1.0, 3, 0.25),
        Inferred(1, 0.5, 1.5, 3, 0.25), Moment(3.5, 2),
    ]


def test_a_killed_process_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, WaitFrame(0))
    for start in (script.workers.start, script.workers.start_new, script.workers.start):
        start(1)
    assert script.begun == 2
    script.workers.publish(0)
    script.workers.advance(1.0)
    assert script.replies == [Moment(0.125, 0)]
    script.workers.kill(1)
    script.workers.start_new(1)
    assert script.begun == 3


def test_calls_of_the_same_time_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    workers = Script(monkeypatch).workers
    for number in range(3):
        workers.call_at(1.0, partial(called.append, number))
    workers.advance(2.0)
    assert called == [0, 1, 2]


def test_no_tick_is_late_by_a_whole_one() -> None:
    late = list(islice(lateness(TICK, TICK, np.random.default_rng(0)), 100))
    assert min(late) < 0.1 * TICK < max(late) == 0.9 * TICK
