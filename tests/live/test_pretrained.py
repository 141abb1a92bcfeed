"""A finished policy and a whole daemon: it acts, unexplored, and nothing learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from rtagent.errors import UserError
from rtagent.memory.ledger import Rows
from rtagent.staggering.arbiter import Source
from tests.conftest import Runtimes, eventually

pytestmark = pytest.mark.process


class Halves(nn.Module):
    """(B, 1, 3) to a chunk of (B, 2, 1): half of what is seen, and its negative."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        half = observation[:, 0, :1] / 2.0
        return torch.stack([half, -half], 1)


def test_a_program_acts(run: Runtimes, tmp_path: Path) -> None:
    path = tmp_path / "halves.pt2"
    torch.export.save(torch.export.export(Halves(), (torch.zeros(1, 1, 3),)), path)
    with run(
        "env.id=Pendulum-v1", "env.rate_hz=50", f"policy.pretrained={path}",
        "inference.processes=1",
    ) as runtime:
        ledger, frames = runtime.world.ledger, runtime.world.frames

        def executed() -> Rows:
            rows = ledger.read(ledger.newest - 29, ledger.newest + 1)
            return rows[rows["source"] == Source.AGENT]

        eventually(lambda: ledger.newest > 60 and len(executed()) > 20, "it acts")
        acted = executed()
        seen, _, whole = frames.read(acted["observed"])
        assert whole.all()
        wanted = np.abs(seen[:, 0]) / 2.0
        np.testing.assert_allclose(np.abs(acted["action"][:, 0]), wanted, rtol=1e-5)
        assert runtime.stats()["inference"]["workers"][0]["weights_version"] is None
        with pytest.raises(UserError, match=r"learning\.processes = 1"):
            runtime.set_learning(processes=1)
