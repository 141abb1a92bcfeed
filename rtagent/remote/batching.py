"""Answers the questions that wait in batches, in a few threads.

Why it is correct. The queue is used under its lock alone. A thread that is free takes all questions
that wait, up to a bound, and answers them by one call; questions that come meanwhile wait for the
next thread. If that call fails, each of them is asked alone. Each question has a future of its own,
which always ends: with its answer, with the error of its own call, or cancelled. A connection has
one question at a time, so the queue is at most as long as there are connections.
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
    """The answer to one question, and the time that it took."""

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
        answer: gives the arrays of B answers, (B, ...) each, to the arrays of B questions, (B, ...)
            each; called by several threads at once if `parallel` is more than 1.
        parallel: number of batches that are answered at the same time.
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
        """Put a question into the queue; its answer."""
        waiting = _Waiting(question, self._clock.now())
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()
        return waiting.future

    def close(self) -> None:
        """Take no more batches, and cancel the questions that wait."""
        with self._changed:
            self._closed = True
            for waiting in self._waiting:
                waiting.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while (batch := self._next()) is not None:
            # A client that is gone has cancelled its question.
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
        except BaseException as error:
            # A policy may also call `sys.exit`, which is to end neither this thread nor the server.
            failed = error if isinstance(error, Exception) else RuntimeError(repr(error))
            for each in batch:
                if each.future.done():
                    continue
                if len(batch) == 1:
                    each.future.set_exception(failed)
                else:
                    # One bad question fails alone.
                    self._settle([each])
