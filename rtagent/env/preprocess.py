"""From what an environment shows to the frame that the agent sees.

A picture of any size becomes 84 x 84 grey levels; everything else becomes a float32 vector. Which
of the two is decided once, from the observation space; at run time each observation is checked
against what the space promised, because a wrong one would silently poison the replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, cast

import cv2
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.errors import UserError

SIDE = 84
"""Height and width of a picture as the agent sees it."""

GREY = (SIDE, SIDE)


class EnvironmentFault(RuntimeError):
    """The environment broke its own promise: a wrong shape, a NaN, an action outside its space."""


class Observer(Protocol):
    """Turns one observation of an environment into one frame."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a frame."""
        ...

    @property
    def dtype(self) -> str:
        """Numpy name of a frame's element type: uint8 or float32."""
        ...

    @property
    def screen(self) -> bool:
        """Whether a frame can be shown as a picture."""
        ...

    def __call__(self, observation: Any) -> NDArray[Any]:
        """The frame for one observation; it may share the observation's memory.

        Raises:
            EnvironmentFault: the observation is not what the space promised.
        """
        ...


def observer_for(space: gym.Space[Any]) -> Observer:
    """Choose how observations of `space` become frames.

    Args:
        space: the environment's observation space: an image or vector Box, a Discrete, or a Dict
            with exactly one image.

    Returns:
        The observer, whose frames have a fixed shape and type.

    Raises:
        UserError: names the space if its observations cannot be used.
    """
    if isinstance(space, gym.spaces.Dict):
        pictures = [key for key, entry in space.spaces.items() if _is_picture(entry)]
        if len(pictures) == 1:
            return EntryObserver(pictures[0], PictureObserver(_shape(space[pictures[0]])))
    elif isinstance(space, gym.spaces.Discrete):
        return OneHotObserver(int(space.n), int(space.start))
    elif _is_picture(space):
        return PictureObserver(_shape(space))
    elif isinstance(space, gym.spaces.Box) and len(space.shape) <= 2:
        return VectorObserver(space.shape)
    raise UserError(
        f"cannot use observations of {' '.join(repr(space).split())}: expected a uint8 picture "
        "(H, W), (H, W, 1) or (H, W, 3), a vector, a Discrete, or a Dict with one such picture"
    )


def to_grey(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shrink a picture to 84 x 84 grey levels.

    Args:
        picture: uint8, (H, W), (H, W, 1) or RGB (H, W, 3).

    Returns:
        uint8 (84, 84): luminance, each pixel the mean of the area that it covers. A picture that
        has this shape already is returned as it is.
    """
    grey: Any = picture
    if picture.ndim == 3:
        colour = picture.shape[2] == 3
        grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) if colour else picture[..., 0]
    if grey.shape != GREY:
        grey = cv2.resize(grey, GREY, interpolation=cv2.INTER_AREA)
    return cast("NDArray[np.uint8]", grey)


@dataclass(frozen=True)
class PictureObserver:
    """Pictures of the shape `source` as 84 x 84 grey levels."""

    source: tuple[int, ...]
    shape: tuple[int, ...] = GREY
    dtype: str = "uint8"
    screen: bool = True

    def __call__(self, observation: Any) -> NDArray[np.uint8]:
        picture = np.asarray(observation)
        if picture.shape != self.source or picture.dtype != np.uint8:
            raise EnvironmentFault(
                f"the environment showed {picture.dtype} {picture.shape}, "
                f"its space promises uint8 {self.source}"
            )
        return to_grey(picture)


class VectorObserver:
    """Arrays of numbers of the shape `source`, flattened."""

    dtype = "float32"
    screen = False

    def __init__(self, source: tuple[int, ...]) -> None:
        self.source = source
        self.shape = (int(np.prod(source)),)

    def __call__(self, observation: Any) -> NDArray[np.float32]:
        values = np.asarray(observation)
        if values.shape != self.source:
            raise EnvironmentFault(
                f"the environment gave an observation of shape {values.shape}, "
                f"its space promises {self.source}"
            )
        vector = values.astype(np.float32).reshape(self.shape)
        if not np.isfinite(vector).all():
            raise EnvironmentFault(
                f"the environment gave an observation that is not finite: {vector}"
            )
        return vector


class OneHotObserver:
    """States `start` to `start + count - 1`, one-hot."""

    dtype = "float32"
    screen = False

    def __init__(self, count: int, start: int) -> None:
        self.start = start
        self.shape = (count,)
        self._rows = np.eye(count, dtype=np.float32)
        self._rows.setflags(write=False)

    def __call__(self, observation: Any) -> NDArray[np.float32]:
        index = int(observation) - self.start
        if not 0 <= index < len(self._rows):
            raise EnvironmentFault(
                f"the environment is in state {observation}, its space promises {self.start} "
                f"to {self.start + len(self._rows) - 1}"
            )
        row: NDArray[np.float32] = self._rows[index]
        return row


class EntryObserver:
    """The one picture among the entries of a Dict observation."""

    dtype = "uint8"
    screen = True
    shape: tuple[int, ...] = GREY

    def __init__(self, key: str, picture: PictureObserver) -> None:
        self.key = key
        self._picture = picture

    def __call__(self, observation: Any) -> NDArray[np.uint8]:
        if self.key not in observation:
            raise EnvironmentFault(f"the environment's observation lacks the entry {self.key!r}")
        return self._picture(observation[self.key])


def _is_picture(space: gym.Space[Any]) -> bool:
    if not isinstance(space, gym.spaces.Box) or space.dtype != np.uint8:
        return False
    return len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[2] in (1, 3))


def _shape(space: gym.Space[Any]) -> tuple[int, ...]:
    assert space.shape is not None
    return space.shape
