"""A demonstration in the making.

The newest tick of an episode is written only when the next one comes: should the episode be cut
short there, the tick is marked as truncated. A reset is written with the first tick after it, and
leaves nothing if none follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rtagent.memory.ledger import TRUNCATED
from rtagent.storage.demonstration_file import DemonstrationWriter

MOST_TICKS = 108_000
"""Half an hour of a Game Boy, 760 MB of pictures."""

_Tick = tuple[NDArray[Any], int, float, int]
"""Frame, action, reward and flags."""


class Tape:
    """Records episodes; `episodes` counts those of which at least one tick has been played."""

    def __init__(
        self, environment: str, action_meanings: tuple[str, ...], cartridge: str = ""
    ) -> None:
        self._writer = DemonstrationWriter(environment, action_meanings, cartridge)
        self._reset: _Tick | None = None
        self._newest: _Tick | None = None
        self.episodes = 0

    @property
    def ticks(self) -> int:
        """Recorded ticks, resets included."""
        return self._writer.ticks + (self._newest is not None)

    @property
    def full(self) -> bool:
        """Whether there is no room for a further episode of one tick."""
        return self.ticks + 2 > MOST_TICKS or not self._writer.has_room(3)

    def begin(self, frame: NDArray[Any], noop: int) -> None:
        """Record a reset, by its frame; it ends the episode before."""
        self.cut()
        self._reset = frame.copy(), noop, 0.0, 0

    def add(self, frame: NDArray[Any], action: int, reward: float, flags: int) -> None:
        """Record a tick of the episode, as `DemonstrationWriter.add` takes it."""
        # One tick stays in hand until the next one, or `cut`, for which there must be room.
        self._writer.check_room(2)
        if self._reset is not None:
            self.episodes += 1
            self._newest, self._reset = self._reset, None
        if self._newest is not None:
            self._writer.add(*self._newest, self.episodes - 1)
        self._newest = frame.copy(), action, reward, flags

    def cut(self) -> None:
        """End the episode here, truncated if it was not over."""
        if self._newest is not None:
            frame, action, reward, flags = self._newest
            self._writer.add(frame, action, reward, flags or TRUNCATED, self.episodes - 1)
        self._newest = None

    def save(self, path: Path) -> None:
        """Write all episodes that have been cut.

        Raises:
            UserError: it cannot be written.
        """
        self._writer.save(path)
