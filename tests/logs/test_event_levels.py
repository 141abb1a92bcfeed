"""How bad it is what an event tells."""

from __future__ import annotations

import logging

from rtagent.logs.event_levels import level_name, level_of

KINDS = ("failed", "died", "started", "anything")


def test_levels() -> None:
    levels = [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO]
    assert [level_of(kind) for kind in KINDS] == levels
    assert [level_name(kind) for kind in KINDS] == ["error", "warning", "info", "info"]
