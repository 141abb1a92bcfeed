"""Play by a person: handles the page's messages, and plays the ticks that are due.

The clock runs while a page is open, has the focus, and is not paused. Tick k is due at an absolute
time, so lateness does not add up; after a hold-up the game goes on from there instead of hurrying.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rtagent.clock import NANO, Clock
from rtagent.env.gameboy.machine import BUTTON_NAMES
from rtagent.env.wall_clock import TickSchedule
from rtagent.errors import UserError
from rtagent.recording.recorder import Recorder

MOST_CATCH_UP_TICKS = 5
IDLE_S = 0.05
"""Time between two calls of `run_due` while the game is not running."""


class Session:
    """One game played by keyboard.

    Attributes:
        page: number of the page that plays; 0: no page is open.
        finished: whether the game is over; what was recorded is written then.
    """

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self._recorder, self._player, self._clock = recorder, recorder.player, clock
        self._schedule: TickSchedule | None = None
        self._tick = self._pages = self.page = 0
        self._held: list[str] = []
        self._tapped: list[str] = []
        self._focused = self._paused = self.finished = False
        self._message = ""
        self._screen = np.zeros((1, 1, 3), np.uint8)
        self._controls: dict[str, Callable[[], None]] = {
            "save": self._save, "record": self._record, "restart": self._player.restart,
            "pause": self._pause, "finish": self.finish,
        }

    @property
    def running(self) -> bool:
        """Whether the clock runs."""
        return bool(self.page) and self._focused and not (self._paused or self.finished)

    def arrive(self) -> int:
        """Give a new page its number; it takes over from any other page."""
        self._pages += 1
        self.page = self._pages
        self._release()
        return self.page

    def leave(self, page: int) -> None:
        """Note that a page is gone; if it was the page that plays, all keys are released."""
        if page == self.page:
            self.page = 0
            self._release()

    def handle(self, message: Any) -> None:
        """Handle a page's message: held `keys`, the oldest first; `focus`; or a control to `do`.

        Raises:
            ValueError: it is none of these.
        """
        match message:
            case {"keys": list(names)} if all(name in BUTTON_NAMES for name in names):
                self._tapped += [name for name in names if name not in self._held]
                self._held = names
            case {"focus": bool(focused)}:
                self._release()
                self._focused = focused
            case {"do": str(name)} if name in self._controls:
                self._try(self._controls[name])
            case _:
                raise ValueError("not understood")

    def run_due(self) -> float:
        """Play the ticks that are due.

        Returns:
            Seconds until the next call.
        """
        if not self.running:
            self._schedule, self._tapped = None, []
            return IDLE_S
        now_ns = round(self._clock.now() * NANO)
        if self._schedule is None:
            self._schedule = TickSchedule(
                self._player.rate_hz, now_ns, self._tick, MOST_CATCH_UP_TICKS
            )
        schedule = self._schedule
        if now_ns >= schedule.due_ns(self._tick):
            for _ in range(schedule.plan(self._tick, now_ns).catch_up + 1):
                self._try(self._play)
                self._tick += 1
        return max(0.0, schedule.due_ns(self._tick) / NANO - self._clock.now())

    def finish(self) -> None:
        """End the game and write what is recorded.

        Raises:
            UserError: it cannot be written; then the game is not over.
        """
        if not self.finished:
            self._recorder.stop()
            self.finished = True
            self._message = "Finished; all that was recorded is written."

    def shown(self) -> dict[str, Any]:
        """What the page shows beside the picture, as JSON values."""
        player, recorder = self._player, self._recorder
        tape, file = recorder.tape, recorder.demonstration
        return {
            "environment": player.environment, "buttons": player.buttons.names,
            "running": self.running, "paused": self._paused, "finished": self.finished,
            "recording": recorder.recording, "can_save": recorder.keeps_states,
            "can_record": file is not None, "ticks": player.ticks, "return": player.total,
            "last_reward": player.last_reward, "ended": player.ended,
            "values": {name: str(value) for name, value in player.values.items()},
            "demonstration": "" if file is None else file.name, "episodes": tape.episodes,
            "recorded_ticks": tape.ticks, "states": [path.name for path in recorder.saved],
            "told": self._message,
        }

    def picture(self) -> bytes:
        """The game's picture: width and height, 16 bits each, low byte first, then RGBA.

        The last one, where the environment cannot show another.
        """
        self._try(self._look)
        screen = self._screen
        height, width = screen.shape[:2]
        rgba = np.full((height, width, 4), 255, np.uint8)
        rgba[..., :3] = screen
        return np.array((width, height), "<u2").tobytes() + rgba.tobytes()

    def _look(self) -> None:
        self._screen = self._player.screen()

    def _play(self) -> None:
        """Play one tick; a key that was tapped between two ticks counts as held for one."""
        held = self._held + [name for name in self._tapped if name not in self._held]
        self._tapped = []
        self._player.step(self._player.buttons.nearest(held))
        if self._recorder.recording and self._recorder.tape.full:
            self._recorder.stop()
            self._message = "The demonstration is full; recording has stopped."

    def _save(self) -> None:
        self._message = f"Saved {self._recorder.save_state().name}."

    def _record(self) -> None:
        if self._recorder.recording:
            self._recorder.stop()
            self._message = "Recording has stopped; the demonstration is written."
        else:
            self._recorder.start()
            self._message = "Recording, from a new episode on."

    def _pause(self) -> None:
        self._paused = not self._paused

    def _release(self) -> None:
        self._held, self._tapped, self._focused = [], [], False

    def _try(self, action: Callable[[], None]) -> None:
        """Do something; if it is not possible, the page says why, and the game goes on."""
        try:
            action()
        except UserError as error:
            self._message = f"{error}."
