"""The learner's copy of a daemon's replay: the replay memory of the baseline.

Algorithms 2 and 3 of S. Morishima and H. Matsutani, doi:10.1109/ACCESS.2024.3402835: sampling, the
sum tree and the priorities are at the learner. Rows and frames arrive with the numbers that they
have at the daemon (`forwarding_node.py`) and are put into a ring and a ledger of the same kind, so
the same `Replay` makes the same transitions from them.

Why it is correct. Messages are processed under the learner's condition, so the rings have one
writer at a time; the learning thread alone samples, and reads them as any other reader does
(`memory/ring.py`). The slot of a tick that never came has another number, so no reader uses it.

p_s is the mean priority of a batch when it was sampled. p_t is the mean priority of the transitions
that arrived, whether or not they are ever sampled. A transition that was not learned from has no
priority of its own: it has the largest so far. So whenever weights are published, p_t is computed
from the errors of some of the transitions that have come since the last time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from rtagent.clock import Clock
from rtagent.cluster.message import Message, MessageError
from rtagent.cluster.received_shares import (
    COLUMNS,
    LARGEST_COUNT,
    LARGEST_WEIGHT,
    Columns,
    check_finite,
)
from rtagent.config import MOST_BATCH, Config
from rtagent.learning.replay.batch import Batch
from rtagent.learning.replay.powers import Powers
from rtagent.learning.replay.replay import Replay
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.memory.priorities import Priorities

Errors = Callable[[Batch], Floats]

BATCH_COLUMNS = (*COLUMNS, "observations", "next_observations")
MOST_MEASURED = 32
"""Number of transitions, at most, from which p_t is computed at once."""


class Mirror:
    """The replay of one node, in the learner's memory.

    Args:
        config: of its daemon: capacity, discount, n-step, exponent of the priorities.

    Attributes:
        generated: transitions that the node's world has generated, as the node says; after a cut it
            is not the number that has arrived.
        expected: the next tick that the node must send.
    """

    def __init__(self, config: Config, blueprint: Blueprint, clock: Clock) -> None:
        self.made_for = config, blueprint
        capacity, learning = config.replay.capacity, config.learning
        self._ring = FrameRing.private(blueprint, capacity)
        self._ledger = Ledger.private(blueprint, capacity)
        priorities = Priorities.private(capacity, clock) if learning.prioritized else None
        self.replay = Replay(self._ring, self._ledger, learning, priorities)
        self._actions = 0 if blueprint.action_shape else int(blueprint.action_space.n)
        self._exponent = learning.priority_exponent if learning.prioritized else None
        self._rng = np.random.default_rng(config.run.seed)
        self._transferred: float | None = None
        self._measured = 0
        self.generated = self.expected = 0

    def receive(self, message: Message) -> Callable[[], Columns | None] | None:
        """Store a message's ticks.

        Returns:
            A function that samples as many transitions as the message asks for; None if it asks for
            none.

        Raises:
            MessageError: the message has no ticks of this world.
        """
        values, arrays, ring = message.values, message.arrays, self._ring
        try:
            rows = arrays["rows"].view(self._ledger.dtype)
            frames, numbers = arrays["frames"], arrays["numbers"]
            starts, stop = arrays["episode_starts"], int(values["stop"])
            count, beta = int(values["count"]), float(values["beta"])
            if not (0 <= count <= MOST_BATCH and 0.0 <= beta <= 1.0):
                raise ValueError("a number of transitions, or an exponent, that is none of a share")
            if frames.shape[1:] != ring.frames.shape[1:] or frames.dtype != ring.frames.dtype:
                raise ValueError(f"frames {frames.shape[1:]} of {frames.dtype}")
            for each in (rows["tick"], numbers, starts):
                if each.dtype != np.int64 or each.ndim != 1 or not (
                    0 <= each.min(initial=0) <= each.max(initial=0) <= LARGEST_COUNT
                ):
                    raise ValueError("numbers of ticks that are none")
            if self._actions and not np.isin(rows["action"], range(self._actions)).all():
                raise ValueError("an action that the world does not have")
            check_finite(rows["reward"], rows["action"], frames)
            placed = list(zip(numbers.tolist(), starts.tolist(), frames, strict=True))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise MessageError(f"no ticks of a world: {error!r}") from error
        self._ledger.copy(rows)
        for number, start, frame in placed:
            ring.publish(number, frame, start)
        self.expected = stop
        return partial(self._draw, count, beta) if count else None

    def learned(self, errors: Floats) -> tuple[dict[str, Any], Columns]:
        """Take the errors of the newest sample, in its order; values and arrays for the answer."""
        self.replay.update_errors(self._drawn, errors)
        return {"sampled": self._sampled, "transferred": self._transferred}, {}

    def measure_transferred(self, errors: Errors) -> None:
        """Compute p_t.

        Args:
            errors: gives the absolute errors of a batch's transitions (B,), and learns nothing.
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
        self.replay.catch_up()
        batch = self.replay.sample(count, self._rng, beta)
        if batch is None:
            return None
        self._drawn, priorities = batch.frames.copy(), self.replay.drawn_priorities
        self._sampled = None if priorities is None else float(priorities.mean())
        columns = {name: getattr(batch, name).numpy() for name in BATCH_COLUMNS}
        columns[LARGEST_WEIGHT] = np.array([self.replay.largest_weight(priorities, beta)])
        return columns
