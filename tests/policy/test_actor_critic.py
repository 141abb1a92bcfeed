"""What learners train: an actor first, and two critics of the same kind beside it."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.policy import networks
from rtagent.policy.actor_critic import ActorCritic, acting_part, build_learned
from rtagent.policy.architectures import NatureCnn

BOX = spaces.Box(np.float32([-2.0, 0.0]), np.float32([2.0, 1.0]))
IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTORS = spaces.Box(-1, 1, (1, 5), np.float32)
STEERS = f"{__name__}:steers"


def build(space: spaces.Box = VECTORS, **policy: Any) -> ActorCritic:
    torch.manual_seed(0)
    made = build_learned(PolicyConfig(**policy), space, BOX, LearningConfig())
    assert isinstance(made, ActorCritic)
    return made


def test_with_discrete_actions_it_is_the_acting_network() -> None:
    learned = build_learned(PolicyConfig(), VECTORS, spaces.Discrete(3), LearningConfig())
    assert acting_part(learned) is learned
    assert learned(torch.zeros(2, 1, 5)).shape == (2, 3)


@pytest.mark.parametrize(
    ("name", "space"), [("resnet", IMAGES), ("nature", IMAGES), ("mlp", VECTORS), ("mlp", IMAGES)]
)
def test_every_network_has_critics(name: Any, space: spaces.Box) -> None:
    learned = build(space, network=name)
    frames = torch.from_numpy(np.stack([space.sample() for _ in range(3)]))
    actions = learned.actor(frames)
    values = learned.values(actions, frames)
    assert actions.shape == (3, 2)
    assert values.shape == (2, 3)
    assert not torch.equal(values[0], values[1])
    slopes = torch.autograd.grad(values[0].sum(), actions)[0]
    assert slopes.abs().min() > 0.0


def test_the_actor_s_state_comes_first() -> None:
    learned = build()
    assert acting_part(learned) is learned.actor
    names = [spec.name for spec in networks.tensor_specs(learned)]
    count = len(networks.tensor_specs(learned.actor))
    assert all(name.startswith("actor.") for name in names[:count])
    assert all(name.startswith("critics.") for name in names[count:])
    flat, acting = networks.flattened(learned), networks.flattened(learned.actor)
    np.testing.assert_array_equal(flat[: len(acting)], acting)


def test_critics_see_scaled_actions() -> None:
    learned = build()
    with torch.no_grad():
        found = learned.values(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 1, 5))
        inputs = torch.tensor([[0.0] * 5 + [1.0, -1.0]])
        wanted = torch.stack([head(inputs)[:, 0] for head in learned.critics.heads])
    assert torch.equal(found, wanted)


def test_critics_compute_in_float32_behind_a_low_precision_encoder() -> None:
    learned = build(IMAGES)
    assert isinstance(learned.critics.encoder, NatureCnn)
    frames = torch.from_numpy(np.stack([IMAGES.sample() for _ in range(2)]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        low = learned.values(torch.zeros(2, 2), frames)
    with torch.no_grad():
        full = learned.values(torch.zeros(2, 2), frames)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, full, atol=0.02, rtol=0.02)


def steers(seen: spaces.Box, actions: spaces.Box) -> nn.Module:
    """A user's factory of actors."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(seen.shape), 2), nn.Tanh())


def test_critics_beside_a_factory_are_ours() -> None:
    learned = build(factory=STEERS, width=3)
    assert isinstance(learned.actor, nn.Sequential)
    first = learned.critics.heads[1][0]  # type: ignore[index]
    assert (first.in_features, first.out_features) == (7, 192)


@pytest.mark.parametrize("network", ["auto", "lstm", "transformer"])
def test_critics_beside_a_factory_see_images_through_convolutions(network: Any) -> None:
    images = spaces.Box(0, 1, IMAGES.shape, np.float32)
    learned = build(images, factory=STEERS, network=network)
    assert isinstance(learned.critics.encoder, NatureCnn)
