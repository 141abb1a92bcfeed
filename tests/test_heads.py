"""Heads: the dueling equation, distributions and their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.heads import PLAIN, Dueling, Head, Support, expected_values
from rtagent.networks import build, describe, head_of

ACTIONS = spaces.Discrete(6)
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)
SUPPORT = Support(11, -2.0, 3.0)


def test_the_head_follows_the_algorithm() -> None:
    assert head_of(LearningConfig()) == PLAIN
    # What C51 alone uses must not tell two plain networks apart.
    assert head_of(LearningConfig(algorithm="double-dqn", atoms=7, v_min=-1.0)) == PLAIN
    assert head_of(LearningConfig(dueling=True)) == Head(dueling=True)
    c51 = LearningConfig(algorithm="c51", atoms=11, v_min=-2.0, v_max=3.0)
    assert head_of(c51) == Head(support=SUPPORT)


def test_the_support_is_even() -> None:
    np.testing.assert_allclose(SUPPORT.values().numpy(), np.arange(-2.0, 3.01, 0.5), atol=1e-6)


@pytest.mark.parametrize("width", [1, 5])
def test_dueling_is_the_equation(width: int) -> None:
    torch.manual_seed(width)
    layer, features = Dueling(8, 3, width), torch.randn(4, 16)
    with torch.no_grad():
        found = layer(features).view(4, 3, width)
        for i in range(4):
            state = layer.state(features[i, :8])
            advantages = layer.advantages(features[i, 8:]).view(3, width)
            for action in range(3):
                for atom in range(width):
                    mean = sum(float(advantages[a, atom]) for a in range(3)) / 3
                    wanted = float(state[atom]) + float(advantages[action, atom]) - mean
                    assert float(found[i, action, atom]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("support", [None, SUPPORT])
@pytest.mark.parametrize(
    ("name", "space"), [("resnet", IMAGES), ("nature", IMAGES), ("mlp", VECTORS)]
)
def test_every_network_has_every_head(
    name: Any, space: spaces.Box, support: Support | None, dueling: bool
) -> None:
    head = Head(dueling, support)
    module = build(PolicyConfig(network=name), space, ACTIONS, head)
    with torch.no_grad():
        answer = module(torch.zeros(3, *space.shape, dtype=torch.float32))
    assert answer.shape == ((3, 6) if support is None else (3, 6, 11))
    assert head.output_shape(6) == answer.shape[1:]


def test_each_stream_has_a_hidden_layer_of_its_own() -> None:
    module = build(PolicyConfig(network="nature"), IMAGES, ACTIONS, Head(dueling=True))
    hidden, values = module.hidden, module.values
    assert isinstance(hidden, nn.Linear)
    assert isinstance(values, Dueling)
    nn.init.zeros_(values.state.weight)
    module(torch.ones(2, *IMAGES.shape)).square().sum().backward()
    assert hidden.weight.grad is not None
    assert not hidden.weight.grad[:512].any()
    assert hidden.weight.grad[512:].any()


def test_expected_values_are_means() -> None:
    masses = torch.tensor([[0.5, 0.0, 0.5], [0.0, 0.25, 0.75]])
    support = torch.tensor([-1.0, 0.0, 1.0])
    found = expected_values(masses.log(), support)
    np.testing.assert_allclose(found.numpy(), [0.0, 0.75], atol=1e-6)


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (PLAIN, "mlp k=3"),
        (Head(dueling=True), "mlp k=3, dueling"),
        (Head(support=SUPPORT), "mlp k=3, c51 of 11 atoms from -2 to 3"),
        (Head(True, SUPPORT), "mlp k=3, dueling, c51 of 11 atoms from -2 to 3"),
    ],
)
def test_a_head_is_part_of_the_networks_name(head: Head, wanted: str) -> None:
    assert describe(PolicyConfig(width=3), VECTORS, head) == wanted


def test_supports_that_differ_a_little_have_different_names() -> None:
    one, other = (Head(support=Support(51, -10.0, high)) for high in (10.0, 10.0000001))
    assert one.describe() != other.describe()
