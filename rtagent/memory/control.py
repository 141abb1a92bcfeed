"""What the supervisor tells the workers: settings that change while they run.

Why it is correct. The settings travel in one `JsonCell` that only the supervisor writes; a worker
compares the sequence word once per cycle and parses the document only when it has changed. Orders
that it finds torn stay unread: it goes on with those it has, and looks again the next time.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rtagent.memory.cells import JsonCell

CAPACITY = 8192


@dataclass(frozen=True)
class Orders:
    """Settings in force.

    Attributes:
        processes: inference processes 0..processes-1 act; the others leave.
        rows: rows of action slots that may hold an action, at least `processes`.
        algorithm: the staggering algorithm.
        fill: ticks ahead an action may be re-used.
        injected_latency_ms: mean of the padded inference time.
        injected_latency_distribution: its distribution.
        injected_latency_spread: its spread.
        learners: learner processes 0..learners-1 learn; the others leave.
        learner_ring: the learners that take turns now, in this order.
        learning_order: round-robin or first-come.
        batch_size: transitions per update; with R3 the smallest batch.
        r3_mode: off, max-a, max-p, episode or step.
        deadline_s: D of the horizon, seconds; none: no deadline.
        data_budget: B of the horizon, samples; none: no budget.
        batch_bytes: memory reserved for batches; none: unlimited.
        checkpoint: number of checkpoints asked for so far.
        inference_since: when the inference settings last came into force after a change, monotonic
            seconds; 0: they have not changed.
        go: the world's clock may start.
        learning_paused: the learners wait.
        stop: every worker leaves.
    """

    processes: int
    rows: int
    algorithm: str
    fill: int
    injected_latency_ms: float
    injected_latency_distribution: str
    injected_latency_spread: float
    learners: int = 0
    learner_ring: list[int] = field(default_factory=list)
    learning_order: str = "round-robin"
    batch_size: int = 32
    r3_mode: str = "off"
    deadline_s: float | None = None
    data_budget: int | None = None
    batch_bytes: int | None = None
    checkpoint: int = 0
    inference_since: float = 0.0
    go: bool = False
    learning_paused: bool = False
    stop: bool = False


class Control:
    """The supervisor's orders in shared memory."""

    def __init__(self, buffer: memoryview) -> None:
        self._cell = JsonCell(buffer, CAPACITY)
        self._document: dict[str, Any] | None = None
        self._orders: Orders

    @staticmethod
    def size() -> int:
        """Bytes of the cell."""
        return JsonCell.size(CAPACITY)

    def write(self, orders: Orders) -> None:
        """Put new orders in force. Only the supervisor."""
        self._cell.write(asdict(orders))

    @property
    def orders(self) -> Orders:
        """The orders in force; the supervisor writes the first before it starts any worker."""
        document = self._cell.read()
        if document is not self._document:
            self._orders, self._document = Orders(**document), document
        return self._orders
