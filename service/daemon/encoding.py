"""How figures and pictures become bytes."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Picture = npt.NDArray[np.uint8]

SCREEN_SIZE = 336
"""A picture is enlarged until its longer side would exceed this: four times a frame of 84."""


def json_bytes(value: Any) -> bytes:
    """Compact JSON. A number that JSON cannot express (NaN, infinity) is unknown: null."""
    try:
        return _dump(value)
    except ValueError:
        return _dump(_finite(value))


def png_bytes(picture: Picture) -> bytes:
    """A picture as PNG, enlarged by a whole factor so that every pixel stays a square.

    Args:
        picture: (height, width) grey or (height, width, 3) RGB.
    """
    factor = max(1, SCREEN_SIZE // max(picture.shape[:2]))
    enlarged = np.repeat(np.repeat(picture, factor, axis=0), factor, axis=1)
    out = io.BytesIO()
    # Level 1: a tenth of the time of the default, and the repeated pixels compress anyhow.
    Image.fromarray(np.ascontiguousarray(enlarged)).save(out, "PNG", compress_level=1)
    return out.getvalue()


def _dump(value: Any) -> bytes:
    return json.dumps(
        value, allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=_plain
    ).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    """A numpy scalar or array as plain Python values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return _finite(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value
