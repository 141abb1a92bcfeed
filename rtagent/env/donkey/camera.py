"""The camera on the car: a perspective picture of the road ahead, with haze and noise.

For each pixel, the point of the ground that it shows is computed once, in the car's coordinates.
A picture then takes a rotation of these points and one look-up in the map of the ground; the sky
is cut out of a panorama.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import cos, degrees, radians, sin
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rtagent.env.donkey.protocol import ProtocolError, number, shown
from rtagent.env.donkey.scenery import PIXELS_PER_UNIT, Scenery

HEIGHT = 2.0
"""The camera's height above the ground, in the simulator's units."""
FORWARD = 0.5
"""The distance from the middle of the car to the camera."""
PITCH_DEG = 14.0
"""The angle by which the camera looks down."""
FIELD_OF_VIEW_DEG = 70.0
"""The angle between the picture's upper and lower edges, as in Unity."""
FURTHEST = 90.0
"""Ground at a greater distance is haze."""
NOISE = 3.0
"""Standard deviation of the noise, in grey levels."""

ENCODINGS = ("JPG", "PNG", "TGA")
SMALLEST_SIDE, LARGEST_SIDE = 8, 1280
MOST_PIXELS = 1280 * 960
LEAST_FOV = 1.0

_HAZE = np.array([196.0, 206.0, 216.0], np.float32)
_ZENITH = np.array([96.0, 150.0, 214.0], np.float32)
_HILLS = np.array([104.0, 122.0, 132.0], np.float32)
_PANORAMA_WIDTH = 1024
_SKY_ROWS = 256
"""Rows of the panorama, from the horizon to the zenith."""
_NOISE_PICTURES = 8
_NOISE_PIXELS = 1 << 19
"""Most pixels of all noise pictures together; there is at least one picture."""

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class CameraConfig:
    """The fields of `cam_config`; 0 means the simulator's own value.

    Attributes:
        img_w, img_h: size of the picture.
        img_d: 3: colour, 1: grey.
        img_enc: JPG, PNG or TGA.
        fov: vertical field of view, degrees; 1 to 170, or 0.
        fish_eye_x, fish_eye_y: barrel distortion.
        offset_x, offset_y, offset_z: moves the camera right, up, forward.
        rot_x, rot_y, rot_z: turns it down, right, and round its axis; degrees.
    """

    img_w: int = 160
    img_h: int = 120
    img_d: int = 3
    img_enc: str = "JPG"
    fov: float = 0.0
    fish_eye_x: float = 0.0
    fish_eye_y: float = 0.0
    offset_x: float = 0.0
    offset_y: float = 0.0
    offset_z: float = 0.0
    rot_x: float = 0.0
    rot_y: float = 0.0
    rot_z: float = 0.0

    def __post_init__(self) -> None:
        """Raise a ProtocolError that names the field if a value cannot be rendered."""
        sides = (self.img_w, self.img_h)
        legal = all(isinstance(n, int) and SMALLEST_SIDE <= n <= LARGEST_SIDE for n in sides)
        if not legal or self.pixels > MOST_PIXELS:
            raise ProtocolError(f"img_w, img_h = {self.img_w}, {self.img_h}: 8 x 8 to 1280 x 960")
        if self.img_d not in (1, 3):
            raise ProtocolError(f"img_d = {self.img_d}: 1 or 3")
        if self.img_enc not in ENCODINGS:
            raise ProtocolError(f"img_enc = {shown(self.img_enc)}: one of {', '.join(ENCODINGS)}")
        if self.fov and not LEAST_FOV <= self.fov <= 170.0:
            raise ProtocolError(f"fov = {self.fov}: {LEAST_FOV:g} to 170, or 0")
        for field in fields(self)[5:]:  # Those after fov.
            value, most = getattr(self, field.name), 360 if field.name.startswith("rot") else 100
            if not abs(value) <= most:
                raise ProtocolError(f"{field.name} = {value}: at most {most}")

    @property
    def pixels(self) -> int:
        """Pixels of a picture."""
        return self.img_w * self.img_h

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> CameraConfig:
        """Read a `cam_config`; a field that is missing or 0 keeps its default."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            default = getattr(cls, field.name)
            if isinstance(default, str):
                value = message.get(field.name) or default
                if not isinstance(value, str):
                    raise ProtocolError(f"{field.name} = {shown(value)}: a string")
                values[field.name] = value.upper()
            else:
                asked = number(message, field.name, 0.0)
                values[field.name] = type(default)(asked) or default
        return cls(**values)


class Camera:
    """Renders pictures of a scenery; the seed is that of noise and hills."""

    def __init__(self, config: CameraConfig, scenery: Scenery, seed: int = 0) -> None:
        self.config = config
        self._scenery = scenery
        self._random = np.random.default_rng(seed)
        right, down, ahead = _rays(config)
        height = max(HEIGHT + config.offset_y, 0.05)
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(down > 0.0, height / down, np.inf)
        far = reach * np.hypot(right, ahead)
        seen = far < FURTHEST
        rows = np.flatnonzero(seen.any(axis=1))
        self._rows = slice(rows[0], rows[-1] + 1) if len(rows) else slice(0, 0)
        self._right, self._ahead = (
            np.where(seen, reach * side + offset, 0.0)[self._rows].astype(np.float32)
            for side, offset in ((right, config.offset_x), (ahead, FORWARD + config.offset_z))
        )
        clear = np.where(seen, 1.0 - (np.minimum(far, FURTHEST) / FURTHEST) ** 1.5, 0.0)
        clear = clear[self._rows, :, None]
        self._clear = (clear * 256).astype(np.uint16)
        self._haze = ((1.0 - clear) * _HAZE * 256).astype(np.uint16)
        self._panorama = _panorama(seed)
        self._sky_columns, self._sky_rows = (
            at[: rows[-1] + 1 if len(rows) else None] for at in _sky_at(right, down, ahead)
        )
        self._above = ~seen[: len(self._sky_rows)]
        self._last_sky_row = int(np.flatnonzero(self._above.any(axis=1)).max(initial=-1)) + 1
        self._noise = _noise(config, self._random)

    def render(self, x: float, z: float, yaw: float) -> Picture:
        """The picture of a car's camera, by the car's middle and heading.

        Returns:
            uint8 RGB (img_h, img_w, 3), or grey (img_h, img_w).
        """
        config, sin_yaw, cos_yaw = self.config, np.float32(sin(yaw)), np.float32(cos(yaw))
        picture = np.empty((config.img_h, config.img_w, 3), np.uint8)
        last = self._last_sky_row
        shift = round(degrees(yaw) / 360.0 * _PANORAMA_WIDTH)
        columns = (self._sky_columns[:last] + shift) % _PANORAMA_WIDTH
        picture[:last] = self._panorama[self._sky_rows[:last], columns]
        scale, scenery = np.float32(PIXELS_PER_UNIT), self._scenery
        column = (self._right * cos_yaw + self._ahead * sin_yaw) * scale
        column += np.float32((x - scenery.left) * PIXELS_PER_UNIT)
        row = (self._ahead * cos_yaw - self._right * sin_yaw) * scale
        row += np.float32((z - scenery.bottom) * PIXELS_PER_UNIT)
        if column.size:
            ground: Any = cv2.remap(
                scenery.ground, column, row, cv2.INTER_LINEAR,
                borderMode=cv2.BORDER_CONSTANT, borderValue=scenery.grass,
            )
            hazy = ((ground * self._clear + self._haze) >> 8).astype(np.uint8)
            target = picture[self._rows]
            overlap = max(last - self._rows.start, 0)
            above = self._above[self._rows.start : last]
            target[:overlap] = np.where(above[..., None], target[:overlap], hazy[:overlap])
            target[overlap:] = hazy[overlap:]
        brighter, darker = self._noise[int(self._random.integers(len(self._noise)))]
        cv2.subtract(cv2.add(picture, brighter, dst=picture), darker, dst=picture)
        if config.img_d == 3:
            return picture
        return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)


def _rays(config: CameraConfig) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Direction of each pixel's line of sight, in the car's coordinates: right, down, ahead."""
    width, height = config.img_w, config.img_h
    half = np.tan(radians(config.fov or FIELD_OF_VIEW_DEG) / 2)
    across = (np.arange(width) + 0.5 - width / 2) / (height / 2) * half
    downward = (np.arange(height) + 0.5 - height / 2) / (height / 2) * half
    right, down = np.meshgrid(across, downward)
    from_middle = (right**2 + down**2) / half**2
    right = right * (1.0 + config.fish_eye_x * from_middle)
    down = down * (1.0 + config.fish_eye_y * from_middle)
    ahead = np.ones_like(right)
    roll, pitch, turn = (
        radians(angle) for angle in (config.rot_z, config.rot_x + PITCH_DEG, config.rot_y)
    )
    right, down = right * cos(roll) - down * sin(roll), right * sin(roll) + down * cos(roll)
    down, ahead = down * cos(pitch) + ahead * sin(pitch), ahead * cos(pitch) - down * sin(pitch)
    right, ahead = right * cos(turn) + ahead * sin(turn), ahead * cos(turn) - right * sin(turn)
    return right, down, ahead


@functools.lru_cache(maxsize=4)
def _panorama(seed: int) -> Picture:
    """The sky in all directions: hills on the horizon, haze above them, blue further up."""
    random = np.random.default_rng(seed)
    angle = np.linspace(0.0, 2 * np.pi, _PANORAMA_WIDTH, endpoint=False)
    waves = np.array([2, 3, 5, 9, 17, 31])
    heights = random.uniform(0.3, 1.0, len(waves)) / waves**0.7
    phases = random.uniform(0.0, 2 * np.pi, len(waves))
    ridge = (heights[:, None] * np.cos(np.outer(waves, angle) + phases[:, None])).sum(axis=0)
    hills = 9.0 + 6.0 * ridge / heights.sum()
    up = np.arange(_SKY_ROWS, dtype=np.float32)[:, None, None]
    blue = np.clip(up / 110.0, 0.0, 1.0) ** 0.7
    sky = np.broadcast_to(_HAZE + (_ZENITH - _HAZE) * blue, (_SKY_ROWS, _PANORAMA_WIDTH, 3))
    below = np.clip(hills[None, :, None] - up + 0.5, 0.0, 1.0)
    return np.asarray((sky + (_HILLS - sky) * below).astype(np.uint8))


def _sky_at(
    right: NDArray[Any], down: NDArray[Any], ahead: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The panorama's column (for a heading of 0) and row at which each pixel looks."""
    column = np.round(np.arctan2(right, ahead) / (2 * np.pi) * _PANORAMA_WIDTH)
    up = np.round(np.arctan2(-down, np.hypot(right, ahead)) / (np.pi / 2) * _SKY_ROWS)
    return column.astype(np.intp), np.clip(up, 0, _SKY_ROWS - 1).astype(np.intp)


def _noise(config: CameraConfig, random: np.random.Generator) -> list[tuple[Picture, Picture]]:
    """Pairs of noise pictures, one to be added, the other to be subtracted."""
    shape = (config.img_h, config.img_w, 3)
    noise = []
    for _ in range(min(max(_NOISE_PIXELS // config.pixels, 1), _NOISE_PICTURES)):
        levels = np.round(NOISE * random.standard_normal(shape, np.float32))
        noise.append((np.clip(levels, 0, 255).astype(np.uint8),
                      np.clip(-levels, 0, 255).astype(np.uint8)))
    return noise
