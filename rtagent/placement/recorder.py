"""Notes how long each part of a step takes, while the step runs on one core as it always does.

What lies between two layers (activations, pooling, shortcuts) is counted to the part that follows
it in the forward pass, and to the inputs' gradient before it in the backward pass. So nothing is
left out and nothing counted twice: the sum of the parts is the time of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

Key = tuple[str, str]
"""Layer and kind of a part, see `profile.Part`."""
MIB = 2.0**20
US = 1e6


class Recorder:
    """A runner (`layers.Runner`) that runs everything at once, and looks at the clock.

    Args:
        now: seconds; by default the processor's time of the calling thread, which stands still
            while other programs have the core.

    Attributes:
        spent: seconds of each part of the newest step, in the order in which they ended.
        output_mb: MiB that each handed on.
        precisions: in which each layer computed.
    """

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self.spent: dict[Key, float] = {}
        self.output_mb: dict[Key, float] = {}
        self.precisions: dict[str, str] = {}
        self._at = 0.0
        self._kind = "forward"
        self._newest: Key = ("", "loss")

    def begin(self) -> None:
        """A step begins now."""
        self.spent, self._kind, self._at = {}, "forward", self._now()

    def mark(self, kind: str) -> None:
        """A part that is no layer's ends now; it began where the one before it ended."""
        self._note(("", kind))

    def start(self, kind: str, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A pass whose result is asked for later: it runs when that is asked for."""

        def run() -> Tensor:
            before, self._kind = self._kind, kind
            try:
                return call()
            finally:
                self._kind = before

        return run

    def precision(self, layer: str) -> torch.dtype | None:
        return None

    def forward(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        output = call()
        key = layer, self._kind
        self._note(key)
        self.output_mb[key] = output.nbytes / MIB
        self.precisions[layer] = str(output.dtype).removeprefix("torch.")
        return output

    def inputs(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        gradient = call()
        self._newest = (layer, "inputs")
        self._note(self._newest)
        self.output_mb[self._newest] = gradient.nbytes / MIB
        return gradient

    def weights(self, layer: str, call: Callable[[], None]) -> None:
        # What came since the last layer belongs to that, or to the loss.
        backward = any(kind == "weights" for _, kind in self.spent)
        self._note(self._newest if backward else ("", "loss"))
        call()
        self._note((layer, "weights"))

    def finish(self) -> None:
        """Nothing is left to do."""

    def _note(self, key: Key) -> None:
        now = self._now()
        self.spent[key] = self.spent.get(key, 0.0) + now - self._at
        self._at = now
