"""A driver on a virtual clock, in memory of its own, that follows a test's instructions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rtagent.clock import VirtualClock
from rtagent.config import Config, LearningConfig, PolicyConfig
from rtagent.inference.driver import Driver
from rtagent.inference.weights import Weights
from rtagent.memory.actions import ActionSlots
from rtagent.memory.alternation import Alternation
from rtagent.memory.blueprint import TensorSpec
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.process_metrics import ProcessMetrics
from rtagent.memory.weights import WeightBuffers, WeightsInfo
from rtagent.staggering.instructions import Now
from tests.conftest import make_blueprint, private
from tests.desired import make_desired

CAPACITY = 64
PARAMETERS = 3
INDEX = 2
TAU_S = 0.25
START_S = 10.0


class StubPolicy:
    """Prefers the action with the largest weight; an inference takes `TAU_S`."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.weights = self.idle = np.zeros(PARAMETERS, np.float32)
        self.pieces, self.piece_s = 1, 0.0
        self.seen: list[list[int]] = []
        self.during: Callable[[], None] = lambda: None
        self.answers: np.ndarray | None = None

    def fill(self, piece: int, values: np.ndarray) -> None:
        self.clock.advance(self.piece_s)
        self.idle = values.copy()

    def swap(self) -> None:
        self.weights = self.idle

    def values(self, observation: np.ndarray) -> np.ndarray:
        self.seen.append([int(frame.flat[0]) for frame in observation])
        before = self.weights
        self.during()
        assert self.weights is before, "the weights were switched inside an inference"
        self.clock.advance(TAU_S)
        return self.weights if self.answers is None else self.answers


class ImpatientBell:
    """Each wait lasts its whole time limit, unless `during` makes its condition true."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.during: Callable[[], None] = lambda: None

    def ring(self) -> None:
        pass

    def wait_for(self, condition: Callable[[], bool], clock: Any, timeout: float) -> bool:
        if not condition():
            self.during()
        if not condition():
            self.clock.advance(timeout)
        return condition()


class SteppingClock(VirtualClock):
    """Each look at the time takes time, so that no loop spins for ever."""

    def now(self) -> float:
        self.advance(1e-6)
        return super().now()


class AskingPolicy(StubPolicy):
    """Asks for the pending actions after `TAU_S`."""

    def values(self, observation: np.ndarray, pending: Any = None) -> np.ndarray:
        answer = super().values(observation)
        self.told = pending()
        return answer


class Bench:
    """The context of a driver, with a script in place of the algorithm."""

    index, resume = INDEX, None

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **shapes: Any) -> None:
        self.blueprint = blueprint = make_blueprint(
            tensors=(TensorSpec("weight", (PARAMETERS,)),), **shapes
        )
        self.clock = SteppingClock(START_S)
        self.buffers = private(WeightBuffers, PARAMETERS)
        self.frames = FrameRing.private(blueprint, CAPACITY)
        self.frames.bell = self.bell = ImpatientBell(self.clock)  # type: ignore[assignment]
        self.slots = ActionSlots.private(blueprint)
        self.alternation = private(Alternation)
        self.alternation._answers = ImpatientBell(self.clock)  # type: ignore[assignment]
        self.ledger = Ledger.private(blueprint, CAPACITY)
        self.metrics = private(ProcessMetrics)
        self.record = self.metrics.inference[INDEX]
        self.desired = make_desired(processes=4, rows=4, inference={"algorithm": "script"}, go=True)
        self.beats = 0
        self.stopping = False
        self.world = SimpleNamespace(
            frames=self.frames, actions=self.slots, weights=self.buffers, metrics=self.metrics,
            states=None,
            stagger=SimpleNamespace(algorithm="script"), claim_lock=nullcontext(),
            alternation=self.alternation, ledger=self.ledger,
        )
        self.configure(epsilon_start=0.0, epsilon_end=0.0)
        asks = "pending_actions" in shapes
        self.policy = AskingPolicy(self.clock) if asks else StubPolicy(self.clock)
        self.weights = Weights(self.buffers, PARAMETERS, self.policy, self.clock)
        self._monkeypatch = monkeypatch
        self.publish(0)
        self.weights.take_over()

    def configure(self, learners: int = 0, **policy: Any) -> None:
        self.config = Config(
            policy=PolicyConfig(**policy), learning=LearningConfig(processes=learners)
        )

    def beat(self) -> None:
        self.beats += 1

    def publish(self, version: int, best: int = 1) -> None:
        values = np.zeros(PARAMETERS, np.float32)
        values[best] = 1.0 + version
        self.buffers.publish(values, WeightsInfo(version, 10 * version))

    def show(self, *numbers: int) -> None:
        for number in numbers:
            self.frames.publish(number, np.full((6, 5), number, np.uint8), 0)

    def follow(self, *instructions: Any) -> list[Any]:
        """The replies to a list of instructions; the process is told to leave after the last."""
        replies = []

        def script(*arguments: Any) -> Generator[Any, Any, None]:
            for instruction in instructions:
                reply = yield instruction
                replies.append(reply)
            self.stopping = True
            yield Now()

        self._monkeypatch.setattr("rtagent.inference.driver.ALGORITHMS", {"script": script})
        driver = Driver(self, self.policy, self.weights)  # type: ignore[arg-type]
        driver.run()
        ahead = driver._frame_wait.ahead
        self.awake = ahead.seconds, ahead.awake_s
        return replies
