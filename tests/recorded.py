"""What the tests of demonstrations share: small ones, drawn at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from rtagent.memory.ledger import TERMINATED
from rtagent.storage.demonstration_file import Demonstration

ENVIRONMENT = "Game-v0"
MEANINGS = ("NOOP", "LEFT", "RIGHT")


def demonstration(
    lengths: tuple[int, ...] = (7, 5), seed: int = 0, **changes: Any
) -> Demonstration:
    """Episodes of so many ticks, as of `make_blueprint`; all but the last end by themselves."""
    ticks = sum(lengths)
    rng = np.random.default_rng(seed)
    flags = np.zeros(ticks, np.uint8)
    flags[np.cumsum(lengths)[:-1] - 1] = TERMINATED
    columns: dict[str, Any] = {
        "environment": ENVIRONMENT,
        "frames": rng.integers(256, size=(ticks, 6, 5), dtype=np.uint8),
        "actions": rng.integers(3, size=ticks, dtype=np.int32),
        "rewards": rng.normal(size=ticks).astype(np.float32),
        "flags": flags,
        "episodes": np.repeat(np.arange(len(lengths)), lengths),
        "action_meanings": MEANINGS,
    }
    return Demonstration(**{**columns, **changes})
