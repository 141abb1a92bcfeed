"""A Breakout of 10 x 10 cells, small enough to be learned in seconds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

RATE_HZ = 60.0
SIZE = 10
ACTIONS = 3
LONGEST = 500
"""Most ticks of an episode."""
BRICK_ROWS = slice(1, 4)
PADDLE, BALL, TRAIL, BRICK = range(4)

Frame = npt.NDArray[np.float32]


class Bricks:
    """Three rows of bricks, a ball that flies diagonally, and a paddle.

    A brick is worth 1; a ball that is missed ends the episode; a cleared wall stands again.
    A frame has a plane for each of paddle, ball, the ball's last place, and bricks.

    Args:
        rng: chooses where an episode begins.
        paddle: its cells, an odd number.
    """

    def __init__(self, rng: np.random.Generator, paddle: int = 1) -> None:
        self._rng, self._reach = rng, paddle // 2
        self.reset()

    def reset(self) -> Frame:
        """Begin an episode; its first frame (4 * 10 * 10,)."""
        self._bricks = np.zeros((SIZE, SIZE), bool)
        self._bricks[BRICK_ROWS] = True
        self._row, self._rows = 4, 1
        self._column, self._columns = (0, 1) if self._rng.random() < 0.5 else (SIZE - 1, -1)
        self._paddle = SIZE // 2
        self._trail = self._row, self._column
        self._ticks = 0
        return self._frame()

    def step(self, action: int) -> tuple[Frame, float, bool, bool]:
        """One tick: the frame, the reward, whether the ball is lost, whether the time is over.

        Args:
            action: 0 stays, 1 goes left, 2 goes right.
        """
        self._ticks += 1
        moved = self._paddle + (action == 2) - (action == 1)
        self._paddle = min(SIZE - 1 - self._reach, max(self._reach, moved))
        self._trail = self._row, self._column
        if not 0 <= self._column + self._columns < SIZE:
            self._columns = -self._columns
        row, column, reward = self._row + self._rows, self._column + self._columns, 0.0
        lost = False
        if row < 0:
            self._rows, row = 1, self._row + 1
        elif self._bricks[row, column]:
            self._bricks[row, column] = False
            self._rows, row, reward = -self._rows, self._row, 1.0
            if not self._bricks.any():
                self._bricks[BRICK_ROWS] = True
        elif row == SIZE - 1:
            lost = abs(self._paddle - column) > self._reach
            if not lost:
                self._rows, row = -1, self._row
        self._row, self._column = row, column
        return self._frame(), reward, lost, self._ticks >= LONGEST

    def _frame(self) -> Frame:
        planes = np.zeros((4, SIZE, SIZE), np.float32)
        left, right = self._paddle - self._reach, self._paddle + self._reach
        planes[PADDLE, SIZE - 1, left : right + 1] = 1.0
        planes[BALL][self._row, self._column] = 1.0
        planes[TRAIL][self._trail] = 1.0
        planes[BRICK] = self._bricks
        return planes.reshape(-1)


class BricksWorld(gymnasium.Env[Frame, Any]):
    """`Bricks` for Gymnasium, observed as one vector of its four planes.

    Args:
        render_mode: it draws nothing.
        paddle: cells of the paddle, an odd number.
    """

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4 * SIZE * SIZE,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)
    metadata = {"render_modes": [], "render_fps": RATE_HZ}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, paddle: int = 1) -> None:
        self._paddle = paddle
        self._game = Bricks(self.np_random, paddle)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Frame, Any]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None:
            self._game = Bricks(self.np_random, self._paddle)
        return self._game.reset(), {}

    def step(self, action: int) -> tuple[Frame, float, bool, bool, dict[str, Any]]:
        """One tick."""
        return *self._game.step(int(action)), {}


gymnasium.register("BricksWorld-v0", entry_point=f"{__name__}:BricksWorld")
