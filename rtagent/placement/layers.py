"""Layers whose backward pass has two parts: the gradient of the inputs, and that of the weights.

The next layer of the backward pass waits for the first part only, so the second may be computed
elsewhere, or later. Both parts are the calls that torch's own backward pass makes, in its order of
operations, so the gradients are the same to the last bit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class StepRunner:
    """Decides where the parts of a step run. This one runs all in the calling thread, in turn."""

    def precision(self, layer: str) -> torch.dtype | None:
        """A layer's precision in this pass. If None, that of autocast, or of its weights."""
        return None

    def forward(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        """Run a layer's forward pass; its result is needed at once."""
        return call()

    def inputs(self, layer: str, call: Callable[[], Tensor]) -> Tensor:
        """Compute the gradient of a layer's inputs; it is needed at once."""
        return call()

    def weights(self, layer: str, call: Callable[[], None]) -> None:
        """Compute the gradient of a layer's weights, at any time before the step ends."""
        call()

    def start(self, kind: str, call: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Begin a pass (`profile.PASSES`), now or when its result is asked for."""
        return call

    def finish(self) -> None:
        """Wait until all parts are done; called at the end of a step, even if it has failed."""


class SplitLayers:
    """Has a runner run the convolutions and linear layers of a network, until `restore`.

    Args:
        network: its layers are changed in place.
        runner: runs them.
        only: names of the layers that it runs; all if not given.

    Attributes:
        names: of the layers that the runner runs, in the order of the module tree.
    """

    def __init__(
        self, network: nn.Module, runner: StepRunner, only: Collection[str] | None = None
    ) -> None:
        users = _users(network)
        layers = {
            name: layer for name, layer in network.named_modules()
            if _can_be_split(layer, users) and (only is None or name in only)
        }
        self.names = tuple(layers)
        self._layers = list(layers.values())
        for name, layer in layers.items():
            layer.forward = _forward(name, layer, runner)

    def restore(self) -> None:
        """Have torch run the layers again."""
        for layer in self._layers:
            del layer.forward


def _users(network: nn.Module) -> Counter[int]:
    """How many modules have each parameter."""
    modules = network.modules()
    return Counter(id(each) for module in modules for each in module.parameters(recurse=False))


def _can_be_split(layer: nn.Module, users: Counter[int]) -> bool:
    if type(layer) is nn.Conv2d:
        usual = layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        return usual and _has_its_own(layer, users)
    return type(layer) is nn.Linear and _has_its_own(layer, users)


def _has_its_own(layer: nn.Conv2d | nn.Linear, users: Counter[int]) -> bool:
    """Whether a layer's weights are parameters of its own, and of no other layer, and learn alike.

    A weight that a hook computes, as `weight_norm` does, passes its gradient on to the parameters
    that it was computed from. And two threads would add to the gradient of a shared weight at once.
    The two gradients of a layer are computed together, so a weight without its bias, or the other
    way round, is left to torch.
    """
    own = {id(each) for each in layer.parameters(recurse=False)}
    weights = [each for each in (layer.weight, layer.bias) if each is not None]
    alike = len({each.requires_grad for each in weights}) == 1
    return alike and all(id(each) in own and users[id(each)] == 1 for each in weights)


def _forward(name: str, layer: Any, runner: StepRunner) -> Callable[[Tensor], Tensor]:
    # Named as in torch, for it may be given by its name.
    def forward(input: Tensor) -> Tensor:
        dtype = runner.precision(name) or _precision(layer)
        learns = layer.weight.requires_grad or input.requires_grad
        if torch.is_grad_enabled() and learns:
            arguments = input, name, layer, runner, dtype, layer.weight, layer.bias
            apply: Callable[..., Tensor] = _Split.apply
            return runner.forward(name, lambda: apply(*arguments))
        return runner.forward(name, lambda: _compute(layer, *_cast(layer, input, dtype)))

    return forward


def _precision(layer: Any) -> torch.dtype:
    device = layer.weight.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    dtype: torch.dtype = layer.weight.dtype
    return dtype


def _cast(layer: Any, inputs: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    return inputs.to(dtype), layer.weight.detach().to(dtype), bias


def _compute(layer: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # Everything is cast already, and not always to the type that autocast would take.
    with torch.autocast(weight.device.type, enabled=False):
        if isinstance(layer, nn.Linear):
            return functional.linear(inputs, weight, bias)
        shape = layer.stride, layer.padding, layer.dilation, layer.groups
        return functional.conv2d(inputs, weight, bias, *shape)


class _Split(torch.autograd.Function):
    """A layer's arithmetic, whose gradients its runner computes."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, name: str, layer: Any, runner: StepRunner, dtype: torch.dtype,
        weight: Tensor, bias: Tensor | None,
    ) -> Tensor:
        cast = _cast(layer, inputs, dtype)
        ctx.save_for_backward(cast[0], cast[1])
        ctx.name, ctx.layer, ctx.runner, ctx.dtype = name, layer, runner, inputs.dtype
        return _compute(layer, *cast)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight = ctx.saved_tensors
        layer, runner = ctx.layer, ctx.runner
        if layer.weight.requires_grad:
            runner.weights(ctx.name, lambda: _weights_gradient(layer, gradient, inputs, weight))
        of_inputs = None
        if ctx.needs_input_grad[0]:
            of_inputs = runner.inputs(
                ctx.name, lambda: _inputs_gradient(layer, gradient, inputs, weight).to(ctx.dtype)
            )
        return of_inputs, *[None] * 6


def _inputs_gradient(layer: Any, gradient: Tensor, inputs: Tensor, weight: Tensor) -> Tensor:
    if isinstance(layer, nn.Linear):
        return gradient.matmul(weight)
    parts = _convolution_backward(layer, gradient, inputs, weight, [True, False, False])
    of_inputs: Tensor = parts[0]
    return of_inputs


@torch.no_grad()
def _weights_gradient(layer: Any, gradient: Tensor, inputs: Tensor, weight: Tensor) -> None:
    """Add to the gradients of the layer's parameters.

    Without a graph, which torch would record where this runs outside of the backward pass.
    """
    if isinstance(layer, nn.Linear):
        # A single vector is one row.
        rows, entered = (each.reshape(-1, each.shape[-1]) for each in (gradient, inputs))
        of_weight, of_bias = rows.t().mm(entered), rows.sum(0)
    else:
        mask = [False, True, layer.bias is not None]
        _, of_weight, of_bias = _convolution_backward(layer, gradient, inputs, weight, mask)
    for parameter, value in ((layer.weight, of_weight), (layer.bias, of_bias)):
        if parameter is not None:
            value = value.to(parameter.dtype)
            parameter.grad = value if parameter.grad is None else parameter.grad + value


def _convolution_backward(
    layer: Any, gradient: Tensor, inputs: Tensor, weight: Tensor, mask: list[bool]
) -> Any:
    return torch.ops.aten.convolution_backward(
        gradient, inputs, weight, [weight.shape[0]], layer.stride, layer.padding, layer.dilation,
        False, [0, 0], layer.groups, mask,
    )
