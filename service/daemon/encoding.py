"""Figures as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic_core import PydanticSerializationError, to_json


def json_bytes(value: Any) -> bytes:
    """Compact JSON. Numbers that JSON cannot express (NaN, infinity) become null."""
    try:
        return to_json(value, inf_nan_mode="null", fallback=_plain)
    except PydanticSerializationError:
        # A text that is not UTF-8, such as the name of a file.
        text = json.dumps(value, ensure_ascii=False, default=_plain).encode("utf-8", "replace")
        return to_json(json.loads(text), inf_nan_mode="null")


def _plain(value: Any) -> Any:
    """A numpy scalar or array as plain Python values."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value)
