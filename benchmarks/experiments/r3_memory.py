"""Out of memory, with R3's handler and without: one horizon of a learner in virtual time.

The lack of memory is injected: each transition of a batch is taken to need `TRANSITION_BYTES`, and
other programs to have left `room_mib`. A learner that asks for more, before it computes a batch of
a new size, is refused, as the kernel refuses it where memory is short. Without the handler the
first refusal ends it, as any other error does. With it, it goes on with half the batch (Li et al.,
R3, Sec. III-C).

The deadline can be met with batches of 512, not with 256. Of 1024, which `max-p` begins with and
`step` and `episode` may come to, there is no room.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any
from unittest import mock

import rtagent
import rtagent.virtual
from rtagent.learning import learner
from rtagent.learning.out_of_memory import is_out_of_memory
from rtagent.learning.replay.batch_memory import BatchMemory

HANDLERS = ("with", "without")
MODES = ("max-a", "max-p", "episode", "step")
TRANSITION_BYTES = 64 << 10
"""About what a policy on pictures needs."""
ROOM_MIB = 80
"""Enough for batches of 768 at most: 32 MiB are asked for whatever the size."""
DEADLINE_S = 3.0
BUDGET = 40_000
BEGIN_S = 1.5
"""Learning begins within this time."""
SETTINGS = (
    "policy.network=mlp", "policy.width=8", "learning.batch_size=256",
    "learning.algorithm=double-dqn", "learning.learning_starts=200",
    f"r3.deadline_s={DEADLINE_S}", f"r3.data_budget={BUDGET}",
)


def update_s(size: int) -> float:
    """Seconds of an update: 0.02 for any, and 20 us for each transition."""
    return 0.02 + 2e-5 * size


class Memory:
    """Memory of a limited size.

    Args:
        room: bytes that can be had at once.
        handler: whether the learner handles a refusal as R3 does.

    Attributes:
        refusals: how many requests were refused.
    """

    def __init__(self, room: int, handler: bool) -> None:
        self._room, self._handler = room, handler
        self.refusals = 0

    def ask(self, count: int) -> None:
        """Raise `MemoryError` if so many bytes are not there."""
        if count > self._room:
            self.refusals += 1
            raise MemoryError(f"{count} bytes cannot be had")

    def of_batches(self, measure: Callable[[int], int]) -> BatchMemory:
        """Replaces the learner's `BatchMemory`; `measure` runs a batch of a size."""
        def needed(size: int) -> int:
            measure(size)
            return size * TRANSITION_BYTES

        return BatchMemory(needed, self.ask)

    def handled(self, error: BaseException) -> bool:
        """Whether the learner goes on after an error."""
        return self._handler and is_out_of_memory(error)


def run(
    world: tuple[str, ...], mode: str, seed: int, handler: str, room_mib: int
) -> dict[str, Any]:
    """One horizon: how much of its data budget is learned from before its deadline."""
    memory = Memory(room_mib << 20, handler == "with")
    sizes: list[int] = []

    def timed(size: int) -> float:
        sizes.append(size)
        return update_s(size)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(learner, "is_out_of_memory", memory.handled),
        mock.patch.object(learner, "BatchMemory", memory.of_batches),
    ):
        config = rtagent.load_config(None, [
            *world, *SETTINGS, f"r3.mode={mode}", f"run.seed={seed}", f"run.state_dir={folder}",
        ], {})
        try:
            rtagent.virtual.run(
                config, seconds=BEGIN_S + DEADLINE_S, inference_s=0.002, update_s=timed
            )
        except MemoryError:
            ended = True
        else:
            ended = False
    # The first size was asked about before anything was learned.
    return {**learned(sizes[1:]), "refusals": memory.refusals, "learner_ended": float(ended)}


def learned(sizes: list[int]) -> dict[str, Any]:
    """How much of the data budget is learned from before the deadline, with batches in a row."""
    spent_s, samples, largest = 0.0, 0, 0
    for size in sizes:
        spent_s += update_s(size)
        if spent_s > DEADLINE_S:
            break
        samples, largest = samples + size, max(largest, size)
    return {"budget_percent": min(100.0, 100.0 * samples / BUDGET), "largest_batch": largest}
