"""A small world for runs in virtual time."""

from __future__ import annotations

from typing import Any

from rtagent.config_sources import load_config
from rtagent.virtual import VirtualRun, run

RATE_HZ = 50
POLE = (
    "env.id=CartPole-v1", f"env.rate_hz={RATE_HZ}", "learning.learning_starts=64",
    "learning.n_step=1", "learning.batch_size=8", "replay.capacity=4096",
)


def pole(*settings: str, seconds: float = 10.0, **times: Any) -> VirtualRun:
    """CartPole at 50 Hz; an inference takes 4.5 ticks, unless a setting changes that."""
    config = load_config(None, [*POLE, "inference.injected_latency_ms=90", *settings], {})
    return run(config, seconds=seconds, **{"update_s": 0.015, **times})
