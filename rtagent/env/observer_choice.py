"""The choice of what the agent sees, from an environment's observation space.

A picture of any size becomes 84 x 84 grey levels, or what `env.image_size` and `env.grayscale` say
instead; everything else becomes a float32 vector.

| space | frame |
|---|---|
| uint8 Box (H, W), (H, W, 1 or 3 or 4), (1 or 3, H, W) | picture, its upper bound white |
| the same in colours that are not wanted, a side under 16 | vector, divided by its upper bound |
| Box of other numbers in these shapes, bounds of levels, no side under 16 | picture, scaled |
| any other Box of one or two dimensions | vector; of uint8: divided by its upper bound |
| Discrete | one-hot vector |
| Dict | its picture, without the other entries; without a picture, flattened to one vector |
| Tuple, MultiDiscrete, MultiBinary | flattened to one vector |

Flattened entries keep their numbers: those of uint8 are not divided, for trained policies have seen
them so. Bounds of levels are finite, and at most 2**24 apart. (4, H, W) is refused: it is a stack
of frames more often than a picture with four channels.
"""

from __future__ import annotations

import math
from typing import Any, cast

import gymnasium as gym
import numpy as np

from rtagent.env.observers import (
    GREY,
    EntryObserver,
    FlattenedObserver,
    Layout,
    Observer,
    PictureObserver,
    VectorObserver,
    shown,
)
from rtagent.errors import UserError

USUAL_NAMES = ("pixels", "image", "rgb", "screen", "camera")
"""Names of a Dict's picture, the most telling first, where the Dict has several pictures."""

SMALLEST_SIDE = 16
"""An array with a shorter side, of floats or of colours, is a board or a matrix, not a picture."""

WIDEST_LEVELS = 1 << 24
"""Bounds further apart are those of the number type, not black and white: scaled by them, all
values would become one level."""

LONGEST_VECTOR = 65_536
"""Larger spaces are not flattened: they hold pictures of an unknown kind."""

_FLATTENED = (
    gym.spaces.Dict, gym.spaces.Tuple, gym.spaces.Discrete, gym.spaces.MultiDiscrete,
    gym.spaces.MultiBinary,
)


def observer_for(
    space: gym.Space[Any], key: str = "auto", size: tuple[int, int] = GREY, *,
    grayscale: bool = True,
) -> Observer:
    """Choose how observations of `space` become frames.

    Args:
        space: the environment's observation space.
        key: the entry of a Dict that the agent sees; auto: its picture, and among several
            pictures the first of `USUAL_NAMES`.
        size: height and width of the frames made of pictures.
        grayscale: whether pictures become grey levels.

    Returns:
        The observer, whose frames have a fixed shape and type.

    Raises:
        UserError: names the space if its observations cannot be used.
    """
    if _length(space) == 0:
        raise UserError(f"observations of {shown(space)} have no numbers that a policy could see")
    if isinstance(space, gym.spaces.Dict):
        name = _entry(space, key)
        if name is not None:
            return EntryObserver(name, observer_for(space[name], size=size, grayscale=grayscale))
    elif key != "auto":
        raise UserError(
            f"env.observation_key = {key}: observations are {shown(space)}, no Dict; leave it auto"
        )
    if isinstance(space, gym.spaces.Box):
        layout = _layout(space)
        if layout is not None and grayscale and layout.colours and layout.side < SMALLEST_SIDE:
            # One grey level of a cell would mix the codes that it holds.
            return VectorObserver(space.shape, 1 / layout.high)
        if layout is not None:
            if not grayscale and not layout.colours:
                raise UserError(
                    f"env.grayscale = false: {shown(space)} has no colours; leave it true"
                )
            return PictureObserver(layout, size if grayscale else (*size, 3))
        if len(space.shape) <= 2:
            return VectorObserver(space.shape, 1 / (_white(space) or 1.0))
    elif isinstance(space, _FLATTENED) and _length(space) <= LONGEST_VECTOR:
        return FlattenedObserver(space)
    raise _refusal(space)


def _refusal(space: gym.Space[Any]) -> UserError:
    """Says which observations could be used."""
    advice = ""
    if isinstance(space, gym.spaces.Box) and any(_channels(space.shape)):
        advice = (
            f"; a picture of other numbers than uint8 has sides of {SMALLEST_SIDE} or more, and "
            "finite bounds, the same for each number, at most 2**24 apart"
        )
    elif isinstance(space, gym.spaces.Box) and len(space.shape) >= 3:
        advice = "; frames are stacked by env.frame_stack, not by a wrapper"
    elif isinstance(space, gym.spaces.Dict):
        advice = "; of a Dict, env.observation_key selects one entry"
    return UserError(
        f"cannot use observations of {shown(space)}: expected a picture (H, W), (H, W, 1), "
        f"(H, W, 3) or (3, H, W), a vector, a Discrete of at most {LONGEST_VECTOR}, or a Dict with "
        f"a picture{advice}"
    )


def sight(space: gym.Space[Any], observer: Observer) -> str:
    """What the agent sees of an environment whose space has this observer, in words."""
    if isinstance(space, gym.spaces.Dict) and isinstance(observer, EntryObserver):
        seen, key = sight(space[observer.key], observer.entry), observer.key
        others = ", ".join(str(each) for each in space if each != key)
        unseen = f"; of the Dict only {key}, not {others} (env.observation_key)" if others else ""
        return seen + unseen
    if not observer.screen:
        return f"a vector of {math.prod(observer.shape)} numbers"
    height, width, *colours = observer.shape
    seen = f"{height}x{width} pixels, {'in colours' if colours else 'grey'}"
    return f"pictures of shape {space.shape} as {seen} (env.image_size, env.grayscale)"


def _entry(space: gym.spaces.Dict, key: str) -> Any:
    """The name of the entry that the agent sees; None if it sees all of them, flattened."""
    if key != "auto":
        # A name may be a number.
        names = {str(name): name for name in space.spaces}
        if key not in names:
            raise UserError(f"env.observation_key = {key}: the observation has {', '.join(names)}")
        return names[key]
    pictures = [
        name for name, entry in space.spaces.items()
        if isinstance(entry, gym.spaces.Box) and _layout(entry) is not None
    ]
    if len(pictures) <= 1:
        return pictures[0] if pictures else None
    usual = [name for name in USUAL_NAMES if name in pictures]
    if usual:
        return usual[0]
    raise UserError(
        f"cannot choose among the pictures {', '.join(map(str, pictures))} of {shown(space)}; "
        "set env.observation_key to one of them"
    )


def _layout(space: gym.spaces.Box) -> Layout | None:
    """How the pictures of a space are laid out; None if it holds no pictures."""
    shape = space.shape
    last, first = _channels(shape)
    if not (len(shape) == 2 or last or first):
        return None
    dtype = np.dtype(cast("Any", space.dtype))
    if dtype == np.uint8:
        return Layout(shape, dtype, high=_white(space) or 255.0, channels_first=first)
    low, high = float(space.low.min()), float(space.high.max())
    uniform = bool((space.low == low).all() and (space.high == high).all())
    layout = Layout(shape, dtype, low, high, first)
    if layout.side < SMALLEST_SIDE or not (uniform and np.isfinite((low, high)).all()):
        return None
    return layout if 0.0 < high - low <= WIDEST_LEVELS else None


def _channels(shape: tuple[int, ...]) -> tuple[bool, bool]:
    """Whether arrays of this shape may be pictures with their channels last, or first."""
    last = len(shape) == 3 and shape[2] in (1, 3, 4)
    return last, len(shape) == 3 and not last and shape[0] in (1, 3)


def _white(space: gym.spaces.Box) -> float:
    """The largest number of a uint8 Box: a board of 0 and 1 would be black beside 255; else 0."""
    return float(space.high.max()) if space.dtype == np.uint8 else 0.0


def _length(space: gym.Space[Any]) -> float:
    """Count of numbers in a flattened observation; infinite where it is not fixed or not known."""
    try:
        return gym.spaces.flatdim(space) if space.is_np_flattenable else math.inf
    except NotImplementedError:
        # A space of an environment's own may be no more than a set with a name.
        return math.inf
