"""The copy of the acting network, filled in pieces, has the weights of a load in one go."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rtagent.config import PolicyConfig
from rtagent.errors import UserError
from rtagent.inference import standby as standby_module
from rtagent.inference.standby import Standby
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.networks import flattened, load_flat

PICTURES = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
VECTORS = gymnasium.spaces.Box(-1.0, 1.0, (1, 6), np.float32)
ACTIONS = gymnasium.spaces.Discrete(3)


def new_weights(policy: ActingPolicy) -> np.ndarray:
    size = len(flattened(policy.module))
    return np.random.default_rng(0).normal(size=size).astype(np.float32)


@pytest.mark.parametrize("piece", [5_000, 65_536])
@pytest.mark.parametrize(
    ("network", "precision", "space"),
    [
        ("mlp", "float32", VECTORS),
        ("nature", "float32", PICTURES),
        ("resnet", "bfloat16", PICTURES),
    ],
)
def test_the_pieces_make_the_whole(
    monkeypatch: pytest.MonkeyPatch, network: Any, precision: Any, space: Any, piece: int
) -> None:
    monkeypatch.setattr(standby_module, "PIECE_VALUES", piece)
    policy = ActingPolicy(PolicyConfig(network=network), space, ACTIONS, precision=precision)
    standby = Standby(policy)
    first, values = policy.module, new_weights(policy)
    before = flattened(policy.module)
    for index in range(standby.pieces):
        standby.fill(index, values)
        assert policy.module is first
    np.testing.assert_array_equal(flattened(policy.module), before)
    standby.swap()
    after = flattened(policy.module)
    load_flat(first, values)
    expected = flattened(first)
    np.testing.assert_array_equal(after, expected)
    # The other way round, too: now the network that acted before is filled.
    for index in range(standby.pieces):
        standby.fill(index, -values)
    standby.swap()
    assert policy.module is first
    np.testing.assert_array_equal(flattened(policy.module), -expected)


def test_pieces_are_small() -> None:
    policy = ActingPolicy(PolicyConfig(network="nature"), PICTURES, ACTIONS)
    standby = Standby(policy)
    lengths = [stop - start for _, start, stop in standby._idle]
    assert sum(lengths) == len(new_weights(policy))
    assert max(lengths) <= standby_module.PIECE_VALUES


def test_a_network_that_cannot_be_copied() -> None:
    class Unique(torch.nn.Module):
        def __deepcopy__(self, memo: Any) -> Unique:
            raise TypeError("there is only one of me")

    policy = ActingPolicy(PolicyConfig(network="mlp"), VECTORS, ACTIONS)
    policy.module = Unique()
    with pytest.raises(UserError, match=r"cannot be copied .*there is only one of me"):
        Standby(policy)
