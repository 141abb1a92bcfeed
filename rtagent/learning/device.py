"""Where a learner computes: on the processor, or on a GPU.

All learners share their state in the host's memory (`memory/learner_state.py`), wherever they
compute. What a learner on a GPU keeps there: `device_optimizer.py`.

Why it is correct. `Device.of` initialises CUDA, so it happens in the learner's own process, long
after the fork. A batch is copied on a stream of its own, while the passes of the batch before run,
and the thread that sends it waits until the copy is done: no stream has to wait for another, and
the host memory may be filled again. The allocator may give the copying stream the memory of a
dropped batch while other streams still read it; but an update ends with its loss and its norm on
the host, so after everything that reads its batch, and only then drops it. After an update that
failed, what may still be read is thrown away.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rtagent.config import LearningConfig
from rtagent.learning.replay.batch import Batch
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

    def pin(self, memory: memoryview) -> None:
        """Have the GPU copy straight to and from this shared memory, if the system lets it.

        Without this a copy takes several times as long, for it goes through a buffer of the driver.
        The memory is kept, and pinned, as long as this object lives.
        """
        if self.device.type != "cuda":
            return
        pinned = np.frombuffer(memory, np.uint8)
        runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        if int(runtime.cudaHostRegister(pinned.ctypes.data, memory.nbytes, 0)):
            # CUDA would tell the next operation of this failure.
            with suppress(RuntimeError):
                torch.zeros(1, device=self.device)
            return
        # If it were freed while it is pinned, its place could not be used for other copies.
        weakref.finalize(self, _unpin, pinned).atexit = False

    # ---- copies

    def copy(self, *pairs: tuple[Tensor, Tensor]) -> None:
        """Copy the second tensor of each pair into the first; all are done when this returns."""
        for to, source in pairs:
            to.copy_(source, non_blocking=True)
        self.wait()

    def send(self, batch: Batch) -> Batch:
        """Copy a batch to the device, unless it is there.

        Memory of which several tensors are views, as of states and successors, is copied once.
        """
        if self._copying is None or batch.sent:
            return batch
        views = {name: _view(each) for name, each in batch.tensors.items()}
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

    def wait(self) -> None:
        """Sleep until all work that this thread has begun on a GPU is done."""
        if self.device.type == "cuda":
            _await(torch.cuda.current_stream(self.device))

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


def _unpin(memory: npt.NDArray[np.uint8]) -> None:
    torch.cuda.cudart().cudaHostUnregister(memory.ctypes.data)  # type: ignore[no-untyped-call]


@contextmanager
def _copied_on(stream: torch.cuda.Stream) -> Iterator[None]:
    with on(stream):
        yield
    _await(stream)


@contextmanager
def on(stream: torch.cuda.Stream) -> Iterator[None]:
    """A context in which this thread works on a stream."""
    # A thread begins on the first GPU. When the stream is left, torch would set that GPU again, and
    # so begin a context there, which takes hundreds of megabytes; this way back begins none.
    with torch.cuda.device(stream.device), torch.cuda.stream(stream):
        yield


def _await(stream: torch.cuda.Stream) -> None:
    # A blocking event sleeps until it has happened; to wait for the stream itself would spin.
    done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    done.record(stream)
    done.synchronize()


HOST = Device(torch.device("cpu"))
"""The processor."""
