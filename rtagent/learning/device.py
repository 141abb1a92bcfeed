"""Where a learner computes: on the processor, or on a GPU beside the weights that all share.

Learners meet in the host's memory (`memory/learner_state.py`), wherever they compute. One on a GPU
has its networks there: new weights come in one copy, the gradient leaves in one, and Adam steps on
the host. On the processor nothing is copied: what is to be moved is given back as it is.

Why it is correct. CUDA is initialised by `Device.of`, so in the learner's own process, long after
the fork. A batch is copied on a stream of its own, beside the passes of the batch before, and
whoever sends it waits until it is there: no stream has to wait for another, and host memory may be
filled again. The allocator may give the copying stream memory that a dropped batch had, whatever
other streams still read; but an update ends with its gradient on the host, so after all that it
has begun, and only then lets go of its batch. What an update that failed may still read is thrown
away.
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
        copying: gives a context at whose end the copies begun in it are done. If None, the device
            is the processor, and nothing is copied.

    Attributes:
        device: as above.
    """

    def __init__(self, device: torch.device, copying: Copying | None = None) -> None:
        self.device = device
        self._copying = copying

    @classmethod
    def of(cls, learning: LearningConfig) -> Device:
        """The device of a configuration, ready for use.

        Raises:
            UserError: it is not there.
        """
        device = usable_device(learning.device, "learning.device")
        if device.type == "cpu":
            return HOST
        torch.cuda.set_device(device)
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return cls(device, lambda: _copied_on(stream))

    @property
    def apart(self) -> bool:
        """Whether its memory is not the host's."""
        return self._copying is not None

    # ---- memory

    def host_memory(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Undefined values on the host, pinned where a GPU copies from there."""
        if self.device.type == "cpu":
            return np.empty(shape, dtype)
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        pinned = torch.empty(count, dtype=torch.uint8, pin_memory=True).numpy()
        return pinned.view(dtype).reshape(shape)

    def beside(self, values: Tensor) -> Tensor:
        """An array like one of the host; itself on the processor."""
        return torch.empty_like(values, device=self.device) if self.apart else values

    # ---- copies, which are done when a call returns

    def upload(self, values: Floats) -> Tensor:
        """Values of the host."""
        host = torch.from_numpy(values)
        return host.to(self.device, copy=True) if self.apart else host

    def fetch(self, values: Tensor, out: Tensor) -> None:
        """Bring what lies `beside` an array of the host into it."""
        if self.apart:
            out.copy_(values)

    def send(self, batch: Batch) -> Batch:
        """A batch, where it is computed on; it may have been sent before.

        What are views of the same memory, as states and successors are, is copied once.
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

    # ---- time and chance

    def now(self) -> float:
        """Seconds, with all that was begun done: the thread's own on the processor."""
        if not self.apart:
            # What other processes take does not count.
            return time.thread_time()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def generator(self, seed: int) -> torch.Generator:
        """Of what is drawn there."""
        return torch.Generator(self.device).manual_seed(seed)


def _view(values: Tensor) -> tuple[Tensor, Tensor]:
    """The contiguous memory that a tensor is a view of, and the tensor as such a view."""
    memory = values if values._base is None else values._base
    if not memory.is_contiguous():
        memory = values = values.contiguous()
    return memory, values


@contextmanager
def _copied_on(stream: torch.cuda.Stream) -> Iterator[None]:
    with torch.cuda.stream(stream):
        yield
        # One that sleeps until it has happened; to wait for a stream would spin.
        done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        done.record(stream)
    done.synchronize()


HOST = Device(torch.device("cpu"))
"""The processor."""
