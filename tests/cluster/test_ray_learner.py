"""The thread of the learner's actor that learns, without Ray's processes."""

from __future__ import annotations

import errno
import io
import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from rtagent.cluster.ray_learner import EXIT_FAILED, LearnerActor
from rtagent.storage.checkpoint import CheckpointError


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Learner:
    """One that cannot write a checkpoint, and fails in its third step."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, timeout_s: float) -> None:
        self.steps += 1
        if self.steps == 3:
            raise RuntimeError

    def save_if_due(self, every_s: float) -> None:
        raise CheckpointError("no space")


def test_a_learner_whose_log_cannot_be_written_learns_on_and_ends_if_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It ended at a checkpoint that failed, and one that had failed answered and never learned.
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, Full())
    monkeypatch.setattr(os, "_exit", sys.exit)
    actor: Any = SimpleNamespace(_learner=Learner())
    with pytest.raises(SystemExit) as left:
        LearnerActor._learn(actor)
    assert (left.value.code, actor._learner.steps) == (EXIT_FAILED, 3)
