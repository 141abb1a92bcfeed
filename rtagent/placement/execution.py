"""Carries out the plan of a step: some passes and weights' gradients on a second core.

Why it is correct. The two threads of a step (`second_core.py`) share nothing that either writes
while the other may read. Passes over successors read weights, which nobody writes before the step
has ended, and write tensors of their own. A layer's gradient of its weights reads what the backward
pass has left to it, and writes the `grad` of that layer alone, once in a step; `finish` waits for
all of them before the gradient is read. A pass that was begun and not asked for, because the step
failed, is finished before the next one begins, for a core takes its calls in turn.

The same calls are made with the same numbers, whichever thread makes them, and none is split: so
the gradient is the same to the last bit as without a plan in the same precisions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rtagent.placement.second_core import Pending, SecondCore
from rtagent.placement.step import SECOND, Placement


class PlacedStep:
    """A runner (`layers.StepRunner`) that follows a plan.

    Attributes:
        inputs_in: precision of the first layer, if the plan chooses it.
    """

    def __init__(self, placement: Placement, core: SecondCore) -> None:
        self._core = core
        self._pending: list[Pending[None]] = []
        self._late: list[Callable[[], None]] = []
        self._pass = threading.local()
        parts = placement.profile.parts
        units = {(part.layer, part.kind): placement.unit(n) for n, part in enumerate(parts)}
        mixed = len(placement.profile.precisions) > 1
        self._precisions: dict[tuple[str, str], torch.dtype] = {
            key: getattr(torch, unit.precision) for key, unit in units.items() if mixed and key[0]
        }
        layers = (unit for (layer, _), unit in units.items() if mixed and layer)
        first = next(layers, None)
        self.inputs_in = None if first is None else first.precision
        self._second = {key for key, unit in units.items() if unit.processor == SECOND}
        self._passes = {kind for _, kind in self._second}
        self._after = _after_the_tape(placement)

    def precision(self, layer: str) -> torch.dtype | None:
        return self._precisions.get((layer, getattr(self._pass, "kind", "forward")))

    def start(self, kind: str, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        run = partial(self._run_as, kind, call)
        return self._core.submit(run).result if kind in self._passes else run

    def forward(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        return call()

    def inputs(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        return call()

    def weights(self, layer: str, call: Callable[[], None]) -> None:
        if (layer, "weights") in self._second:
            self._pending.append(self._core.submit(call))
        elif layer in self._after:
            self._late.append(call)
        else:
            call()

    def finish(self) -> None:
        late, self._late = self._late, []
        pending, self._pending = self._pending, []
        errors: list[BaseException] = []
        for end in (*late, *(each.result for each in pending)):
            try:
                end()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _run_as(self, kind: str, call: Callable[[], Tensor]) -> Tensor:
        before = getattr(self._pass, "kind", "forward")
        self._pass.kind = kind
        try:
            return call()
        finally:
            self._pass.kind = before


def _after_the_tape(placement: Placement) -> set[str]:
    """Layers whose weights' gradient stays on the first core, after the backward pass."""
    parts, placed = placement.profile.parts, placement.plan.placed
    ends = [placed[n].end_us for n, part in enumerate(parts) if part.kind == "inputs"]
    end = max(ends, default=0.0)
    return {
        part.layer for n, part in enumerate(parts)
        if part.kind == "weights" and placement.unit(n).processor != SECOND
        and placed[n].start_us >= end
    }
