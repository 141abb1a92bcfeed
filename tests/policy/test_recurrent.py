"""Recurrent networks: inputs and outputs, and the state that they carry while acting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.errors import UserError
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.actor_critic import build_learned
from rtagent.policy.heads import Head, Support
from rtagent.policy.inputs import pending_width, zeros
from rtagent.policy.networks import build
from rtagent.policy.recurrent import encoded, state_size_of, step

IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
COLOURS = spaces.Box(0, 255, (2, 84, 84, 3), np.uint8)
VECTORS = spaces.Box(-1.0, 1.0, (3, 5), np.float32)
ACTIONS = spaces.Discrete(3)
PENDING = spaces.Box(-1.0, 1.0, (4,), np.float32)


def beside(space: spaces.Box, told: bool) -> spaces.Space[Any]:
    return spaces.Dict({"observation": space, "pending": PENDING}) if told else space


@pytest.mark.parametrize("told", [False, True])
@pytest.mark.parametrize("space", [IMAGES, VECTORS, COLOURS])
@pytest.mark.parametrize("network", ["lstm", "transformer"])
def test_the_networks_take_all_observations_and_heads(
    network: Any, space: spaces.Box, told: bool
) -> None:
    given = beside(space, told)
    inputs = [torch.from_numpy(each) for each in zeros(given, 2)]
    assert len(inputs) == 1 + bool(pending_width(given))
    for head in (Head(), Head(dueling=True, support=Support(11, -1.0, 1.0))):
        module = build(PolicyConfig(network=network), given, ACTIONS, head)
        size = state_size_of(module)
        assert size == (128 if network == "lstm" else 0)
        if size:
            answer, left = module(inputs[0], torch.zeros(2, size), *inputs[1:])
            assert left.shape == (2, size)
            assert left.any()
        else:
            answer = module(*inputs)
        assert answer.shape == (2, *head.output_shape(3))


def test_a_policy_begins_with_what_it_left_until_it_forgets() -> None:
    torch.manual_seed(1)
    acting = ActingPolicy(PolicyConfig(network="lstm"), VECTORS, ACTIONS)
    acting.warm_up()
    observation = np.ones(VECTORS.shape, np.float32)
    first, second = acting.values(observation), acting.values(observation)
    assert not np.array_equal(first, second)
    acting.forget()
    np.testing.assert_array_equal(acting.values(observation), first)
    # The same, computed step by step.
    features = encoded(acting.module, torch.from_numpy(observation)[None])
    states = torch.zeros(1, 128)
    with torch.inference_mode():
        for wanted in (first, second):
            answer, states = step(acting.module, features, states)
            np.testing.assert_array_equal(answer[0], wanted)


def test_in_bfloat16_what_is_carried_along_stays_float32() -> None:
    policy = PolicyConfig(network="lstm", precision="bfloat16")
    acting = ActingPolicy(policy, IMAGES, ACTIONS, precision="bfloat16")
    acting.values(np.full(IMAGES.shape, 7, np.uint8))
    assert acting.state.dtype == np.float32
    assert (acting.state != torch.from_numpy(acting.state).bfloat16().float().numpy()).any()


def test_a_transformer_sees_the_order_of_its_frames() -> None:
    module = build(PolicyConfig(network="transformer"), VECTORS, ACTIONS).eval()
    frames = torch.randn(1, 3, 5)
    with torch.no_grad():
        there, back = module(frames), module(frames[:, [1, 0, 2]])
    assert (there - back).abs().max() > 1e-6


class Sum(nn.Module):
    """A user's network whose state is the sum of all observations."""

    state_size = 5

    def __init__(self, *of_the_run: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, observations: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        left = states + observations.sum(dim=1)
        return self.layer(left), left


class Wrong(Sum):
    """Its state has not as many numbers as it says."""

    state_size = 7


def test_a_factory_may_build_one() -> None:
    acting = ActingPolicy(PolicyConfig(factory=f"{__name__}:Sum"), VECTORS, ACTIONS)
    observation = np.ones(VECTORS.shape, np.float32)
    for count in range(1, 4):
        acting.values(observation)
        assert acting.state.tolist() == [3.0 * count] * 5
    with pytest.raises(UserError, match="fails on"):
        build(PolicyConfig(factory=f"{__name__}:Wrong"), VECTORS, ACTIONS)


class Answers(nn.Module):
    """A user's network that says that its state has five numbers, and answers as it is told."""

    state_size = 5

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, observations: Tensor, states: Tensor) -> Any:
        return self.answer(torch.zeros(len(observations), 3), states)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda outputs, states: outputs, "(2, 3)"),
        (lambda outputs, states: (outputs, states[:, :4]), "states (2, 4)"),
        (lambda outputs, states: (outputs, (states, states)), "states tuple"),
        (lambda outputs, states: (outputs, states, states), "tuple"),
        (lambda outputs, states: None, "NoneType"),
    ],
)
def test_a_factory_whose_network_leaves_no_state_is_told_what_to_return(
    monkeypatch: pytest.MonkeyPatch, answer: Any, found: str
) -> None:
    monkeypatch.setattr(f"{__name__}.Sum", lambda *_: Answers(answer))
    factory = f"{__name__}:Sum"
    with pytest.raises(UserError) as caught:
        build(PolicyConfig(factory=factory), VECTORS, ACTIONS)
    assert str(caught.value) == (
        f"policy.factory = {factory!r}: forward of a module with state_size = 5 must return a "
        f"pair, the outputs and the new states, (2, 5), and it returned {found}"
    )


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_what_cannot_learn_it_says_so(algorithm: Any) -> None:
    learning = LearningConfig(algorithm=algorithm)
    with pytest.raises(UserError, match=f"and not by {algorithm}, which"):
        build_learned(PolicyConfig(network="lstm"), VECTORS, ACTIONS, learning)
    continuous = spaces.Box(-1.0, 1.0, (2,), np.float32)
    with pytest.raises(UserError, match="and not by td3, which"):
        build_learned(PolicyConfig(network="lstm"), VECTORS, continuous, LearningConfig())
