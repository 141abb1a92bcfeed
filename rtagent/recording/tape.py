"""A demonstration in the making.

Why the newest tick is held back: whether it is the last of its episode, which is then cut short,
is known only afterwards. A reset that no tick follows leaves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rtagent.memory.ledger import TRUNCATED
from rtagent.storage.demonstration_file import DemonstrationWriter

MOST_TICKS = 108_000
"""Half an hour of a Game Boy, 760 MB of pictures."""


@dataclass(frozen=True)
class _Tick:
    frame: NDArray[Any]
    action: int
    reward: float = 0.0
    flags: int = 0


class Tape:
    """Takes episodes down; `episodes` counts those of which at least one tick has been played."""

    def __init__(self, environment: str, action_meanings: tuple[str, ...]) -> None:
        self._writer = DemonstrationWriter(environment, action_meanings)
        self._newest: _Tick | None = None
        self._fresh = False
        self.episodes = 0

    @property
    def ticks(self) -> int:
        """Ticks taken down, resets included."""
        return self._writer.ticks + (self._newest is not None and not self._fresh)

    @property
    def full(self) -> bool:
        """Whether there is no room for a further episode of one tick."""
        return self.ticks + 2 > MOST_TICKS or not self._writer.has_room(3)

    def begin(self, frame: NDArray[Any], noop: int) -> None:
        """A reset that gave this frame; the episode before it is over."""
        self.cut()
        self._newest, self._fresh = _Tick(frame.copy(), noop), True

    def add(self, frame: NDArray[Any], action: int, reward: float, flags: int) -> None:
        """A tick of the episode, as `DemonstrationWriter.add` takes it."""
        if self._fresh:
            self.episodes += 1
            self._fresh = False
        self._write()
        self._newest = _Tick(frame.copy(), action, reward, flags)

    def cut(self) -> None:
        """The episode ends here, truncated if it was not over."""
        if self._newest is not None and not self._fresh:
            self._newest = replace(self._newest, flags=self._newest.flags or TRUNCATED)
            self._write()
        self._newest = None

    def save(self, path: Path) -> None:
        """Write all episodes that have been cut.

        Raises:
            UserError: it cannot be written.
        """
        self._writer.save(path)

    def _write(self) -> None:
        tick = self._newest
        if tick is not None:
            self._writer.add(tick.frame, tick.action, tick.reward, tick.flags, self.episodes - 1)
