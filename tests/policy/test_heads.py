"""Heads: the dueling equation, distributions and their means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.heads import (
    PLAIN,
    ActionHead,
    Bounds,
    Dueling,
    GaussianHead,
    Head,
    PolicyHead,
    Support,
    Tanh,
    expected_values,
)
from rtagent.policy.networks import build, describe, head_of
from tests.refused import one_line

ACTIONS = spaces.Discrete(6)
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)
SUPPORT = Support(11, -2.0, 3.0)


def test_the_head_follows_the_algorithm() -> None:
    assert head_of(LearningConfig(), ACTIONS) == PLAIN
    # Settings of C51 must not make plain heads differ.
    assert head_of(LearningConfig(algorithm="double-dqn", atoms=7, v_min=-1.0), ACTIONS) == PLAIN
    assert head_of(LearningConfig(dueling=True), ACTIONS) == Head(dueling=True)
    c51 = LearningConfig(algorithm="c51", atoms=11, v_min=-2.0, v_max=3.0)
    assert head_of(c51, ACTIONS) == Head(support=SUPPORT)


BOX = spaces.Box(np.float32([-1.0, 0.0]), np.float32([1.0, 8.0]))


RANGE = (-1.0, 0.0), (1.0, 8.0)


@pytest.mark.parametrize(
    ("algorithm", "wanted", "name"),
    [
        ("auto", ActionHead(*RANGE), "td3"), ("td3", ActionHead(*RANGE), "td3"),
        ("ddpg", ActionHead(*RANGE, "ddpg", critics=1), "ddpg"),
        ("sac", GaussianHead(*RANGE), "sac"),
    ],
)
def test_continuous_actions_have_an_actor(algorithm: Any, wanted: ActionHead, name: str) -> None:
    head = head_of(LearningConfig(algorithm=algorithm), BOX)
    assert head == wanted
    assert describe(PolicyConfig(width=3), VECTORS, head) == f"mlp k=3, {name}"


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_a_policy_has_logits_that_begin_alike(algorithm: Any) -> None:
    head = head_of(LearningConfig(algorithm=algorithm), ACTIONS)
    assert head == PolicyHead(algorithm=algorithm)
    assert describe(PolicyConfig(), VECTORS, head) == f"mlp k=1, {algorithm}"
    acting = ActingPolicy(PolicyConfig(), VECTORS, ACTIONS, head)
    answer = acting.values(np.ones((1, 5), np.float32))
    assert answer.shape == (6,)
    assert np.abs(answer).max() < 0.1


def test_a_random_actor_says_means_and_deviations_and_acts_greedily_by_the_means() -> None:
    head = GaussianHead(*RANGE)
    assert head.output_shape(2) == (4,)
    acting = ActingPolicy(PolicyConfig(), VECTORS, BOX, head)
    observation = np.ones((1, 5), np.float32)
    answer, action = acting.values(observation), acting.greedy(observation)
    assert answer.shape == (4,)
    wanted = [np.tanh(answer[0]), 4.0 + 4.0 * np.tanh(answer[1])]
    np.testing.assert_allclose(action, wanted, rtol=1e-5)
    plain = ActingPolicy(PolicyConfig(), VECTORS, BOX, ActionHead(head.low, head.high))
    np.testing.assert_array_equal(plain.greedy(observation), plain.values(observation))


@pytest.mark.parametrize(
    ("settings", "space", "said"),
    [
        ({"algorithm": "dqn"}, BOX, r"'dqn' learns Discrete actions.*Box.*td3, ddpg or sac"),
        ({"algorithm": "c51"}, BOX, "'c51' learns Discrete actions"),
        ({"algorithm": "td3"}, ACTIONS, r"'td3' learns continuous actions.*Discrete\(6\)"),
        ({"algorithm": "ppo"}, BOX, "'ppo' learns Discrete actions"),
        ({"algorithm": "ppo", "dueling": True}, ACTIONS, "ppo learns no value for each action"),
        ({"algorithm": "sac"}, ACTIONS, r"'sac' learns continuous actions"),
        ({"dueling": True}, BOX, "set learning.dueling = false"),
        ({"algorithm": "ddpg", "dueling": True}, BOX, "ddpg learns no value for each action"),
        # An action space whose text has several lines.
        ({"algorithm": "dqn"}, spaces.Box(np.zeros(60, "f4"), np.ones(60, "f4")), "ddpg or sac"),
    ],
)
def test_what_cannot_be_learned_together_is_refused(
    settings: Any, space: spaces.Space[Any], said: str
) -> None:
    with one_line(said):
        head_of(LearningConfig(**settings), space)


def test_an_actor_is_squashed_into_its_bounds() -> None:
    layer = ActionHead(*RANGE).layer(3, 2)
    linear = layer[0]  # type: ignore[index]
    features = 5.0 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found, inputs = layer(features).numpy(), linear(features).numpy()
    np.testing.assert_allclose(found[:, 0], np.tanh(inputs[:, 0]), atol=1e-6)
    np.testing.assert_allclose(found[:, 1], 4.0 + 4.0 * np.tanh(inputs[:, 1]), atol=1e-5)
    assert BOX.low[1] <= found[:, 1].min() < 1.0 < 7.0 < found[:, 1].max() <= BOX.high[1]


def test_where_tanh_is_steep_its_slope_is_its_own() -> None:
    inputs = torch.linspace(-2.9, 2.9, 19, requires_grad=True)
    for sign in (1.0, -1.0):
        (found,) = torch.autograd.grad(sign * Tanh.apply(inputs).sum(), inputs)
        (wanted,) = torch.autograd.grad(sign * torch.tanh(inputs).sum(), inputs)
        torch.testing.assert_close(found, wanted)


def test_where_tanh_is_flat_the_way_out_is_closed_and_the_way_back_is_not() -> None:
    inputs = torch.tensor([-50.0, -3.5, -2.5, 2.5, 3.5, 50.0], requires_grad=True)
    (found,) = torch.autograd.grad(Tanh.apply(inputs).sum(), inputs)
    # A step against this gradient lowers the input: at the upper end that is the way back.
    slope, least = 1.0 - np.tanh([2.5, 3.0]) ** 2
    wanted = [0.0, 0.0, slope, slope, least, least]
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4)


def test_an_actor_sent_to_one_end_comes_back() -> None:
    torch.manual_seed(0)
    layer = ActionHead((-1.0,), (1.0,)).layer(64, 1)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    features = torch.rand(16, 64)
    for sign, steps in ((-1.0, 500), (1.0, 200)):
        for _ in range(steps):
            optimizer.zero_grad()
            (sign * layer(features).mean()).backward()
            optimizer.step()
        assert (sign * layer(features) < -0.9).all()


def test_bounds_scale_there_and_back() -> None:
    bounds = Bounds([-1.0, 0.0, 3.0], [1.0, 8.0, 3.0])
    actions = torch.tensor([[-1.0, 8.0, 3.0], [0.5, 2.0, 3.0]])
    scaled = bounds.scaled(actions)
    assert scaled.tolist() == [[-1.0, 1.0, 0.0], [0.5, -0.5, 0.0]]
    torch.testing.assert_close(bounds.unscaled(scaled), actions)


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
