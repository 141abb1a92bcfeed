"""Acting in virtual time: what the live driver deposits."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rtagent.staggering.arbiter import Source
from tests.virtual.pole import pole


class Chunks(nn.Module):
    """Answers with the actions of eight ticks."""

    def __init__(self, *spaces: object) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8, 2))

    def forward(self, observations: Tensor) -> Tensor:
        return self.bias.expand(len(observations), -1, -1)


def test_a_chunk_covers_the_ticks_of_the_next_inference() -> None:
    chunks = f"policy.factory={__name__}:Chunks"
    alone = pole(chunks, "inference.processes=1", "learning.processes=0", seconds=4.0)
    found = alone.rows[alone.rows["time_ns"] > 1e9]
    # An inference takes four and a half ticks.
    assert (found["source"] == Source.AGENT).all()
    assert set(found["position"].tolist()) >= {0, 1, 2, 3}
