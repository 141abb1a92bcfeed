"""The kinds of events, and their log levels."""

from __future__ import annotations

import logging

KIND_PATTERN = "[a-z0-9_-]{1,40}"
"""Matches every name that a kind of events can have."""

GRAVE = frozenset({
    "failed", "checkpoint_failed", "checkpoint_corrupt", "run_record_failed", "out_of_memory",
    "memory", "memory_budget_exceeded", "recording_failed", "events_not_kept", "internal_error",
    "replay_failed",
})
NOTABLE = frozenset({
    "died", "slip", "update_skipped", "environment_fault", "paused", "not_understood",
    "engine_unusable", "engine_refused", "engine_failed", "placement_failed",
    "cuda_graph_refused",
    "remote_lost", "rollout_lost", "replay_damaged", "cluster_unreached", "memory_pressure",
})


def level_of(kind: str) -> int:
    """The level of the logging module for a kind of event."""
    if kind in GRAVE:
        return logging.ERROR
    return logging.WARNING if kind in NOTABLE else logging.INFO


def level_name(kind: str) -> str:
    """The same in a word: error, warning or info."""
    return logging.getLevelName(level_of(kind)).lower()
