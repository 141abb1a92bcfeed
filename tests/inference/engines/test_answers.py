"""Each engine answers as torch does, with the weights that it was given last."""

from __future__ import annotations

import logging
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rtagent.config import PolicyConfig
from rtagent.inference.engines.interface import Engine, Unsupported
from rtagent.inference.engines.registry import REGISTER, make
from rtagent.inference.engines.traceable import Traceable
from rtagent.policy.acting import ActingPolicy
from rtagent.policy.heads import PLAIN, ActionHead, Head, OutputHead, Support
from rtagent.policy.networks import flattened

PICTURES = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8)
VECTORS = gymnasium.spaces.Box(-1.0, 1.0, (1, 6), np.float32)
ACTIONS = gymnasium.spaces.Discrete(3)
MOTORS = gymnasium.spaces.Box(-2.0, 3.0, (2,), np.float32)
NETWORKS = {
    "resnet": (PICTURES, ACTIONS, PLAIN),
    "mlp": (VECTORS, ACTIONS, Head(dueling=True, support=Support(11, -1.0, 1.0))),
    "transformer": (gymnasium.spaces.Box(-1.0, 1.0, (4, 6), np.float32), ACTIONS, PLAIN),
    "actor": (VECTORS, MOTORS, ActionHead((-2.0, -2.0), (3.0, 3.0))),
}


@pytest.fixture(scope="module", params=REGISTER)
def engine(request: pytest.FixtureRequest) -> Engine:
    return make(request.param)


def observations(space: gymnasium.spaces.Box, count: int) -> list[np.ndarray]:
    space.seed(1)
    return [space.sample() for _ in range(count)]


def traceable(policy: ActingPolicy, space: Any, head: OutputHead) -> Traceable:
    support = head.support.values() if isinstance(head, Head) and head.support else None
    return Traceable(policy.module, np.zeros(space.shape, space.dtype), support)


@pytest.mark.parametrize("name", NETWORKS)
def test_as_torch_answers(engine: Engine, name: str) -> None:
    space, actions, head = NETWORKS[name]
    network: Any = "mlp" if name == "actor" else name
    policy = ActingPolicy(PolicyConfig(network=network, precision="float32"), space, actions, head)
    convert = engine.translate(traceable(policy, space, head))
    seen, sizes = observations(space, 20), []
    # The second weights go into the same translation.
    lowest = engine.precisions()[0]
    for factor, precision in ((1.0, "float32"), (-0.5, lowest)):
        weights = (factor * flattened(policy.module)).astype(np.float32)
        policy.load(weights)
        expected = np.array([policy.values(each) for each in seen])
        assert expected.std(axis=0).max() > 0.0
        model = convert(weights, precision, seen)  # type: ignore[arg-type]
        answer = engine.open(model, precision)  # type: ignore[arg-type]
        found = np.array([answer(each) for each in seen])
        assert found.shape == expected.shape
        assert found.dtype == np.float32
        tolerance = 0.15 if precision == "int8" else 1e-5
        limit = max(tolerance * float(np.abs(expected).max()), 1e-6)
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=limit)
        sizes.append(len(model))
    if (name, lowest) == ("resnet", "int8"):
        assert sizes[1] < 0.6 * sizes[0]


def test_a_picture_may_be_brighter_than_any_that_int8_was_prepared_with() -> None:
    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(4, 8, 3)
            self.last = torch.nn.Linear(8, 3)

        def forward(self, pictures: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(pictures.float() * (1.0 / 255.0)).mean((2, 3)))

    torch.manual_seed(0)
    module = Small()
    engine, seen = make("openvino"), observations(PICTURES, 4)
    convert = engine.translate(Traceable(module, seen[0], None))
    dark = [each // 25 for each in seen]
    answer = engine.open(convert(flattened(module), "int8", dark), "int8")
    with torch.no_grad():
        expected = module(torch.from_numpy(np.stack(seen))).numpy()
    found = [answer(each) for each in seen]
    np.testing.assert_allclose(found, expected, atol=0.02 * np.abs(expected).max())


def test_it_says_which_operator_it_has_not(engine: Engine, caplog: Any, capfd: Any) -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(6, 3)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.special.bessel_j0(inputs.flatten(1)))

    network = Traceable(Odd(), np.zeros((1, 6), np.float32), None)
    with pytest.raises(Unsupported, match="aten::special_bessel_j0"):
        engine.translate(network)
    assert capfd.readouterr() == ("", "")
    logging.getLogger("rtagent").warning("what follows is still heard")
    assert caplog.messages == ["what follows is still heard"]
