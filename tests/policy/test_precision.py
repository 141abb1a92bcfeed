"""The precision in which a network acts; each call moves the clock by a given time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from rtagent.config import PolicyConfig
from rtagent.policy.networks import build
from rtagent.policy.precision import ROUNDS, acting_precision, faster

PIXELS = Box(0, 255, (1, 84, 84), np.uint8)
BLANK = (torch.zeros(1, 1, 84, 84, dtype=torch.uint8),)


@pytest.mark.parametrize(
    ("full_s", "low_s", "chosen"),
    [
        ([9.0] + [1.0] * ROUNDS, [9.0] + [0.8] * ROUNDS, "bfloat16"),
        ([9.0] + [1.0] * ROUNDS, [0.1] + [0.95] * ROUNDS, "float32"),
        ([9.0, 1.0, 1.0, 1.0, 9.0, 9.0], [9.0, 0.1, 0.1, 2.0, 2.0, 2.0], "float32"),
    ],
    ids=["faster", "hardly faster, but for its first call", "the median counts"],
)
def test_a_lower_precision_must_be_worth_it(
    full_s: list[float], low_s: list[float], chosen: str
) -> None:
    time = 0.0
    left = {"full": iter(full_s), "low": iter(low_s)}

    def call(which: str) -> None:
        nonlocal time
        time += next(left[which])

    assert faster(lambda: call("full"), lambda: call("low"), lambda: time) == chosen


@pytest.mark.parametrize(
    ("network", "wanted", "device", "chosen"),
    [
        ("resnet", "float32", "cpu", "float32"), ("resnet", "bfloat16", "cpu", "bfloat16"),
        ("nature", "auto", "cpu", "float32"), ("nature", "bfloat16", "cpu", "bfloat16"),
        ("resnet", "auto", "cuda:1", "float32"), ("resnet", "bfloat16", "cuda", "bfloat16"),
    ],
)
def test_only_the_resnet_is_measured_and_only_for_the_processor(
    network: Any, wanted: Any, device: str, chosen: str
) -> None:
    policy = PolicyConfig(network=network, precision=wanted, device=device)

    def now() -> float:
        raise AssertionError("measured")

    assert acting_precision(policy, build(policy, PIXELS, Discrete(3)), BLANK, now) == chosen


@pytest.mark.parametrize("slow", ["float32", "bfloat16"])
def test_the_resnet_takes_what_is_faster(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    policy = PolicyConfig(network="resnet")
    network, time = build(policy, PIXELS, Discrete(3)), 0.0
    plain = type(network).forward

    def forward(self: Any, observations: torch.Tensor) -> torch.Tensor:
        nonlocal time
        dtype = next(self.parameters()).dtype
        time += 2.0 if dtype == getattr(torch, slow) else 1.0
        return plain(self, observations)

    monkeypatch.setattr(type(network), "forward", forward)
    other = "bfloat16" if slow == "float32" else "float32"
    assert acting_precision(policy, network, BLANK, lambda: time) == other
    assert next(network.parameters()).dtype == torch.float32
