"""Batches made ready while the learner computes.

Why it is correct. One background thread is the only user of the replay: it takes in new rows,
chooses, copies. The learner's thread takes what is ready, and may call no more of the replay than
`update_priorities`, `ticks` and `len`. What both touch (the batches that are ready, the free
buffers, the size that is asked for) is guarded by one condition, on which each sleeps while it has
nothing to do; the thread lets go of it while it samples. There are as many buffers as batches that
may be ready, and one for the batch that the learner holds; a buffer is free again when the learner
takes the next batch. So the thread never writes where the learner reads, and the memory is bounded.
A batch is a copy: it stays right when the ring has long lost its frames.

The copying itself runs without the interpreter's lock, beside the learner's own work.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from rtagent.learning.device import HOST, Device
from rtagent.learning.replay.batch import Batch, BatchBuffer
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Replay

RETRY_S = 0.01
"""Sleep of the thread where there is nothing to sample yet."""


class Prefetcher:
    """Takes over a replay, and keeps batches ready.

    The thread inherits the scheduling class of the one that makes the prefetcher.

    Args:
        replay: from now on used by nobody else, but for what `replay.py` allows.
        rng: source of randomness, from now on used by nobody else.
        depth: batches that are ready at most; 0: no thread, each is sampled when it is asked for.
        device: where the thread sends each batch.
    """

    def __init__(
        self, replay: Replay, rng: np.random.Generator, depth: int, device: Device = HOST
    ) -> None:
        self._replay, self._rng, self._device = replay, rng, device
        self._changed = threading.Condition()
        self._free = [replay.new_buffer(device.host_memory) for _ in range(depth + 1)]
        self._ready: deque[tuple[Batch, BatchBuffer]] = deque()
        self._held: BatchBuffer | None = None
        self._asked, self._beta = 0, 1.0
        self._error: BaseException | None = None
        self._closing = False
        self._thread: threading.Thread | None = None
        if depth:
            self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
            self._thread.start()

    def take(self, count: int, timeout: float, beta: float = 1.0) -> Batch | None:
        """The next batch.

        Args:
            count: B. Batches of another size that are ready are thrown away.
            timeout: longest wait, seconds.
            beta: exponent of the importance weights of the batches sampled from now on.

        Returns:
            The batch, valid until the next call; none if there is nothing to sample, or if no batch
            was ready in time.

        Raises:
            BaseException: whatever the thread has failed with; it is not started again.
        """
        if self._thread is None:
            _catch_up(self._replay)
            return self._replay.sample(count, self._rng, beta, self._free[0])
        with self._changed:
            if self._held is not None:
                self._free.append(self._held)
                self._held = None
            self._asked, self._beta = count, beta
            self._throw_away()
            if not self._ready:
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._ready or self._error, timeout)
            if self._error is not None:
                raise self._error
            if not self._ready:
                return None
            batch, self._held = self._ready.popleft()
            # Only now is there room for one more.
            self._changed.notify_all()
            return batch

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _throw_away(self) -> None:
        """Free the batches of a size that is not wanted any more."""
        while self._ready and len(self._ready[0][0].actions) != self._asked:
            self._free.append(self._ready.popleft()[1])

    # ---- the thread

    def _run(self) -> None:
        try:
            while (order := self._next_order()) is not None:
                count, beta, buffer = order
                _catch_up(self._replay)
                batch = self._replay.sample(count, self._rng, beta, buffer)
                self._deliver(None if batch is None else self._device.send(batch), buffer)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _next_order(self) -> tuple[int, float, BatchBuffer] | None:
        """Wait until a batch is wanted; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or (self._asked and self._spare()))
            return None if self._closing else (self._asked, self._beta, self._free.pop())

    def _spare(self) -> bool:
        """Whether there is a buffer beside the one that the learner needs."""
        return len(self._free) > (self._held is None)

    def _deliver(self, batch: Batch | None, buffer: BatchBuffer) -> None:
        with self._changed:
            if batch is not None and len(batch.actions) == self._asked:
                self._ready.append((batch, buffer))
                self._changed.notify_all()
                return
            self._free.append(buffer)
            if batch is None:
                self._changed.wait_for(lambda: self._closing, RETRY_S)


def _catch_up(replay: Replay) -> None:
    """Take in all the rows that are there."""
    while replay.refresh() >= ROWS_PER_REFRESH:
        pass
