"""From what an environment shows to the frame that the agent sees.

A picture of any size becomes 84 x 84 grey levels, or what `env.image_size` and `env.grayscale` say
instead; everything else becomes a float32 vector. The space decides once which of the two; each
observation is then checked against the space, for a wrong one would silently spoil the replay.

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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import cv2
import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.errors import UserError

SIDE = 84
"""Height and width of a picture as the agent sees it, unless `env.image_size` says otherwise."""

GREY = (SIDE, SIDE)

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
        raise UserError(f"observations of {_shown(space)} have no numbers that a policy could see")
    if isinstance(space, gym.spaces.Dict):
        name = _entry(space, key)
        if name is not None:
            return EntryObserver(name, observer_for(space[name], size=size, grayscale=grayscale))
    elif key != "auto":
        raise UserError(
            f"env.observation_key = {key}: observations are {_shown(space)}, no Dict; leave it auto"
        )
    if isinstance(space, gym.spaces.Box):
        layout = _layout(space)
        if layout is not None and grayscale and layout.colours and layout.side < SMALLEST_SIDE:
            # One grey level of a cell would mix the codes that it holds.
            return VectorObserver(space.shape, 1 / layout.high)
        if layout is not None:
            if not grayscale and not layout.colours:
                raise UserError(
                    f"env.grayscale = false: {_shown(space)} has no colours; leave it true"
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
        f"cannot use observations of {_shown(space)}: expected a picture (H, W), (H, W, 1), "
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
    shown = f"{height}x{width} pixels, {'in colours' if colours else 'grey'}"
    return f"pictures of shape {space.shape} as {shown} (env.image_size, env.grayscale)"


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
        f"cannot choose among the pictures {', '.join(map(str, pictures))} of {_shown(space)}; "
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
            raise ValueError(f"{observation} is not in {_shown(space)}")
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
        raise ValueError(f"{choices} is not in {_shown(space)}")
    vector = np.zeros(counts.sum(), np.float32)
    vector[np.cumsum(counts) - counts + indices.astype(int)] = 1.0
    return vector


def _finite(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    if not np.isfinite(vector).all():
        raise NotFinite(f"the environment gave an observation that is not finite: {vector}")
    return vector


def _shown(space: gym.Space[Any]) -> str:
    return " ".join(repr(space).split())
