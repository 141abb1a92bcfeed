"""Records how long each part of a step takes, while the step runs on one core as usual.

It also records what each part waits for, so that the graph of a step is that of the algorithm's
code, whichever algorithm it is: a pass waits for what had ended when it was started, what follows
where its result is asked for waits for its end, and the end of the step waits for everything.

The time between two layers (activations, pooling, shortcuts) is counted to the next part in the
forward pass, and to the inputs' gradient before it in the backward pass; the time at the end of a
pass, to its last part. So nothing is left out and nothing counted twice: the sum of the parts is
the time of the step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from rtagent.placement.layers import StepRunner
from rtagent.placement.profile import ON_THE_TAPE, PASSES, Key

MIB = 2.0**20
US = 1e6


@dataclass
class _Thread:
    """The step itself, or a pass that it has started.

    Attributes:
        kind: of its forward parts.
        before: parts that the next part waits for.
        loose: parts that only the end of the step waits for.
        newest: part to which the time after it is counted.
        loss: the loss part of its backward pass; None until that begins.
    """

    kind: str
    before: list[Key] = field(default_factory=list)
    loose: list[Key] = field(default_factory=list)
    newest: Key | None = None
    loss: Key | None = None

    def key(self, layer: str, kind: str) -> Key:
        """The key of a part other than a layer's forward pass."""
        return layer, f"{self.kind} {kind}" if self.kind in PASSES else kind

    def follow(self, key: Key, *, loose: bool) -> None:
        """Note that a new part has ended."""
        if loose:
            self.loose.append(key)
        else:
            self.before, self.newest = [key], key


class Recorder(StepRunner):
    """A runner that runs everything in turn, and measures the times.

    Args:
        now: seconds; by default the CPU time of the calling thread, which stands still while other
            programs have the core.

    Attributes:
        spent: seconds of each part of the newest step, in the order in which the parts ended.
        after: for each part, the parts that it waits for.
        output_mb: MiB of the output of each part.
        precisions: the precision in which each layer computed.
    """

    def __init__(self, now: Callable[[], float] = time.thread_time) -> None:
        self._now = now
        self.spent: dict[Key, float] = {}
        self.after: dict[Key, tuple[Key, ...]] = {}
        self.output_mb: dict[Key, float] = {}
        self.precisions: dict[str, str] = {}
        self._at = 0.0
        self._thread = _Thread(ON_THE_TAPE)

    def begin(self) -> None:
        """Begin a step."""
        self.spent, self.after, self._thread = {}, {}, _Thread(ON_THE_TAPE)
        self._at = self._now()

    def mark(self, kind: str) -> None:
        """End a part that belongs to no layer; it began when the part before it ended."""
        self._note(("", kind))

    def start(self, kind: str, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """A pass that runs when its result is asked for."""
        begun = list(self._thread.before)

        def run() -> Tensor:
            before, mine = self._thread, _Thread(kind, begun)
            self._note_rest()
            self._thread = mine
            try:
                result = call()
                self._note_rest()
                return result
            finally:
                self._thread = before
                before.before = [*dict.fromkeys([*before.before, *mine.before])]

        return run

    def forward(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        output = call()
        key = layer, self._thread.kind
        self._note(key)
        self.output_mb[key] = output.nbytes / MIB
        self.precisions[layer] = str(output.dtype).removeprefix("torch.")
        return output

    def inputs(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        self._enter_backward()
        gradient = call()
        key = self._thread.key(layer, "inputs")
        self._note(key)
        self.output_mb[key] = gradient.nbytes / MIB
        return gradient

    def weights(self, layer: str, call: Callable[[], None]) -> None:
        self._enter_backward()
        call()
        # In a pass they come in their order, for they stay on its core.
        self._note(self._thread.key(layer, "weights"), loose=self._thread.kind not in PASSES)

    def finish(self) -> None:
        """Make the next parts wait for the gradients of all weights."""
        thread = self._thread
        thread.before, thread.loose = [*thread.before, *thread.loose], []

    def _enter_backward(self) -> None:
        """Count the time since the last part to that part, or first to the loss."""
        thread = self._thread
        if thread.loss is None:
            thread.loss = thread.key("", "loss")
            self._note(thread.loss)
        else:
            self._note_rest()

    def _note_rest(self) -> None:
        newest = self._thread.newest
        if newest is not None:
            self._note(newest)

    def _note(self, key: Key, *, loose: bool = False) -> None:
        now = self._now()
        if key not in self.spent:
            self.after[key] = tuple(self._thread.before)
            self._thread.follow(key, loose=loose)
        self.spent[key] = self.spent.get(key, 0.0) + now - self._at
        self._at = now
