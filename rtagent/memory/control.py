"""What the supervisor tells the workers: settings that change while they run.

Why it is correct. The settings travel in one `JsonCell` that only the supervisor writes; a worker
compares the sequence word once per cycle and parses the document only when it has changed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rtagent.memory.cells import JsonCell

CAPACITY = 8192


@dataclass(frozen=True)
class Orders:
    """Settings in force.

    Attributes:
        processes: inference processes 0..processes-1 act; the others leave.
        rows: rows of action cells that may hold an action, at least `processes`.
        algorithm: the staggering algorithm.
        fill: ticks ahead an action may be re-used.
        injected_latency_ms: mean of the padded inference time.
        injected_latency_distribution: its distribution.
        injected_latency_spread: its spread.
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
    go: bool = False
    learning_paused: bool = False
    stop: bool = False


class Control:
    """The supervisor's orders in shared memory."""

    def __init__(self, buffer: memoryview) -> None:
        self._cell = JsonCell(buffer, CAPACITY)
        self._sequence = -1
        self._orders: Orders | None = None

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
        sequence = self._cell.sequence
        if sequence != self._sequence or self._orders is None:
            self._orders = Orders(**self._cell.read())
            self._sequence = sequence
        return self._orders
