"""Carries out the plan of a step: some passes and weights' gradients on a second core.

Why it is correct. The two threads of a step (`second_core.py`) share nothing that either writes
while the other may read. Passes over successors read weights, which are not written before the step
has ended, and write tensors of their own; they leave the averages of a batch normalization to the
pass over states (`algorithm.without_gradient`). So does the pass of a policy, which also writes the
`grad` of the actor, that no other part of the step touches; it takes no gradient of the critic. The
gradient of a layer's weights is computed from tensors that the backward pass has handed over, and
written to the `grad` of that layer alone, once in a step. `finish` waits for all of these, and for
a pass that was begun but whose result was not asked for because the step failed, before any `grad`
is read or cleared.

The same calls are made with the same numbers, whichever thread makes them, and none is split: so
the gradient is the same to the last bit as without a plan in the same precisions.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rtagent.placement.layers import StepRunner
from rtagent.placement.profile import ON_THE_TAPE
from rtagent.placement.second_core import Pending, SecondCore
from rtagent.placement.step import SECOND, Placement


class PlacedStep(StepRunner):
    """A runner that follows a plan.

    Attributes:
        split: names of the layers that it has to run.
        inputs_in: precision of the step, or of its first layer if the plan mixes precisions.
    """

    def __init__(self, placement: Placement, core: SecondCore) -> None:
        self._core = core
        self._pending: list[Pending[None]] = []
        self._begun: list[Pending[Tensor]] = []
        self._late: list[Callable[[], None]] = []
        self._pass = threading.local()
        parts = placement.profile.parts
        units = {(part.layer, part.kind): placement.unit(n) for n, part in enumerate(parts)}
        self.split, self._late_layers = placement.split_layers, placement.late
        self.inputs_in = placement.precision
        self._precisions: dict[tuple[str, str], torch.dtype] = {}
        if self.inputs_in is None:
            layers = {key: unit.precision for key, unit in units.items() if key[0]}
            self.inputs_in = next(iter(layers.values()))
            self._precisions = {key: getattr(torch, each) for key, each in layers.items()}
        self._second = {key for key, unit in units.items() if unit.processor == SECOND}
        self._passes = {kind for _, kind in self._second}

    def precision(self, layer: str) -> torch.dtype | None:
        return self._precisions.get((layer, self._kind))

    def start(self, kind: str, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        run = partial(self._run_as, kind, call)
        if kind not in self._passes:
            return run
        pending = self._core.submit(run)
        self._begun.append(pending)

        def answer() -> Tensor:
            self._begun.remove(pending)
            return pending.result()

        return answer

    def weights(self, layer: str, call: Callable[[], None]) -> None:
        if self._kind != ON_THE_TAPE:
            call()
        elif (layer, "weights") in self._second:
            self._pending.append(self._core.submit(call))
        elif layer in self._late_layers:
            self._late.append(call)
        else:
            call()

    def finish(self) -> None:
        late, self._late = self._late, []
        pending: list[Pending[Any]] = [*self._pending, *self._begun]
        self._pending, self._begun = [], []
        errors: list[BaseException] = []
        for end in (*late, *(each.result for each in pending)):
            try:
                end()
            except BaseException as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def _kind(self) -> str:
        """The pass that this thread runs, or the forward kind of the step itself."""
        return getattr(self._pass, "kind", ON_THE_TAPE)

    def _run_as(self, kind: str, call: Callable[[], Tensor]) -> Tensor:
        before = self._kind
        self._pass.kind = kind
        try:
            return call()
        finally:
            self._pass.kind = before
