"""Inference processes of a virtual run: the live driver, with a given inference time.

All processes share one network. An inference is computed when it begins, so it uses the weights of
its beginning, as in a live run; weights are adopted the moment they are published. A policy that is
given the pending actions asks for them late (`memory/pending.py`), so its inference is computed
when it ends, by the weights of that time. The state of a recurrent policy is always that of the
beginning, and the state that it leaves is there for others when the inference ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rtagent.errors import UserError
from rtagent.inference.driver import Driver
from rtagent.inference.latency import draw
from rtagent.inference.weights import Weights
from rtagent.memory.process_metrics import InferenceRecord
from rtagent.policy.acting import ActingPolicy
from rtagent.processes.worker import WorkerContext
from rtagent.staggering.instructions import Deposit


class VirtualDriver(Driver):
    """One inference process.

    Args:
        context: of this worker; its clock stands still while anything is computed.
        policy: shared by all processes.
        weights: of the policy.
        inference_s: seconds of an inference without injected latency.
    """

    def __init__(
        self, context: WorkerContext[InferenceRecord], policy: ActingPolicy, weights: Weights,
        inference_s: float,
    ) -> None:
        super().__init__(context, policy, weights)
        self._published, self._inference_s = weights, inference_s

    def begin(self, frame: int) -> float:
        """Begin an inference on a frame; seconds that it takes."""
        if self._reader is None:
            self._compute(frame)
        elif self._carried is not None:
            self._carried.begin(frame)
        return max(self._inference_s, draw(self._context.desired.inference, self._rng))

    def register(self, instruction: Deposit) -> None:
        """Register the action."""
        if self._reader is not None:
            self._compute(instruction.frame)
        self._register(instruction)

    def _compute(self, frame: int) -> None:
        self._published.take_over()
        self._infer(frame)

    def _keep_answer(self, answer: npt.NDArray[np.float32], number: int) -> None:
        try:
            super()._keep_answer(answer, number)
        except (FloatingPointError, ValueError) as error:
            # The answer is of several lines if it is long.
            raise UserError(" ".join(str(error).split())) from error

    def _pad(self, start: Any) -> None:
        """Do not wait: `begin` says how long the inference takes."""
