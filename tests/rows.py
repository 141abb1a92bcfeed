"""Rings of a test's own, and rows as the environment process writes them."""

from __future__ import annotations

from typing import Any

from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import FrameRing
from rtagent.memory.ledger import Ledger
from rtagent.staggering.arbiter import Source


def private_rings(blueprint: Blueprint, capacity: int) -> tuple[FrameRing, Ledger]:
    """An empty frame ring and ledger."""
    return FrameRing.private(blueprint, capacity), Ledger.private(blueprint, capacity)


def write_row(ledger: Ledger, tick: int, **values: Any) -> None:
    """Write a row; what is not given does not matter."""
    usual = {
        "observed": tick - 1, "time_ns": tick, "registered_ns": 0, "lateness_ns": 0, "reward": 0.0,
        "weights_version": 0, "episode": 0, "worker": 0, "source": Source.AGENT, "flags": 0,
        "action": 0,
    }
    ledger.write(tick, **{**usual, **values})
