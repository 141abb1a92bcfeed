"""Batches that are sampled while the learner computes.

Why it is correct. One background thread is the only user of the replay: it takes in new rows,
chooses, copies. The learner's thread takes batches that are ready, and may use nothing of the
replay but `update_priorities`, `ticks` and `len`. One condition guards what both threads use (the
batches that are ready, the free buffers, the wanted size); each sleeps on it while it has nothing
to do, and the background thread releases it while it samples. There are as many buffers as batches
that may be ready, and one more for the batch that the learner holds; that buffer is free again when
the learner takes the next batch. So the background thread never writes where the learner reads, and
the memory is bounded. A batch is a copy, so it stays valid after the ring has lost its frames.

The copying itself runs without the interpreter's lock, in parallel with the learner.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from rtagent.learning.device import HOST, Device
from rtagent.learning.replay.batch import Batch, BatchBuffer
from rtagent.learning.replay.replay import Replay

RETRY_S = 0.01
"""How long the thread sleeps if there is nothing to sample yet."""


class Prefetcher:
    """Takes over a replay, and keeps batches ready.

    Its thread inherits the scheduling class of the thread that creates it.

    Args:
        replay: used by nobody else from now on, but for the exceptions above.
        rng: source of randomness, used by nobody else from now on.
        depth: the largest number of batches that are ready; 0: there is no thread, and `take`
            samples.
        device: the device to which the thread sends each batch.
    """

    def __init__(
        self, replay: Replay, rng: np.random.Generator, depth: int, device: Device = HOST
    ) -> None:
        self._replay, self._rng, self._device = replay, rng, device
        self._changed = threading.Condition()
        self._free = [replay.new_buffer(device.host_memory) for _ in range(depth + 1)]
        self._ready: deque[tuple[Batch, BatchBuffer]] = deque()
        self._held: BatchBuffer | None = None
        self._wanted, self._beta = 0, 1.0
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        if depth:
            self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._thread.start()

    def take(self, count: int, timeout: float, beta: float = 1.0) -> Batch | None:
        """The next batch.

        Args:
            count: B. Ready batches of another size are dropped.
            timeout: longest wait, seconds.
            beta: exponent of the importance weights of the batches sampled from now on.

        Returns:
            The batch, valid until the next call; None if there is nothing to sample, or if no batch
            was ready in time.

        Raises:
            BaseException: whatever the thread has failed with; it is not started again.
        """
        if self._thread is None:
            self._replay.catch_up()
            return self._replay.sample(count, self._rng, beta, self._free[0])
        with self._changed:
            if self._held is not None:
                self._free.append(self._held)
                self._held = None
            self._wanted, self._beta = count, beta
            self._drop_other_sizes()
            if not self._ready:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ready or self._error, timeout)
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            batch, self._held = self._ready.popleft()
            # The thread may make one more batch.
            self._changed.notify_all()
            return batch

    def close(self) -> None:
        """End the thread, and give up the memory of all batches."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._free.clear()
        self._ready.clear()
        # An error that the thread has failed with holds what the thread had allocated.
        self._held = self._error = None

    def _drop_other_sizes(self) -> None:
        """Drop the ready batches whose size is not wanted any more."""
        while self._ready and len(self._ready[0][0].actions) != self._wanted:
            self._free.append(self._ready.popleft()[1])

    # ---- the thread

    def _run(self) -> None:
        try:
            while (order := self._next_order()) is not None:
                count, beta, buffer = order
                self._replay.catch_up()
                batch = self._replay.sample(count, self._rng, beta, buffer)
                self._deliver(None if batch is None else self._device.send(batch), buffer)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_order(self) -> tuple[int, float, BatchBuffer] | None:
        """Wait until a batch is wanted: its size, its beta, and a buffer; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or (self._wanted and self._has_room()))
            return None if self._closing else (self._wanted, self._beta, self._free.pop())

    def _has_room(self) -> bool:
        """Whether a buffer is free beside the one for the batch that the learner holds."""
        return len(self._free) > (self._held is None)

    def _deliver(self, batch: Batch | None, buffer: BatchBuffer) -> None:
        with self._changed:
            if batch is not None and len(batch.actions) == self._wanted:
                self._ready.append((batch, buffer))
                self._changed.notify_all()
                return
            self._free.append(buffer)
            if batch is None:
                self._changed.wait_for(lambda: self._closing, RETRY_S)
