"""Emulates a link that is slower than the real one: a mobile uplink, or one across an ocean.

So long distances can be studied on one machine; figures of such a run say that they are emulated.
In each direction a message waits until the messages before it have left, takes its size over the
bandwidth to leave, and arrives half a round trip later. A lost message never arrives: its sender
must repeat it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple


class Emulation(NamedTuple):
    """What is emulated.

    Attributes:
        rtt_s: added to every round trip, seconds.
        bits_per_s: of each direction. If None, it is not limited.
        loss: probability that a message is lost, of each message in each direction.
    """

    rtt_s: float = 0.0
    bits_per_s: float | None = None
    loss: float = 0.0

    @property
    def active(self) -> bool:
        """Whether anything is emulated."""
        return self != Emulation()

    @property
    def calls_lost(self) -> float:
        """Fraction of calls that fail, because the call or its answer is lost."""
        return self.loss + (1.0 - self.loss) * self.loss


class Direction:
    """One direction of the link.

    Args:
        random: gives numbers in [0, 1).

    Attributes:
        free_at: when all that was sent has left, seconds.
    """

    def __init__(self, emulation: Emulation, random: Callable[[], float]) -> None:
        self._emulation = emulation
        self._random = random
        self.free_at = 0.0
        self._under_way: deque[tuple[float, Any]] = deque()

    def send(self, now: float, size: int, message: Any) -> None:
        """Put a message on its way.

        Args:
            now: seconds.
            size: bytes.
            message: what `arrived` gives later.
        """
        emulation = self._emulation
        self.free_at = max(now, self.free_at)
        if emulation.bits_per_s is not None:
            self.free_at += 8 * size / emulation.bits_per_s
        if not emulation.loss or self._random() >= emulation.loss:
            self._under_way.append((self.free_at + emulation.rtt_s / 2, message))

    def arrived(self, now: float) -> list[Any]:
        """The messages that have arrived since the last call, in their order."""
        there = []
        while self._under_way and self._under_way[0][0] <= now:
            there.append(self._under_way.popleft()[1])
        return there

    @property
    def next_arrival(self) -> float | None:
        """When the next message arrives, seconds, or None if none is on its way."""
        return self._under_way[0][0] if self._under_way else None
