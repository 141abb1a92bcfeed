"""A policy as a file for other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.errors import UserError
from rtagent.evaluation import export as exporting
from rtagent.evaluation.export import FORMATS, export

SEEN = spaces.Box(-1.0, 1.0, (1, 4), np.float32)


class Excluding(nn.Module):
    """The logits of three actions, of which the second is never taken."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, observations: Tensor) -> Tensor:
        excluded = torch.tensor([False, True, False])
        return self.layer(observations.flatten(1)).masked_fill(excluded, -torch.inf)


@pytest.mark.parametrize("suffix", list(FORMATS))
def test_a_policy_that_excludes_actions_is_written(tmp_path: Path, suffix: str) -> None:
    """As it may by a logit of -inf while it learns and acts."""
    assert export(Excluding().eval(), SEEN, tmp_path / f"policy{suffix}", {}) < 1e-4


def test_a_full_disk_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = exporting._write_torch
    full = Path("/dev/full")
    monkeypatch.setattr(exporting, "_write_torch", lambda *given: write(*given[:2], full, given[3]))
    path = tmp_path / "policy.pt2"
    with pytest.raises(UserError, match=f"^--out {path}: No space left on device$"):
        export(Excluding().eval(), SEEN, path, {})
    assert not list(tmp_path.iterdir())


def test_a_file_that_excludes_another_action_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Excluding().eval()
    monkeypatch.setattr(exporting, "_ask_torch", lambda path, seen: policy(seen).roll(1, dims=1))
    with pytest.raises(UserError, match="answers something else, by up to inf"):
        export(policy, SEEN, tmp_path / "policy.pt2", {})
    assert not list(tmp_path.iterdir())
