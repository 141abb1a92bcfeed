"""What a simulator reports of the car, checked and decoded: the client's side."""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass
from math import cos, radians, sin

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from rtagent.env.donkey.protocol import Message, ProtocolError, number

NO_HIT = "none"
MOST_PIXELS = 1 << 24
"""A larger picture is refused before it is decoded."""

Picture = NDArray[np.uint8]


@dataclass(frozen=True)
class Telemetry:
    """One frame.

    Attributes:
        picture: uint8 RGB, of the size asked for.
        resized: the simulator sent another size.
        cte: cross-track error; none: the simulator does not say.
        speed: along whatever direction.
        forward_velocity: along the car's heading; negative in reverse. Without velocities it is
            the speed.
        hit: what the car has run into, or "none".
        info: the other figures, by the names that users know.
    """

    picture: Picture
    resized: bool
    cte: float | None
    speed: float
    forward_velocity: float
    hit: str
    info: dict[str, object]


def read(message: Message, shape: tuple[int, int, int]) -> Telemetry:
    """Check and decode a `telemetry` message.

    Args:
        message: as it arrived.
        shape: of the picture wanted: height, width, 3.

    Raises:
        ProtocolError: a number is missing or not finite, or the picture cannot be read.
    """
    speed = number(message, "speed")
    cte = number(message, "cte") if "cte" in message else None
    picture, resized = _picture(message.get("image"), shape)
    accel, gyro, position, velocity = (
        tuple(number(message, f"{name}_{axis}", 0.0) for axis in "xyz")
        for name in ("accel", "gyro", "pos", "vel")
    )
    pitch, yaw, roll = (number(message, key, 0.0) for key in ("pitch", "yaw", "roll"))
    forward = speed
    if "vel_x" in message and "vel_z" in message:
        # The heading lies in the plane of the road; slopes are gentle.
        forward = velocity[0] * sin(radians(yaw)) + velocity[2] * cos(radians(yaw))
    hit = message.get("hit", NO_HIT)
    info: dict[str, object] = {
        "pos": position, "vel": velocity, "accel": accel, "gyro": gyro, "car": (roll, pitch, yaw),
        "cte": cte, "speed": speed, "forward_vel": forward,
        "hit": hit if isinstance(hit, str) else str(hit),
        "time": number(message, "time", 0.0),
        "active_node": int(number(message, "activeNode", 0.0)),
        "total_nodes": int(number(message, "totalNodes", 0.0)),
    }
    if "imageb" in message:
        info["image_b"] = _picture(message["imageb"], None)[0]
    return Telemetry(picture, resized, cte, speed, forward, str(info["hit"]), info)


def _picture(text: object, shape: tuple[int, int, int] | None) -> tuple[Picture, bool]:
    """A picture from base64, and whether it had to be brought to the wanted shape."""
    if not isinstance(text, str):
        raise ProtocolError("telemetry without a picture")
    try:
        with Image.open(io.BytesIO(base64.b64decode(text, validate=True))) as image:
            if image.width * image.height > MOST_PIXELS:
                raise ProtocolError(f"a picture of {image.width} x {image.height}")
            picture = np.asarray(image.convert("RGB"))
    except (
        binascii.Error, UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError,
        SyntaxError,  # Pillow's own, for a broken PNG
    ) as error:
        raise ProtocolError(f"a picture that cannot be read: {error}") from None
    if shape is None or picture.shape == shape:
        return picture, False
    resized = cv2.resize(picture, (shape[1], shape[0]), interpolation=cv2.INTER_AREA)
    return np.asarray(resized, np.uint8), True
