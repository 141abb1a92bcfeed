"""A demonstration in the making.

The last tick of an episode that is cut short is marked as truncated. A reset is written with the
first tick after it, and leaves nothing if none follows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rtagent.storage.demonstration_file import DemonstrationWriter

MOST_TICKS = 108_000
"""Half an hour of a Game Boy, 760 MB of pictures."""


class Tape:
    """Records episodes; `episodes` counts those of which at least one tick has been played."""

    def __init__(
        self, environment: str, action_meanings: tuple[str, ...], cartridge: str = ""
    ) -> None:
        self._writer = DemonstrationWriter(environment, action_meanings, cartridge)
        self._reset: tuple[NDArray[Any], int] | None = None
        self.episodes = 0

    @property
    def ticks(self) -> int:
        """Recorded ticks, resets included."""
        return self._writer.ticks

    @property
    def full(self) -> bool:
        """Whether there is no room for a further episode of one tick."""
        return self.ticks + 2 > MOST_TICKS or not self._writer.has_room(2)

    def begin(self, frame: NDArray[Any], noop: int) -> None:
        """Record a reset, by its frame; it ends the episode before."""
        self.cut()
        self._reset = frame.copy(), noop

    def add(self, frame: NDArray[Any], action: int, reward: float, flags: int) -> None:
        """Record a tick of the episode, as `DemonstrationWriter.add` takes it."""
        if self._reset is not None:
            self._writer.check_room(2)
            self._writer.add(*self._reset, 0.0, 0, self.episodes)
            self.episodes += 1
            self._reset = None
        self._writer.add(frame, action, reward, flags, self.episodes - 1)

    def cut(self) -> None:
        """End the episode here, truncated if it was not over."""
        self._writer.truncate()

    def save(self, path: Path) -> None:
        """Write all episodes that have been cut.

        Raises:
            UserError: it cannot be written.
        """
        self._writer.save(path)
