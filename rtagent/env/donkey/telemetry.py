"""The client's side of telemetry: checks and decodes what a simulator reports of the car.

A simulator may be anybody's program. Pillow reads more than forty kinds of files, some of them by
starting other programs; this module lets it read three. A picture's size, and the number of passes
in which it is coded, are checked before it is decoded, so that one message costs a bounded time.
"""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass
from math import cos, radians, sin

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rtagent.env.donkey.protocol import LONGEST_FROM_SIMULATOR, Message, ProtocolError, number

NO_HIT = "none"
FORMATS = ("JPEG", "PNG", "TGA")
MOST_TIMES_LARGER = 4
"""Most pixels of a picture, as a multiple of those asked for."""
USUAL_PIXELS = 160 * 120
MOST_BYTES_PER_PIXEL = 4
"""Most bytes of a picture's file for each pixel that it may have, beside its header."""
HEADER_BYTES = 1 << 16
MOST_SCANS = 64
"""Most scans of a JPEG: each takes a few bytes, and as much time as the whole picture."""
LARGEST_NUMBER = 1e9
LONGEST_HIT = 200

_START_OF_SCAN = b"\xff\xda"

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Telemetry:
    """One frame.

    Attributes:
        picture: uint8 RGB, of the size asked for.
        resized: whether the simulator sent another size.
        cte: cross-track error. If None, the simulator does not report it.
        speed: absolute speed.
        forward_velocity: velocity along the car's heading, negative in reverse; the speed, where
            the simulator reports no velocities.
        hit: what the car has run into, or "none".
        info: all figures, by the names of the public client.
    """

    picture: Picture
    resized: bool
    cte: float | None
    speed: float
    forward_velocity: float
    hit: str
    info: dict[str, object]


def read(message: Message, shape: tuple[int, int, int]) -> Telemetry:
    """Check and decode a `telemetry` message, with a picture of `shape`, (height, width, 3).

    Raises:
        ProtocolError: a number is missing, not finite or too large for any car, or the picture
            cannot be read or is much larger than the one asked for.
    """
    speed = _figure(message, "speed")
    cte = _figure(message, "cte") if "cte" in message else None
    picture = _picture(message.get("image"), shape)
    resized = picture.shape != shape
    accel, gyro, position, velocity = (
        tuple(_figure(message, f"{name}_{axis}", 0.0) for axis in "xyz")
        for name in ("accel", "gyro", "pos", "vel")
    )
    pitch, yaw, roll = (_figure(message, key, 0.0) for key in ("pitch", "yaw", "roll"))
    forward = speed
    if "vel_x" in message and "vel_z" in message:
        # The heading lies in the plane of the road; slopes are gentle.
        forward = velocity[0] * sin(radians(yaw)) + velocity[2] * cos(radians(yaw))
    hit = str(message.get("hit", NO_HIT))[:LONGEST_HIT]
    info: dict[str, object] = {
        "pos": position, "vel": velocity, "accel": accel, "gyro": gyro, "car": (roll, pitch, yaw),
        "cte": cte, "speed": speed, "forward_vel": forward,
        "hit": hit, "time": _figure(message, "time", 0.0),
        "active_node": int(_figure(message, "activeNode", 0.0)),
        "total_nodes": int(_figure(message, "totalNodes", 0.0)),
    }
    if "imageb" in message:
        info["image_b"] = _picture(message["imageb"], shape)
    if resized:
        size = (shape[1], shape[0])
        picture = np.asarray(cv2.resize(picture, size, interpolation=cv2.INTER_AREA), np.uint8)
    return Telemetry(picture, resized, cte, speed, forward, hit, info)


def longest_message(shape: tuple[int, int, int]) -> int:
    """Bytes of a message with two pictures of the largest permitted size, if asked for `shape`."""
    return min(2 * _most_letters(shape) + HEADER_BYTES, LONGEST_FROM_SIMULATOR)


def _figure(message: Message, key: str, default: float | None = None) -> float:
    """A number so small that sums and products of such numbers are finite."""
    value = number(message, key, default)
    if abs(value) > LARGEST_NUMBER:
        raise ProtocolError(f"{key} = {value:g}: at most {LARGEST_NUMBER:g}")
    return value


def _picture(text: object, shape: tuple[int, int, int]) -> Picture:
    """Decode a picture from base64, where one of `shape` was asked for."""
    if not isinstance(text, str):
        raise ProtocolError("telemetry without a picture")
    if len(text) > _most_letters(shape):
        raise ProtocolError(f"a picture of {len(text)} letters for {shape[1]} x {shape[0]} pixels")
    # With a broken file, decoders written in Python may raise any exception, and warn.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _decoded(base64.b64decode(text, validate=True), _most_pixels(shape))
    except ProtocolError:
        raise
    except Exception as error:
        raise ProtocolError(f"a picture that cannot be read: {error}") from None


def _most_pixels(shape: tuple[int, int, int]) -> int:
    # A simulator may begin with its own size, whatever was asked for.
    return MOST_TIMES_LARGER * max(shape[0] * shape[1], USUAL_PIXELS)


def _most_letters(shape: tuple[int, int, int]) -> int:
    """Most letters of a picture in base64, in which three bytes take four letters."""
    return (HEADER_BYTES + MOST_BYTES_PER_PIXEL * _most_pixels(shape)) * 4 // 3 + 4


def _decoded(data: bytes, most_pixels: int) -> Picture:
    with Image.open(io.BytesIO(data), formats=FORMATS) as image:
        if image.format not in FORMATS:
            raise ProtocolError(f"a picture in the format {image.format}")
        if image.width * image.height > most_pixels:
            raise ProtocolError(f"a picture of {image.width} x {image.height}")
        if image.format == "JPEG" and data.count(_START_OF_SCAN) > MOST_SCANS:
            raise ProtocolError("a picture coded in too many passes")
        return np.asarray(image.convert("RGB"))
