"""Pending actions as inputs of networks, and when they are asked for."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.learning.algorithms.registry import algorithm_for
from rtagent.learning.replay.batch import empty_batch
from rtagent.memory.blueprint import Blueprint
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.actor_critic import build_learned
from rtagent.policy.inputs import input_space
from rtagent.policy.networks import build, head_of
from tests.conftest import make_blueprint
from tests.refused import one_line

COUNT = 3
BOX = gymnasium.spaces.Box(-2.0, 2.0, (2,), np.float32)


def shapes(*, image: bool = True, continuous: bool = False, count: int = COUNT) -> Blueprint:
    frame = (48, 48) if image else (5,)
    stacked = gymnasium.spaces.Box(0, 255, (4, *frame), np.uint8)
    if not image:
        stacked = gymnasium.spaces.Box(-1.0, 1.0, (4, *frame), np.float32)
    actions = {"action_space": BOX, "action_shape": (2,), "action_dtype": "float32"}
    return make_blueprint(
        frame_shape=frame, frame_dtype=stacked.dtype.name, observation_space=stacked,
        pending_actions=count, **(actions if continuous else {}),
    )


@pytest.mark.parametrize("network", ["mlp", "nature", "resnet"])
def test_a_network_asks_after_the_observation_has_been_encoded(network: Any) -> None:
    blueprint = shapes()
    space = input_space(blueprint)
    acting = ActingPolicy(PolicyConfig(network=network), space, blueprint.action_space)
    order: list[str] = []
    acting.module.encode = _noting(acting.module.encode, "encode", order)
    acting.module.decide = _noting(acting.module.decide, "decide", order)
    given = np.ones((1, COUNT * 3), np.float32)

    def ask() -> Any:
        order.append("ask")
        return given

    observation = np.ones((4, 48, 48), np.uint8)
    values = acting.values(observation, ask)
    assert order == ["encode", "ask", "decide"]
    assert not np.array_equal(values, acting.values(observation))
    np.testing.assert_array_equal(
        acting.values(observation), acting.values(observation, lambda: 0.0 * given)
    )


def _noting(function: Any, name: str, order: list[str]) -> Any:
    def noted(*arguments: Any) -> Any:
        order.append(name)
        return function(*arguments)

    return noted


@pytest.mark.parametrize(
    ("algorithm", "image"),
    [(a, i) for a in ("dqn", "double-dqn", "c51", "ppo", "a2c", "td3", "ddpg", "sac")
     for i in (True, False)],
)
def test_every_algorithm_learns_from_them(algorithm: Any, image: bool) -> None:
    """The pending actions of states and of successors change its errors."""
    blueprint = shapes(image=image, continuous=algorithm in ("td3", "ddpg", "sac"))
    learning = LearningConfig(algorithm=algorithm, dueling=algorithm == "c51")
    torch.manual_seed(0)
    learned = build_learned(
        PolicyConfig(), input_space(blueprint), blueprint.action_space, learning
    )
    blank = replace(empty_batch(blueprint, 8), rewards=torch.ones(8), targets=torch.ones(8))
    blank = replace(blank, advantages=torch.rand(8), log_probabilities=torch.zeros(8))
    beside = torch.rand_like(blank.inputs[1])

    def errors(**changes: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        instance = algorithm_for(copy.deepcopy(learned), learning, generator)
        return instance.compute_gradient(replace(blank, discounts=torch.ones(8), **changes))[1]

    assert torch.equal(errors(), errors())
    assert not torch.equal(errors(), errors(pending=beside))
    if algorithm not in ("ppo", "a2c"):
        assert not torch.equal(errors(), errors(next_pending=beside))


class Joined(nn.Module):
    """A user's network without `encode` and `decide`."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(20 + observation_space["pending"].shape[0], int(action_space.n))

    def forward(self, observation: Tensor, pending: Tensor) -> Tensor:
        return self.layer(torch.cat([observation.flatten(1), pending], 1))  # type: ignore[no-any-return]


class Deaf(nn.Module):
    """A user's network that takes no pending actions."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(20, int(action_space.n))

    def forward(self, observation: Tensor) -> Tensor:
        return self.layer(observation.flatten(1))  # type: ignore[no-any-return]


def made_by(factory: type) -> ActingPolicy:
    blueprint = shapes(image=False)
    policy = PolicyConfig(factory=f"{__name__}:{factory.__name__}")
    return ActingPolicy(policy, input_space(blueprint), blueprint.action_space)


def test_a_users_network_is_given_both() -> None:
    acting = made_by(Joined)
    observation = np.ones((4, 5), np.float32)
    values = acting.values(observation, lambda: np.ones((1, 9), np.float32))
    assert not np.array_equal(values, acting.values(observation))


def test_a_users_network_that_does_not_take_them_is_refused_in_one_line() -> None:
    with one_line("test_inputs:Deaf", re.escape("pending actions (2, 9)")):
        made_by(Deaf)


def test_too_many_inputs_are_refused_in_one_line() -> None:
    space = gymnasium.spaces.Discrete(10_000)
    with one_line(r"env\.pending_actions = 64 makes 640000 inputs"):
        input_space(make_blueprint(action_space=space, pending_actions=64))


def test_without_them_nothing_is_new() -> None:
    blueprint = shapes(count=0)
    assert input_space(blueprint) is blueprint.observation_space
    head = head_of(LearningConfig(), blueprint.action_space)
    before = build(PolicyConfig(), blueprint.observation_space, blueprint.action_space, head)
    after = build(PolicyConfig(), input_space(shapes()), blueprint.action_space, head)
    sizes = [sum(each.numel() for each in module.parameters()) for module in (before, after)]
    assert sizes[1] - sizes[0] == COUNT * 3 * 512
