"""Weights that act through an engine: its models are opened by a thread, and swapped in whole.

Why it is correct. The thread alone opens models, and all that takes long happens outside of the
interpreter's lock. It has a tenth of acting's weight: with idle priority, on a machine whose cores
acting keeps busy, it might be sent away for long while it holds that lock. It hands over what it
has opened, and tried, by setting one attribute, and touches nothing that acts. `adopt` takes it
from there between two inferences, with the version of the weights that it was made from. Until the
first model is there, and when the converter says that torch shall act, the policy's own network
does, whose weights are then taken over as ever (`weights.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rtagent.inference.engines.interface import Answer
from rtagent.inference.weights import Weights
from rtagent.memory.engine_models import Bytes, EngineModels, ModelInfo
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.policy.acting import ActingPolicy
from rtagent.processes.scheduling import step_back

Open = Callable[[ModelInfo, Bytes], Answer]
TRIALS = 3
"""Of a model before it acts: a first call costs up to seven times a steady one."""


@dataclass(frozen=True)
class Opened:
    """A model that can answer, None if torch shall; or why it could not be opened."""

    info: ModelInfo
    answer: Answer | None = None
    error: str | None = None


class Opening(Protocol):
    """Opens the newest model, in its own time."""

    def ask(self) -> None:
        """Begin, unless it has."""
        ...

    def take(self) -> Opened | None:
        """What has been opened, once."""
        ...


class OpeningThread:
    """Opens models in a thread that steps back behind acting.

    Args:
        models: shared memory.
        open_model: of the engine that a model is for; it tries the model, too.
    """

    def __init__(self, models: EngineModels, open_model: Open) -> None:
        self._models, self._open = models, open_model
        self._asked = threading.Event()
        self._opened: Opened | None = None
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Begin, unless it has."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="engine")
            self._thread.start()
        self._asked.set()

    def take(self) -> Opened | None:
        """What has been opened, once."""
        opened = self._opened
        if opened is not None:
            self._opened = None
        return opened

    def _run(self) -> None:
        step_back(threading.get_native_id())
        while True:
            self._asked.wait()
            self._asked.clear()
            found = self._models.read()
            if found is not None:
                self._opened = self._open_one(*found)

    def _open_one(self, info: ModelInfo, model: Bytes) -> Opened:
        if not info.size:
            return Opened(info)
        try:
            return Opened(info, self._open(info, model))
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            return Opened(info, error=f"{type(error).__name__}: {lines[-1]}")


class EnginePolicy:
    """Answers by a model, or by torch while there is none.

    Args:
        policy: torch's.

    Attributes:
        answer: of the model that acts. If None, torch does.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        self.answer: Answer | None = None

    def values(
        self, observation: npt.NDArray[Any],
        pending: Callable[[], npt.NDArray[np.float32]] | None = None,
    ) -> npt.NDArray[np.float32]:
        """The answer to one observation, (stack, ...), see `ActingPolicy.values`.

        Pending actions, which no engine is given, are torch's.
        """
        if pending is not None:
            return self._policy.values(observation, pending)
        return self._policy.values(observation) if self.answer is None else self.answer(observation)


class EngineWeights:
    """What `Weights` is to torch, for an engine.

    Args:
        torch: the weights of the policy's own network.
        policy: whose answers they decide.
        models: shared memory.
        opening: of the models.
        record: where it is noted what acts.
        tell: told of a model that cannot be opened.

    Attributes:
        version: of the weights behind what acts; -1 before the first.
        updates: gradient steps behind them.
    """

    def __init__(
        self, torch: Weights, policy: EnginePolicy, models: EngineModels, opening: Opening,
        record: InferenceRecord, tell: Callable[..., None],
    ) -> None:
        self._torch, self._policy = torch, policy
        self._models, self._opening = models, opening
        self._record, self._tell = record, tell
        self._asked = 0
        self._wants_torch = True
        self._note(ModelInfo(0, 0, 0, 0, 0))
        self.version = torch.version
        self.updates = torch.updates

    def prepare(self, until: float) -> None:
        """Prepare what is new, as far as that is possible until a time, seconds."""
        self._look()
        if self._wants_torch:
            self._torch.prepare(until)

    def hurry(self, seconds: float) -> None:
        """Prepare on the way to an inference, see `Weights.hurry`."""
        self._look()
        if self._wants_torch:
            self._torch.hurry(seconds)

    def adopt(self) -> None:
        """Let what is ready act. Between two inferences."""
        opened = self._opening.take()
        if opened is not None:
            self._take(opened)
        if not self._wants_torch:
            return
        self._torch.adopt()
        # A network that has rested is brought up to date before it acts again.
        if self._policy.answer is None or self._torch.version >= self.version:
            if self._policy.answer is not None:
                self._policy.answer = None
                self._note(ModelInfo(0, 0, 0, 0, 0))
            self.version, self.updates = self._torch.version, self._torch.updates

    def take_over(self) -> bool:
        """Let torch act by the newest weights at once; False if there have never been any."""
        there = self._torch.take_over()
        self.version, self.updates = self._torch.version, self._torch.updates
        return there

    def _look(self) -> None:
        number = self._models.number
        if number != self._asked:
            self._asked = number
            self._opening.ask()

    def _take(self, opened: Opened) -> None:
        info = opened.info
        if opened.error is not None:
            self._tell("engine_failed", reason=opened.error, weights_version=info.version)
        elif opened.answer is None:
            self._wants_torch = True
        else:
            self._wants_torch = False
            self._policy.answer = opened.answer
            self.version, self.updates = info.version, info.updates
            self._note(info)

    def _note(self, info: ModelInfo) -> None:
        self._record.engine, self._record.precision = info.engine, info.precision
        self._record.agreement = info.agreement
