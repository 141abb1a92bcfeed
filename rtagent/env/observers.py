"""Observers: from one observation of an environment to the frame that the agent sees.

`observer_choice.py` chooses the observer of a space. Each observation is checked against that
space, for a wrong one would silently spoil the replay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cv2
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

SIDE = 84
"""Height and width of a picture as the agent sees it, unless `env.image_size` says otherwise."""

GREY = (SIDE, SIDE)


class EnvironmentFault(RuntimeError):
    """The environment gave what its spaces exclude: a wrong shape or type, an unknown state."""


class NotFinite(EnvironmentFault):
    """The environment gave a NaN or an infinity; its next episode may be sound again."""


class Observer:
    """Turns one observation of an environment into one frame.

    Attributes:
        shape: of a frame.
        dtype: of its elements, as NumPy names it: uint8 or float32.
        screen: whether a frame can be shown as a picture.
    """

    shape: tuple[int, ...]
    dtype = "float32"
    screen = False

    def __call__(self, observation: Any) -> NDArray[Any]:
        """The frame for one observation.

        It may share the observation's memory, unless its numbers can be NaN.

        Raises:
            NotFinite: a number is NaN or infinite.
            EnvironmentFault: the observation is not of the space.
        """
        try:
            return self._frame(observation)
        except (KeyError, IndexError, OverflowError, TypeError, ValueError) as error:
            raise EnvironmentFault(
                "the environment's observation is not of its space: "
                f"{type(error).__name__}: {error}"
            ) from None

    def _frame(self, observation: Any) -> NDArray[Any]:
        raise NotImplementedError


def to_grey(picture: NDArray[np.uint8], size: tuple[int, int] = GREY) -> NDArray[np.uint8]:
    """Shrink a picture to grey levels.

    Args:
        picture: uint8, (H, W), (H, W, 1), RGB (H, W, 3) or RGBA (H, W, 4), whose A is ignored.
        size: height and width of the result.

    Returns:
        uint8 luminance; each pixel is the mean of the area that it covers. A picture that has
        this shape already is returned as it is.
    """
    grey: Any = picture
    if picture.ndim == 3:
        code = {3: cv2.COLOR_RGB2GRAY, 4: cv2.COLOR_RGBA2GRAY}.get(picture.shape[2])
        grey = picture[..., 0] if code is None else cv2.cvtColor(picture, code)
    return _shrunk(grey, size)


def to_rgb(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A picture as `to_grey` takes it, in three colours; RGB is returned as it is."""
    colours = picture if picture.ndim == 3 else picture[..., None]
    return np.ascontiguousarray(np.broadcast_to(colours[..., :3], (*colours.shape[:2], 3)))


def _shrunk(picture: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    """(H, W) or (H, W, 3) at another size; each pixel is the mean of the area that it covers."""
    if picture.shape[:2] != size:
        picture = cv2.resize(picture, size[::-1], interpolation=cv2.INTER_AREA)
    return cast("NDArray[np.uint8]", picture)


@dataclass(frozen=True)
class Layout:
    """The shape and numbers of an environment's pictures; `low` is black, `high` is white."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float = 0.0
    high: float = 255.0
    channels_first: bool = False

    @property
    def side(self) -> int:
        """The shorter one."""
        return min(self.shape[1:] if self.channels_first else self.shape[:2])

    @property
    def colours(self) -> bool:
        """Whether the pictures have red, green and blue."""
        return len(self.shape) == 3 and self.shape[0 if self.channels_first else 2] >= 3


class PictureObserver(Observer):
    """Pictures as grey levels (height, width), or in colours (height, width, 3)."""

    dtype = "uint8"
    screen = True

    def __init__(self, source: Layout, shape: tuple[int, ...]) -> None:
        self._source, self.shape = source, shape

    def _frame(self, observation: Any) -> NDArray[np.uint8]:
        picture, source = np.asarray(observation), self._source
        exact, given, wanted = source.dtype == np.uint8, picture.dtype, source.dtype
        same = given == wanted if exact else given.kind == wanted.kind
        if picture.shape != source.shape or not same:
            raise EnvironmentFault(
                f"the environment showed {given} {picture.shape}, "
                f"its space promises {wanted} {source.shape}"
            )
        if source.channels_first:
            picture = np.ascontiguousarray(np.moveaxis(picture, 0, 2))
        if not (exact and source.high == 255.0):
            picture = self._levels(picture)
        height, width = self.shape[:2]
        if len(self.shape) == 2:
            return to_grey(picture, (height, width))
        return _shrunk(np.ascontiguousarray(picture[..., :3]), (height, width))

    def _levels(self, picture: NDArray[Any]) -> NDArray[np.uint8]:
        """Scale numbers between the space's bounds to 0 to 255."""
        low, high = self._source.low, self._source.high
        levels = (picture.astype(np.float32) - low) * (255.0 / (high - low))
        if not np.isfinite(levels).all():
            raise NotFinite("the environment showed a picture with values that are not finite")
        return np.asarray(np.clip(np.rint(levels), 0, 255), np.uint8)


class VectorObserver(Observer):
    """Arrays of numbers of shape `source`, multiplied by `scale` and flattened."""

    def __init__(self, source: tuple[int, ...], scale: float) -> None:
        self._source, self.shape = source, (math.prod(source),)
        self._scale = np.float32(scale)

    def _frame(self, observation: Any) -> NDArray[np.float32]:
        values = np.asarray(observation)
        if values.shape != self._source:
            raise EnvironmentFault(
                f"the environment gave an observation of shape {values.shape}, "
                f"its space promises {self._source}"
            )
        return _finite(values.astype(np.float32).reshape(self.shape) * self._scale)


class FlattenedObserver(Observer):
    """Choices, one-hot, and composed observations as one vector, in Gymnasium's order: Dict entries
    sorted by name."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space, self.shape = space, (gym.spaces.flatdim(space),)

    def _frame(self, observation: Any) -> NDArray[np.float32]:
        values = np.concatenate([*_parts(self._space, observation)])
        if values.shape != self.shape:
            raise EnvironmentFault(
                f"the environment gave {values.size} numbers, its space promises {self.shape[0]}"
            )
        return _finite(values)


class EntryObserver(Observer):
    """One entry of a Dict observation."""

    def __init__(self, key: Any, entry: Observer) -> None:
        self.key, self.entry = key, entry
        self.shape, self.dtype, self.screen = entry.shape, entry.dtype, entry.screen

    def _frame(self, observation: Any) -> NDArray[Any]:
        if self.key not in observation:
            raise EnvironmentFault(f"the environment's observation lacks the entry {self.key!r}")
        return self.entry(observation[self.key])


def _parts(space: gym.Space[Any], observation: Any) -> Iterator[NDArray[np.float32]]:
    """The parts of an observation, flattened; raises a ValueError for one that is not of its space.

    Gymnasium would set a wrong bit, or too many, take the numbers of one entry for those of the
    next, and make whole numbers of a NaN, of fractions and of what the type does not hold.
    """
    if isinstance(space, gym.spaces.Dict):
        for key, entry in space.spaces.items():
            yield from _parts(entry, observation[key])
    elif isinstance(space, gym.spaces.Tuple):
        for entry, part in zip(space.spaces, observation, strict=True):
            yield from _parts(entry, part)
    elif isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        yield _one_hot(space, np.asarray(observation))
    elif isinstance(space, gym.spaces.Box | gym.spaces.MultiBinary):
        values = np.asarray(observation)
        possible = not isinstance(space, gym.spaces.MultiBinary) or np.isin(values, (0, 1)).all()
        if values.size != math.prod(space.shape) or not possible:
            raise ValueError(f"{observation} is not in {shown(space)}")
        yield values.astype(np.float32).ravel()
    else:
        yield np.asarray(gym.spaces.flatten(space, observation), np.float32)


def _one_hot(
    space: gym.spaces.Discrete | gym.spaces.MultiDiscrete, choices: NDArray[Any]
) -> NDArray[np.float32]:
    """The options chosen, each one-hot; raises a ValueError if there are no such."""
    counts = np.ravel(space.n if isinstance(space, gym.spaces.Discrete) else space.nvec)
    indices = np.ravel(choices - space.start)
    possible = (indices >= 0) & (indices < counts) & (indices == np.floor(indices))
    if choices.size != counts.size or not possible.all():
        raise ValueError(f"{choices} is not in {shown(space)}")
    vector = np.zeros(counts.sum(), np.float32)
    vector[np.cumsum(counts) - counts + indices.astype(int)] = 1.0
    return vector


def _finite(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(vector).all():
        raise NotFinite(f"the environment gave an observation that is not finite: {vector}")
    return vector


def shown(space: gym.Space[Any]) -> str:
    """A space in one line."""
    return " ".join(repr(space).split())
