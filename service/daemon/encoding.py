"""Figures as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def json_bytes(value: Any) -> bytes:
    """Compact JSON. Numbers that JSON cannot express (NaN, infinity) become null."""
    try:
        return _dump(value)
    except ValueError:
        return _dump(_finite(value))


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
