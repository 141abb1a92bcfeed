"""Split layers have torch's own gradients, and layers that cannot be split are left to torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from rtagent.placement.layers import SplitLayers, StepRunner


class _Weighed(nn.Sequential):
    """A layer between two others whose weight a hook computes before each pass."""

    def __init__(self, norm: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__(
            nn.Linear(4, 6), nn.ReLU(), norm(nn.Linear(6, 6)), nn.ReLU(), nn.Linear(6, 2)
        )


class _Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.second.weight = self.first.weight

    def forward(self, inputs: Tensor) -> Tensor:
        answer: Tensor = self.last(self.second(self.first(inputs).relu()).relu())
        return answer


class _Named(nn.Module):
    """Layers that are given their input by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(1, 2, 2), nn.Linear(2, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        pictures = self.first(input=inputs.view(-1, 1, 2, 2))
        answer: Tensor = self.last(input=pictures.flatten(1).relu())
        return answer


class _OfOneVector(nn.Module):
    """A layer over a learned vector, which has no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.ones(3))
        self.first, self.second, self.last = nn.Linear(4, 6), nn.Linear(3, 6), nn.Linear(6, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        answer: Tensor = self.last((self.first(inputs) + self.second(self.start)).relu())
        return answer


def _gradients(network: nn.Module) -> dict[str, Tensor | None]:
    network.zero_grad(set_to_none=True)
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))
    network(inputs).square().mean().backward()
    return {name: parameter.grad for name, parameter in network.named_parameters()}


def _split_with_the_same_gradients(network: nn.Module) -> tuple[str, ...]:
    """The layers of a network that are split, with which it has torch's own gradients."""
    expected = _gradients(network)
    layers = SplitLayers(network, StepRunner())
    found = _gradients(network)
    layers.restore()
    for name, gradient in expected.items():
        assert torch.equal(gradient, found[name]), name  # type: ignore[arg-type]
    return layers.names


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("norm", [
    nn.utils.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.weight_norm,
])
def test_a_weight_that_is_computed_keeps_its_gradient(
    norm: Callable[[nn.Module], nn.Module],
) -> None:
    assert _split_with_the_same_gradients(_Weighed(norm).eval()) == ("0", "4")


def test_layers_that_share_a_weight_are_left_to_torch() -> None:
    # Two threads that add to one gradient would lose additions.
    assert SplitLayers(_Tied(), StepRunner()).names == ("last",)


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_a_layer_of_which_a_part_does_not_learn_is_left_to_torch(part: str) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 2))
    getattr(network[2], part).requires_grad_(False)
    expected = _gradients(network)
    assert SplitLayers(network, StepRunner()).names == ("0", "3")
    for name, gradient in _gradients(network).items():
        assert (gradient is None) == (expected[name] is None), name


@pytest.mark.parametrize("make", [_Named, _OfOneVector])
def test_a_layer_takes_what_that_of_torch_takes(make: Callable[[], nn.Module]) -> None:
    assert {"first", "last"} <= set(_split_with_the_same_gradients(make()))
