"""The learner's copy of a daemon's replay: the baseline's replay memory.

Algorithms 2 and 3 of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835: sampling, the
sum tree and the priorities are where learning is. Rows and frames arrive with the numbers that they
have at the edge (`forwarding_node.py`) and are put into a ring and a ledger of the same kind, so
the same `Replay` makes the same transitions of them.

Why it is correct. Messages are taken in under the learner's condition, so the rings have one writer
at a time; the learning thread, which alone samples, reads them as any other reader does
(`memory/ring.py`). A tick that never came leaves a slot with another number, which no reader takes.

p_s is the mean priority of a batch when it was sampled. p_t is that of the transitions that
arrived, whether or not they are ever sampled: before it is learned from, a transition has no
priority of its own but the largest so far, so p_t is computed from the errors of a sample of those
that came since the last time, whenever weights are published.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rtagent.clock import Clock
from rtagent.cluster.message import Message, MessageError
from rtagent.cluster.sampled import PLAIN, Columns
from rtagent.config import Config
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.powers import Powers
from rtagent.learning.replay.replay import ROWS_PER_REFRESH, Replay
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities

Errors = Callable[[Batch], Floats]

COLUMNS = (*PLAIN, "observations", "next_observations")
MOST_MEASURED = 32
"""Transitions that p_t is measured on at once."""


class Mirror:
    """The replay of one node, in the learner's memory.

    Args:
        config: of its daemon: capacity, discount, n-step, exponent of the priorities.
        blueprint: shapes.
        clock: time.

    Attributes:
        generated: transitions that its world has generated, as the node says: more or fewer have
            arrived, as after a cut.
        expected: the tick that is to come next.
    """

    def __init__(self, config: Config, blueprint: Blueprint, clock: Clock) -> None:
        self.made_for = config, blueprint
        capacity, learning = config.replay.capacity, config.learning
        self._ring = FrameRing.private(blueprint, capacity)
        self._ledger = Ledger.private(blueprint, capacity)
        priorities = Priorities.private(capacity, clock) if learning.prioritized else None
        self.replay = Replay(self._ring, self._ledger, learning, priorities)
        self._exponent = learning.priority_exponent if learning.prioritized else None
        self._rng = np.random.default_rng(config.run.seed)
        self._transferred: float | None = None
        self._measured = 0
        self.generated = self.expected = 0

    def take_in(self, message: Message) -> Callable[[], Columns | None] | None:
        """Put a message's ticks into their places.

        Returns:
            What samples as many transitions as it asks for, or None if it asks for none.

        Raises:
            MessageError: these are no ticks of this world.
        """
        values, arrays, ring = message.values, message.arrays, self._ring
        try:
            rows = arrays["rows"].view(self._ledger.dtype)
            frames, numbers = arrays["frames"], arrays["numbers"]
            starts, stop = arrays["episode_starts"], int(values["stop"])
            count, beta = int(values["count"]), float(values["beta"])
            generated = int(values["generated"])
            if frames.shape[1:] != ring.frames.shape[1:] or frames.dtype != ring.frames.dtype:
                raise ValueError(f"frames {frames.shape[1:]} of {frames.dtype}")
            placed = list(zip(numbers.tolist(), starts.tolist(), frames, strict=True))
        except (KeyError, TypeError, ValueError) as error:
            raise MessageError(f"no ticks of a world: {error!r}") from error
        self._ledger.copy(rows)
        for number, start, frame in placed:
            ring.publish(number, frame, start)
        self.generated, self.expected = generated, stop
        return partial(self._draw, count, beta) if count else None

    def learned(self, errors: Floats) -> tuple[dict[str, Any], Columns]:
        """Take the errors of what was drawn last, in its order; what the node is told of it."""
        self.replay.update_errors(self._drawn, errors)
        return {"sampled": self._sampled, "transferred": self._transferred}, {}

    def measure_transferred(self, errors: Errors) -> None:
        """Measure p_t anew.

        Args:
            errors: gives how far off the transitions of a batch are (B,), and learns nothing.
        """
        first, stop = self.replay.index.span
        first = max(first, self._measured)
        if self._exponent is None or first == stop:
            return
        self._measured = stop
        serials = self._rng.integers(first, stop, min(MOST_MEASURED, stop - first))
        buffer = self.replay.new_buffer()
        buffer.choose(serials)
        if not len(buffer.copy(0)):
            found = Powers().priorities(errors(buffer.batch(None)), self._exponent)
            self._transferred = float(found.mean())

    def _draw(self, count: int, beta: float) -> Columns | None:
        while self.replay.refresh() >= ROWS_PER_REFRESH:
            pass
        batch = self.replay.sample(count, self._rng, beta)
        if batch is None:
            return None
        self._drawn, priorities = batch.frames.copy(), self.replay.drawn_priorities
        self._sampled = None if priorities is None else float(priorities.mean())
        return {name: getattr(batch, name).numpy() for name in COLUMNS}
