"""Where a learner computes: on the processor, or on a GPU.

All learners share their state in the host's memory (`memory/learner_state.py`), wherever they
compute. A learner on a GPU has its networks there: the weights are copied there in one piece, the
gradient is copied back in one piece, and Adam steps on the host. On the processor nothing is
copied: each method returns what it was given.

Why it is correct. `Device.of` initialises CUDA, so it happens in the learner's own process, long
after the fork. A batch is copied on a stream of its own, while the passes of the batch before run,
and the thread that sends it waits until the copy is done: no stream has to wait for another, and
the host memory may be filled again. The allocator may give the copying stream the memory of a
dropped batch while other streams still read it; but an update ends with its gradient on the host,
so after everything that it has begun, and only then drops its batch. After an update that failed,
what may still be read is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch
from rtagent.memory.array_buffer import Floats
from rtagent.policy.device import usable_device

Copying = Callable[[], AbstractContextManager[object]]


class Device:
    """Where one learner computes.

    Args:
        device: of the networks.
        copying: makes a context at whose end all copies begun in it are done. If None, the device
            is the processor, and nothing is copied.
    """

    def __init__(self, device: torch.device, copying: Copying | None = None) -> None:
        self.device = device
        self._copying = copying

    @classmethod
    def of(cls, learning: LearningConfig) -> Device:
        """The configured device, ready for use.

        Raises:
            UserError: this machine does not have it.
        """
        device = usable_device(learning.device, "learning.device")
        if device.type == "cpu":
            return HOST
        torch.cuda.set_device(device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return cls(device, lambda: _copied_on(stream))

    @property
    def apart(self) -> bool:
        """Whether the device has its own memory, apart from the host's."""
        return self._copying is not None

    # ---- memory

    def host_memory(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An uninitialised array on the host; pinned if a GPU copies from it."""
        if self.device.type == "cpu":
            return np.empty(shape, dtype)
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pinned = torch.empty(count, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned.view(dtype).reshape(shape)

    def beside(self, values: Tensor) -> Tensor:
        """An uninitialised tensor on the device like one on the host; on the processor, that one.

        `fetch` copies it back.
        """
        return torch.empty_like(values, device=self.device) if self.apart else values

    # ---- copies, which are done when a call returns

    def upload(self, values: Floats) -> Tensor:
        """Copy values of the host to the device."""
        host = torch.from_numpy(values)
        return host.to(self.device, copy=True) if self.apart else host

    def fetch(self, values: Tensor, out: Tensor) -> None:
        """Copy what `beside` gave back into the host's tensor that it was made for."""
        if self.apart:
            out.copy_(values)

    def send(self, batch: Batch) -> Batch:
        """Copy a batch to the device, unless it is there.

        Memory of which several tensors are views, as of states and successors, is copied once.
        """
        if self._copying is None or batch.sent:
            return batch
        tensors = {k: each for k, each in vars(batch).items() if isinstance(each, Tensor)}
        views = {name: _view(each) for name, each in tensors.items()}
        whole = {id(memory): memory for memory, _ in views.values()}
        with self._copying():
            copies = {
                key: memory.to(self.device, non_blocking=True, copy=True)
                for key, memory in whole.items()
            }
        sent: dict[str, Any] = {
            name: copies[id(memory)].as_strided(
                view.shape, view.stride(), view.storage_offset() - memory.storage_offset()
            )
            for name, (memory, view) in views.items()
        }
        return replace(batch, **sent, sent=True)

    # ---- time and random numbers

    def now(self) -> float:
        """A time in seconds, taken when all work on the device is done.

        On the processor it is the thread's processor time, for what other processes take must not
        count.
        """
        if not self.apart:
            return time.thread_time()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def generator(self, seed: int) -> torch.Generator:
        """A source of random numbers on the device."""
        return torch.Generator(self.device).manual_seed(seed)


def _view(values: Tensor) -> tuple[Tensor, Tensor]:
    """The contiguous memory that a tensor is a view of, and the tensor, as a view of it."""
    memory = values if values._base is None else values._base
    if not memory.is_contiguous():
        memory = values = values.contiguous()
    return memory, values


@contextmanager
def _copied_on(stream: torch.cuda.Stream) -> Iterator[None]:
    with torch.cuda.stream(stream):
        yield
        # A blocking event sleeps until it has happened; to wait for the stream itself would spin.
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(stream)
    done.synchronize()


HOST = Device(torch.device("cpu"))
"""The processor."""
