"""The size of the replay within a memory budget, and the check that a budget is large enough."""

from __future__ import annotations

from rtagent.config import Config
from rtagent.errors import UserError
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.world import WorldMemory
from rtagent.r3.equations import replay_ticks

AIM = 0.99
"""Share of the budget that is given out, so that it is not exceeded although measurements lag."""
LEAST_TICKS = 256
_MIB = 1 << 20


class ReplaySizes:
    """The bounds of the replay, in bytes and in ticks.

    Args:
        memory: of the rings.
        blueprint: shape of a frame.
        config: replay.capacity, and the settings of learning.

    Attributes:
        least_ticks: the smallest replay from which learning can go on.
        least_bytes: memory of the smallest replay.
        most_ticks: the capacity.
        most_bytes: memory of the largest replay.
    """

    def __init__(self, memory: WorldMemory, blueprint: Blueprint, config: Config) -> None:
        learning = config.learning
        rollout = learning.rollout if learning.on_policy else 0
        sequence = learning.whole_sequence if blueprint.state_size else learning.n_step
        enough = 2 * max(learning.learning_starts, sequence, rollout, LEAST_TICKS)
        self._memory, self._blueprint = memory, blueprint
        self.most_ticks = config.replay.capacity
        self.most_bytes = self.most_ticks * memory.bytes_per_tick
        self.least_ticks = min(self.most_ticks, enough)
        self.least_bytes = self.least_ticks * memory.bytes_per_tick
        while (missing := self.least_ticks - memory.ticks_in(self.least_bytes)) > 0:
            self.least_bytes += missing * memory.bytes_per_tick

    def ticks_in(self, size: float) -> int:
        """The ticks that fit into so many bytes (Eq. 3), without those reserved for the writer.

        At least the smallest replay, at most the capacity.
        """
        frame, whole = self._blueprint.frame_bytes, self._memory.bytes_per_tick
        ticks = replay_ticks(size, self._blueprint.frame_stack, frame, whole - frame)
        return min(max(self._memory.ticks_in(ticks * whole), self.least_ticks), self.most_ticks)


def check_budget(budget: int, workers: int, batches: int, sizes: ReplaySizes) -> None:
    """Refuse a memory budget that leaves no room to learn.

    Args:
        budget: bytes.
        workers: measured bytes of processes and shared memory, without replay and batches.
        batches: bytes of one batch of the smallest size for each learner.
        sizes: of the replay.

    Raises:
        UserError: names every figure.
    """
    total = workers + batches + sizes.least_bytes
    if total > AIM * budget:
        raise UserError(
            f"r3.memory_budget_mb = {budget // _MIB} is too little: the processes need "
            f"{workers / _MIB:.1f} MiB, one batch per learner {batches / _MIB:.1f} MiB and the "
            f"smallest replay, of {sizes.least_ticks} ticks, {sizes.least_bytes / _MIB:.1f} MiB; "
            f"give it {int(total / AIM / _MIB) + 1} or more"
        )
