"""Weights that act through an engine: a thread opens its models, each is then swapped in whole.

Why it is correct. The thread alone opens models, and all that takes long happens outside of the
interpreter's lock. It has a tenth of acting's scheduling weight: with idle priority, on a machine
whose cores acting keeps busy, it might lose its core for long while it holds that lock. It puts
each model that it has opened, and tried, into a queue of length one, whose operations are atomic,
and touches nothing that acts. `adopt` takes the model out between two inferences, with the version
of the weights that it was made from. Until there is a first model, and when the converter says that
torch shall act, the policy's own network acts, and its weights are taken over as usual
(`weights.py`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.inference.engines.interface import Answer
from rtagent.inference.weights import Weights
from rtagent.memory.engine_models import Bytes, EngineModels, ModelInfo
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.factory import line_of
from rtagent.processes.scheduling import step_back

Open = Callable[[ModelInfo, Bytes], Answer]
TRIALS = 3
"""Calls of a model before it acts: the first one takes up to seven times as long as later ones."""
AGAIN_S = 1.0
"""Seconds until the newest model is read again for which there was no memory."""
TORCH = ModelInfo(0, 0)
"""What is recorded while torch acts."""


@dataclass(frozen=True)
class Opened:
    """A model that has been opened.

    Attributes:
        info: what the model says about itself; nothing if there was no memory for it.
        answer: answers by the model. If None, torch shall act, or the model cannot be opened.
        error: why it cannot be opened. If None, it can.
    """

    info: ModelInfo = TORCH
    answer: Answer | None = None
    error: str | None = None


class OpeningThread:
    """Opens the newest model in a thread that the scheduler gives less time than acting.

    Args:
        models: shared memory.
        open_model: opens a model by its engine, and tries it.
    """

    def __init__(self, models: EngineModels, open_model: Open) -> None:
        self._models, self._open = models, open_model
        self._asked = threading.Event()
        self._opened: deque[Opened] = deque(maxlen=1)
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Have the thread open the newest model; the first call starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True, name="engine")
            self._thread.start()
        self._asked.set()

    def take(self) -> Opened | None:
        """The model that was opened last; None if it has been taken already."""
        return self._opened.pop() if self._opened else None

    def _run(self) -> None:
        step_back(threading.get_native_id())
        again_s = None
        while True:
            self._asked.wait(again_s)
            self._asked.clear()
            try:
                opened, again_s = self._open_newest(), None
            except MemoryError as error:
                # The model may be the last one that there is.
                opened, again_s = Opened(error=line_of(error)), AGAIN_S
            if opened is not None:
                self._opened.append(opened)

    def _open_newest(self) -> Opened | None:
        found = self._models.read()
        if found is None:
            return None
        info, model = found
        try:
            return Opened(info, self._open(info, model) if info.size else None)
        except MemoryError:
            raise
        except Exception as error:
            return Opened(info, error=line_of(error))


class EnginePolicy:
    """Answers by a model, or by torch while there is none.

    Args:
        policy: answers by torch.

    Attributes:
        answer: answers by the model that acts. If None, torch acts.
    """

    def __init__(self, policy: ActingPolicy) -> None:
        self._policy = policy
        self.answer: Answer | None = None

    def values(self, observation: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """The answer to one observation, (stack, ...), see `ActingPolicy.values`."""
        return self._policy.values(observation) if self.answer is None else self.answer(observation)


class EngineWeights:
    """Takes over models for an engine, as `Weights` takes over weights for torch.

    Args:
        torch: the weights of the policy's own network.
        policy: given each new model.
        models: shared memory.
        opening: opens the models.
        record: says what acts.
        event: called with an event at the first of consecutive models that cannot be opened.

    Attributes:
        version: of the weights behind what acts; -1 before the first.
        updates: gradient steps behind them.
    """

    def __init__(
        self, torch: Weights, policy: EnginePolicy, models: EngineModels, opening: OpeningThread,
        record: InferenceRecord, event: Callable[..., None],
    ) -> None:
        self._torch, self._policy = torch, policy
        self._models, self._opening = models, opening
        self._record, self._event = record, event
        self._asked = 0
        self._wants_torch, self._failing = True, False
        self._note_model(TORCH)
        self.version = torch.version
        self.updates = torch.updates

    def prepare(self, until: float) -> None:
        """Prepare what is new, as far as that is possible until a time, seconds."""
        self._ask_for_newer()
        if self._wants_torch:
            self._torch.prepare(until)

    def hurry(self, seconds: float) -> None:
        """Prepare at the beginning of an inference, see `Weights.hurry`."""
        self._ask_for_newer()
        if self._wants_torch:
            self._torch.hurry(seconds)

    def adopt(self) -> None:
        """Let what is ready act. Called between two inferences."""
        opened = self._opening.take()
        if opened is not None:
            self._adopt_opened(opened)
        if not self._wants_torch:
            return
        self._torch.adopt()
        # Torch's network has older weights than the model until it has caught up.
        if self._policy.answer is None or self._torch.version >= self.version:
            if self._policy.answer is not None:
                self._policy.answer = None
                self._note_model(TORCH)
            self.version, self.updates = self._torch.version, self._torch.updates

    def _ask_for_newer(self) -> None:
        number = self._models.number
        if number != self._asked:
            self._asked = number
            self._opening.ask()

    def _adopt_opened(self, opened: Opened) -> None:
        info = opened.info
        if opened.error is not None:
            if not self._failing:
                self._event("engine_failed", reason=opened.error)
        elif opened.answer is None:
            self._wants_torch = True
        else:
            self._wants_torch = False
            self._policy.answer = opened.answer
            self.version, self.updates = info.version, info.updates
            self._note_model(info)
        self._failing = opened.error is not None

    def _note_model(self, info: ModelInfo) -> None:
        self._record.engine, self._record.precision = info.engine, info.precision
        self._record.agreement = info.agreement
