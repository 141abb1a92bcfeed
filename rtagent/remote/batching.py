"""Questions that wait are answered together, by a few threads.

Why it is correct. The queue is touched under its lock alone. A thread that is free takes all that
waits, up to a bound, and answers it with one call; meanwhile others wait for the next thread. Each
question has a future of its own, which is always settled: with its answer, or with the error of
the call. Who asks has one question on its way, so the queue is as long as there are connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rtagent.clock import Clock
from rtagent.remote.answers import Timing

LARGEST_BATCH = 64

Arrays: TypeAlias = tuple[npt.NDArray[Any], ...]


@dataclass
class Answered:
    """The answer to one question, and what it took."""

    arrays: Arrays
    timing: Timing


@dataclass
class _Waiting:
    question: Arrays
    since: float
    future: Future[Answered] = field(default_factory=Future)


class Batcher:
    """Answers questions in batches.

    Args:
        answer: from the arrays of questions, (B, ...) each, to those of answers, (B, ...) each;
            called by several threads at once if `parallel` is more than 1.
        clock: time.
        parallel: batches that are answered at the same time.
    """

    def __init__(self, answer: Callable[..., Arrays], clock: Clock, parallel: int = 1) -> None:
        self._answer, self._clock = answer, clock
        self._waiting: list[_Waiting] = []
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batch-{index}", daemon=True)
            for index in range(parallel)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, *question: npt.NDArray[Any]) -> Future[Answered]:
        """The answer to come."""
        waiting = _Waiting(question, self._clock.now())
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.future

    def close(self) -> None:
        """Answer no more; what waits is called off."""
        with self._changed:
            self._closed = True
            for waiting in self._waiting:
                waiting.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            # Who has gone meanwhile has called off.
            batch = [each for each in batch if each.future.set_running_or_notify_cancel()]
            if batch:
                self._settle(batch)

    def _next(self) -> list[_Waiting] | None:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            batch = self._waiting[:LARGEST_BATCH]
            del self._waiting[:LARGEST_BATCH]
            return batch or None

    def _settle(self, batch: list[_Waiting]) -> None:
        began = self._clock.now()
        try:
            questions = zip(*(each.question for each in batch), strict=True)
            answers = self._answer(*(np.stack(arrays) for arrays in questions))
            took_s = self._clock.now() - began
            for each, *arrays in zip(batch, *answers, strict=True):
                each.future.set_result(Answered(tuple(arrays), Timing(took_s, began - each.since)))
        except Exception as error:
            for each in batch:
                if not each.future.done():
                    each.future.set_exception(error)
