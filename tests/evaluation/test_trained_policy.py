"""A checkpoint's policy, in a process of a command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rtagent.evaluation.trained_policy import TrainedPolicy, configuration, load_checkpoint
from tests.trained import leave_checkpoint


def test_it_acts_on_one_thread(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """More of them wait for each other: on a busy machine most of the time."""
    before = torch.get_num_threads()
    request.addfinalizer(lambda: torch.set_num_threads(before))
    path, saved = load_checkpoint(leave_checkpoint(tmp_path, "env.id=CartPole-v1"))
    policy = TrainedPolicy(configuration(saved, path, None, ()), saved, path)
    torch.set_num_threads(2)
    policy.acting()
    assert torch.get_num_threads() == 1
