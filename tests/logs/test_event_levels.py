"""How bad it is what an event tells."""

from __future__ import annotations

import logging

from rtagent.logs.event_levels import level_name, level_of

KINDS = ("failed", "died", "started", "anything")
LOST_REPLAY = ("replay_failed", "replay_damaged", "replay")


def test_levels() -> None:
    levels = [logging.ERROR, logging.WARNING, logging.INFO, logging.INFO]
    assert [level_of(kind) for kind in KINDS] == levels
    assert [level_name(kind) for kind in KINDS] == ["error", "warning", "info", "info"]


def test_a_lost_replay_is_an_error_and_a_damaged_one_a_warning() -> None:
    assert [level_name(kind) for kind in LOST_REPLAY] == ["error", "warning", "info"]


def test_that_the_replay_is_halved_is_a_warning() -> None:
    assert level_name("memory_pressure") == "warning"


def test_that_nothing_is_learned_is_a_warning() -> None:
    assert level_name("cluster_unreached") == "warning"
