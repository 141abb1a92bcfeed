"""Inference processes in virtual time: the generators that run live, without the processes.

A discrete-event simulation. The ends of waits and inferences are events, as is everything that is
scheduled with `call_at`; an instruction that needs no waiting is answered at once. The owner of the
clock publishes frames and advances the time; at equal times the tick comes first: an action
registered at the very moment of a tick has missed it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

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
from rtagent.staggering.state import StaggerState

_BLOCK = 4096


class Surroundings(Protocol):
    """What is done when a worker infers, deposits or learns."""

    def infer(self, worker: int, frame: int) -> float:
        """Begin an inference of worker `worker` on frame `frame`; seconds that it takes."""

    def deposit(self, worker: int, instruction: Deposit) -> None:
        """Register the action that worker `worker` computed last."""

    def learn(self) -> float:
        """Begin an update; seconds until it is applied, 0 if there is none to make."""


@dataclass(slots=True)
class _Worker:
    """A simulated inference process."""

    number: int
    algorithm: Algorithm
    alive: bool = True


class VirtualWorkers:
    """Runs the generators.

    Args:
        state: of staggering.
        tick_seconds: tau_M.
        oversleep: seconds by which each wait ends late, one after the other.
        surroundings: carries out inferences, deposits and updates.

    Attributes:
        now: seconds.
        newest: number of the newest published frame, -1 before the first one.
        chosen: the newest tick whose action has been chosen.
        behind: seconds from the moment at which the newest frame's tick was due until it was there.
    """

    def __init__(
        self, state: StaggerState, tick_seconds: float, oversleep: Iterator[float],
        surroundings: Surroundings,
    ) -> None:
        self.state = state
        self.now, self.newest, self.chosen, self.behind = 0.0, -1, -1, 0.0
        self._tick_seconds, self._oversleep = tick_seconds, oversleep
        self._surroundings = surroundings
        self._order = 0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._waiting: defaultdict[int, list[_Worker]] = defaultdict(list)
        self._workers: dict[int, _Worker] = {}

    def call_at(self, when: float, call: Callable[[], object]) -> None:
        """Call a function at a time; calls of the same time keep their order."""
        self._order += 1
        heapq.heappush(self._due, (when, self._order, call))

    def advance(self, until: float) -> None:
        """Let everything happen that is due before a time."""
        while self._due and self._due[0][0] < until:
            self.now, _, call = heapq.heappop(self._due)
            call()
        self.now = until

    def publish(self, frame: int, behind: float = 0.0) -> None:
        """Publish a frame, so long after its tick was due; wake the workers that wait for it."""
        self.newest, self.behind = frame, behind
        for worker in self._waiting.pop(frame, ()):
            self.call_at(self.now + next(self._oversleep), partial(self._resume, worker))

    def start(self, number: int) -> None:
        """Start a process; one of the same number, if there is one, is killed."""
        self.kill(number)
        worker = _Worker(number, self._algorithm(number))
        self._workers[number] = worker
        self._perform(worker, next(worker.algorithm))

    def start_new(self, number: int) -> None:
        """Start a process, unless there is one of that number."""
        if number not in self._workers:
            self.start(number)

    def kill(self, number: int) -> None:
        """Kill a process, if there is one of that number; the ring still names it."""
        worker = self._workers.pop(number, None)
        if worker is not None:
            worker.alive = False

    def _algorithm(self, number: int) -> Algorithm:
        factory = ALGORITHMS[self.state.algorithm]
        return factory(number, self.state, nullcontext(), self._tick_seconds)

    def _resume(self, worker: _Worker, inferred: tuple[int, float] | None = None) -> None:
        """Go on after a wait, or after an inference, given its frame and seconds."""
        if not worker.alive:
            return
        reply: Reply = self._moment()
        if inferred is not None:
            chosen = max(self.chosen, self.newest)
            reply = Inferred(*inferred, self.now, chosen, self.behind)
        self._perform(worker, self._send(worker, reply))

    def _send(self, worker: _Worker, reply: Reply) -> Instruction:
        try:
            return worker.algorithm.send(reply)
        except StopIteration:
            worker.algorithm = self._algorithm(worker.number)
            return next(worker.algorithm)

    def _perform(self, worker: _Worker, instruction: Instruction) -> None:
        """Carry out instructions until one takes time."""
        while True:
            match instruction:
                case Infer():
                    return self._infer(worker, instruction.frame)
                case WaitFrame() if instruction.frame > self.newest:
                    return self._waiting[instruction.frame].append(worker)
                case WaitUntil() if instruction.when > self.now:
                    when = instruction.when + next(self._oversleep)
                    return self.call_at(when, partial(self._resume, worker))
                case Learn():
                    if seconds := self._surroundings.learn():
                        when = self.now + seconds
                        return self.call_at(when, partial(self._resume, worker))
                case Deposit():
                    self._surroundings.deposit(worker.number, instruction)
                case _:
                    pass
            instruction = self._send(worker, self._moment())

    def _infer(self, worker: _Worker, frame: int | None) -> None:
        seen = self.newest if frame is None else min(frame, self.newest)
        tau = self._surroundings.infer(worker.number, seen)
        self.call_at(self.now + tau, partial(self._resume, worker, (seen, tau)))

    def _moment(self) -> Moment:
        return Moment(self.now, self.newest)


def exponential(mean: float, rng: np.random.Generator) -> Iterator[float]:
    """Exponentially distributed seconds, without end."""
    while True:
        yield from (rng.exponential(mean, _BLOCK) if mean else np.zeros(_BLOCK)).tolist()


def lateness(mean: float, tick_seconds: float, rng: np.random.Generator) -> Iterator[float]:
    """By how many seconds ticks are late: exponentially distributed, less than a tick."""
    return (min(each, 0.9 * tick_seconds) for each in exponential(mean, rng))
