"""Acting in virtual time: what the live driver deposits, and by which weights."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from rtagent.staggering.arbiter import Source
from rtagent.virtual.acting import VirtualDriver
from tests.virtual.pole import pole


class Chunks(nn.Module):
    """Answers with the actions of eight ticks."""

    def __init__(self, *spaces: object) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(8, 2))

    def forward(self, observations: Tensor) -> Tensor:
        return self.bias.expand(len(observations), -1, -1)


class Steers(nn.Module):
    """Answers with the torque of eight ticks: a number of the newest frame."""

    def __init__(self, *spaces: object) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, observations: Tensor) -> Tensor:
        torque = observations[:, -1, :1] + self.bias
        return torque[:, None].expand(-1, 8, -1)


def test_a_chunk_covers_the_ticks_of_the_next_inference() -> None:
    chunks = f"policy.factory={__name__}:Chunks"
    alone = pole(chunks, "inference.processes=1", "learning.processes=0", seconds=4.0)
    found = alone.rows[alone.rows["time_ns"] > 1e9]
    # An inference takes four and a half ticks.
    assert (found["source"] == Source.AGENT).all()
    assert set(found["position"].tolist()) >= {0, 1, 2, 3}


def test_what_several_promise_for_a_tick_is_merged_as_policy_chunk_says() -> None:
    steers = "env.id=Pendulum-v1", f"policy.factory={__name__}:Steers"
    newest, ensemble = (
        pole(
            *steers, f"policy.chunk={chunk}", "inference.processes=3", "learning.processes=0",
            seconds=1.0,
        ).rows["action"]
        for chunk in ("newest", "ensemble")
    )
    assert (newest != ensemble).any()


def test_the_ledger_names_the_weights_that_an_action_was_computed_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: dict[int, int] = {}
    begin = VirtualDriver.begin

    def noting(driver: VirtualDriver, frame: int) -> float:
        seconds = begin(driver, frame)
        used[frame] = driver._published.version
        return seconds

    monkeypatch.setattr(VirtualDriver, "begin", noting)
    often = "learning.publish_every=1"
    found = pole("inference.processes=5", "learning.processes=1", often, seconds=4.0)
    acted = found.rows[found.rows["source"] == Source.AGENT]
    assert len(set(acted["weights_version"].tolist())) > 50
    # Not by weights that other processes have taken over meanwhile.
    assert acted["weights_version"].tolist() == [used[each] for each in acted["observed"].tolist()]
