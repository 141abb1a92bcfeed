"""Gradients as CUDA graphs: hundreds of operations that the processor begins with one call.

An update of a small network takes a GPU less time than the processor needs to begin its operations
one by one.

Why it is correct. A graph repeats the operations that were recorded, on the same memory. Weights
and target change in place. A batch is copied into tensors that belong to the graph. Whatever else
decides which operations there are, or with which numbers, is part of the key by which a graph is
found. The graphs share their memory, which is correct because they run one after the other, and
what one has computed is used before the next one runs. Another thread may send batches meanwhile:
what is recorded is what the recording stream is given. A computation that cannot be recorded, as
one that waits for a number from the GPU, is run as it is from then on.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from rtagent.errors import first_line
from rtagent.learning.device import on
from rtagent.learning.out_of_memory import is_out_of_memory
from rtagent.learning.replay.batch import Batch

MOST = 8
"""Keys that are remembered: R3 tries many batch sizes."""

Outputs = tuple[Tensor, Tensor]
Compute = Callable[[Batch, bool], Outputs]
Run = Callable[[], Outputs]
Recorder = Callable[[Run], tuple[Callable[[], object], Outputs]]
"""Records a run: what repeats it, and the tensors that it leaves its outputs in."""


@dataclass(frozen=True)
class Recording:
    """A recorded computation.

    Attributes:
        repeat: runs it.
        batch: its inputs.
        outputs: what it computes.
    """

    repeat: Callable[[], object]
    batch: Batch
    outputs: Outputs

    def run(self, batch: Batch) -> Outputs:
        """The outputs for a batch; valid until the next run of any recording."""
        own, given = (list(each.tensors.values()) for each in (self.batch, batch))
        torch._foreach_copy_(own, given)
        self.repeat()
        return self.outputs


class GraphedCompute:
    """Runs a computation, from its second time on as a graph.

    Args:
        compute: of a batch, and whether the acting part gets a gradient.
        record: makes the graphs.
        refused: told once why the computation cannot be recorded.
    """

    def __init__(
        self, compute: Compute, record: Recorder, refused: Callable[[str], object]
    ) -> None:
        self._compute, self._record, self._refused = compute, record, refused
        self._usable = True
        self._known: OrderedDict[Hashable, Recording | None] = OrderedDict()

    def __call__(self, batch: Batch, acting: bool, key: Hashable) -> Outputs:
        """Compute; the key stands for everything else that decides what is computed."""
        key = (key, acting, *((n, t.shape, t.dtype) for n, t in batch.tensors.items()))
        try:
            recording = self._recording(batch, acting, key) if self._usable else None
            return self._compute(batch, acting) if recording is None else recording.run(batch)
        except Exception as error:
            if is_out_of_memory(error):
                self._known.clear()
            raise

    def _recording(self, batch: Batch, acting: bool, key: Hashable) -> Recording | None:
        """The recording for a key; None if it has to be computed without."""
        if key not in self._known:
            # The first run chooses kernels, and allocates what stays: neither can be recorded.
            self._known[key] = None
            if len(self._known) > MOST:
                self._known.popitem(last=False)
            return None
        self._known.move_to_end(key)
        if self._known[key] is None:
            own: dict[str, Any] = {name: each.clone() for name, each in batch.tensors.items()}
            inputs = replace(batch, **own)
            try:
                recorded = self._record(partial(self._compute, inputs, acting))
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                self._usable = False
                self._known.clear()
                self._refused(first_line(error))
                return None
            repeat, outputs = recorded
            self._known[key] = Recording(repeat, inputs, outputs)
        return self._known[key]


def gpu_recorder(device: torch.device, generator: torch.Generator | None) -> Recorder:
    """Records CUDA graphs in memory that all of them share.

    Args:
        device: of the computations.
        generator: of the random numbers that are drawn. If None, torch's default generator.
    """
    pool, graphs = torch.cuda.graph_pool_handle(), WeakSet[torch.cuda.CUDAGraph]()
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    generators = [torch.cuda.default_generators[device.index or 0]]
    if generator is not None:
        generators.append(generator)

    def record(run: Run) -> tuple[Callable[[], object], Outputs]:
        nonlocal pool
        if not graphs:
            # torch takes no graph into memory whose graphs are all gone.
            pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        if generator is not None:
            graph.register_generator_state(generator)
        with usable_afterwards(generators), without_garbage():
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            with on(stream):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    outputs = run()
                except BaseException:
                    with suppress(RuntimeError):
                        end_capture(graph, pool)
                    raise
                end_capture(graph, pool)
        graphs.add(graph)
        return graph.replay, outputs

    return record


def end_capture(graph: torch.cuda.CUDAGraph, pool: tuple[int, int]) -> None:
    """End the recording of a graph; after a failed one torch would never free memory again."""
    try:
        graph.capture_end()
    except RuntimeError:
        with suppress(Exception):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        raise


@contextmanager
def usable_afterwards(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """A context for a recording; before torch 2.13 a failed one leaves generators unusable."""
    try:
        yield
    except BaseException:
        for each in generators:
            # It goes on with the same numbers, but outside the recording.
            each.graphsafe_set_state(each.clone_state())
        raise


@contextmanager
def without_garbage() -> Iterator[None]:
    """A context in which nothing is freed in passing: to free a graph would end a recording."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
