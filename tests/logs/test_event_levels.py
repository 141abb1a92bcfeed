"""How bad it is what an event tells."""

from __future__ import annotations

import logging

import pytest

from rtagent.logs.event_levels import level_name, level_of


@pytest.mark.parametrize(("kind", "level"), [
    ("failed", "error"), ("died", "warning"), ("started", "info"), ("anything", "info"),
    # A replay that is lost, one that is damaged, and one that is saved.
    ("replay_failed", "error"), ("replay_damaged", "warning"), ("replay", "info"),
    # The replay is halved; nothing is learned.
    ("memory_pressure", "warning"), ("cluster_unreached", "warning"),
])
def test_levels(kind: str, level: str) -> None:
    assert level_name(kind) == level
    assert level_of(kind) == getattr(logging, level.upper())
