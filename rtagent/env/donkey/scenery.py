"""A track's map seen from above: grass, asphalt, white edges, a dashed yellow centre line."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from rtagent.env.donkey.track import BARRIER, HALF_WIDTH, SPACING, Track

PIXELS_PER_UNIT = 8.0
MARGIN = BARRIER + 12.0
"""Distance from the centre line that the map covers at least; everything beyond is grass."""
EDGE_WIDTH = 0.35
DASH = 3.0
"""Length of a dash of the centre line, and of the gap after it."""

STYLES = (
    ((104, 148, 76), (70, 70, 74)),
    ((176, 152, 106), (78, 78, 84)),
    ((58, 92, 64), (132, 128, 122)),
    ((140, 146, 76), (64, 66, 74)),
    ((168, 170, 172), (84, 80, 78)),
)
"""Colours (RGB) of the ground and of the road; `road_style` of `regen_road` is an index of these.

Ground and road also differ in brightness, for an agent sees grey levels.
"""

_WHITE, _YELLOW, _RED = (232, 232, 228), (226, 186, 40), (190, 44, 38)
_BITS = 4
"""Bits of a pixel's fractions in the coordinates given to OpenCV."""

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Scenery:
    """A map of the ground.

    Attributes:
        ground: uint8 RGB; row and column grow with z and x.
        left: x of the first column's middle.
        bottom: z of the first row's middle.
        grass: the mean colour of the ground.
    """

    ground: Picture
    left: float
    bottom: float
    grass: tuple[float, float, float]


def draw(track: Track, seed: int = 0, style: int = 0) -> Scenery:
    """Draw the ground of a track.

    Args:
        track: the road.
        seed: of the texture.
        style: index of `STYLES`, modulo their number.
    """
    random = np.random.default_rng(seed)
    grass, asphalt = STYLES[style % len(STYLES)]
    low, high = track.points.min(axis=0) - MARGIN, track.points.max(axis=0) + MARGIN
    width, height = (np.ceil((high - low) * PIXELS_PER_UNIT)).astype(int)
    ground = np.empty((height, width, 3), np.uint8)
    ground[:] = grass
    _line(ground, track, low, 0.0, 2 * HALF_WIDTH, asphalt)
    road = np.zeros((height, width), np.uint8)
    _line(road, track, low, 0.0, 2 * HALF_WIDTH, (255, 0, 0))
    for side in (-1.0, 1.0):
        _line(ground, track, low, side * (HALF_WIDTH - EDGE_WIDTH), EDGE_WIDTH, _WHITE)
        _line(ground, track, low, side * BARRIER, 0.8, _RED)
        _line(ground, track, low, side * BARRIER, 0.8, _WHITE, dashed=True)
    _line(ground, track, low, 0.0, EDGE_WIDTH, _YELLOW, dashed=True)
    _starting_line(ground, track, low)
    ground = _textured(ground, road, random)
    return Scenery(ground, float(low[0]), float(low[1]), (grass[0], grass[1], grass[2]))


def _beside(track: Track, offset: float) -> NDArray[np.float64]:
    """The centre line, moved to the right."""
    ahead = np.roll(track.points, -1, axis=0) - np.roll(track.points, 1, axis=0)
    ahead /= np.hypot(ahead[:, :1], ahead[:, 1:])
    right = np.stack([ahead[:, 1], -ahead[:, 0]], axis=1)
    return np.asarray(track.points + offset * right)


def _pixels(points: NDArray[np.float64], low: NDArray[np.float64]) -> NDArray[np.int32]:
    scale = PIXELS_PER_UNIT * 2**_BITS
    return np.asarray(np.round((points - low) * scale), np.int32)


def _line(
    ground: Picture, track: Track, low: NDArray[np.float64], offset: float, width: float,
    colour: tuple[int, int, int], *, dashed: bool = False,
) -> None:
    points = _pixels(_beside(track, offset), low)
    each = round(DASH / SPACING)
    dashes = [points[i : i + each + 1] for i in range(0, len(points) - 2 * each, 2 * each)]
    _draw(ground, dashes if dashed else [points], not dashed, width, colour)


def _starting_line(ground: Picture, track: Track, low: NDArray[np.float64]) -> None:
    ends = [_beside(track, side * (HALF_WIDTH - 1.0))[0] for side in (-1.0, 1.0)]
    _draw(ground, [_pixels(np.array(ends), low)], False, 0.8, _WHITE)


def _draw(
    ground: Picture, lines: list[NDArray[np.int32]], closed: bool, width: float,
    colour: tuple[int, int, int],
) -> None:
    thick = round(width * PIXELS_PER_UNIT)
    cv2.polylines(ground, lines, closed, colour, thick, cv2.LINE_8, _BITS)


def _textured(ground: Picture, road: Picture, random: np.random.Generator) -> Picture:
    """Add brighter and darker spots: patches and tufts in the grass, a finer grain on the road."""
    height, width = road.shape
    patches = np.zeros((height, width), np.float32)
    for cell, strength in ((96, 12.0), (24, 9.0), (6, 9.0)):
        shape = (height // cell + 2, width // cell + 2)
        coarse = strength * random.standard_normal(shape, np.float32)
        patches += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
    patches *= np.float32(1.0) - np.float32(0.65 / 255) * road
    patches += 5.0 * random.standard_normal((height, width), np.float32)
    levels = patches.astype(np.int16)
    return np.asarray(cv2.add(ground, cv2.merge([levels] * 3), dtype=cv2.CV_8U), np.uint8)
