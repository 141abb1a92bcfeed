"""Policy networks: by name, or from a user's factory; and the network as inference holds it.

Every network maps a batch of stacked observations to action values, and takes uint8 pixels: the
conversion to [0, 1] happens here, where the network runs, because on the sampling side it costs
twelve times the copying of the pixels.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rtagent.config import PolicyConfig
from rtagent.errors import UserError
from rtagent.memory.blueprint import TensorSpec

Floats = npt.NDArray[np.float32]
Name = Literal["resnet", "nature", "mlp", "factory"]

_HIDDEN = 512


def resolved_name(policy: PolicyConfig, observation_space: spaces.Space[Any]) -> Name:
    """The kind of network that the configuration means for these observations."""
    if policy.factory is not None:
        return "factory"
    if policy.network != "auto":
        return policy.network
    return "nature" if len(_shape(observation_space)) >= 3 else "mlp"


def describe(policy: PolicyConfig, observation_space: spaces.Space[Any]) -> str:
    """The network in a word or two, for display and for checkpoints: `resnet k=7`."""
    name = resolved_name(policy, observation_space)
    if name == "factory":
        return str(policy.factory)
    return name if name == "nature" else f"{name} k={policy.width}"


def build(
    policy: PolicyConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> nn.Module:
    """Build the policy network in float32.

    Args:
        policy: name, width or factory.
        observation_space: Box of a stacked observation, (stack, height, width) or (stack, n).
        action_space: Discrete.

    Returns:
        A module from (B, *observation) uint8 or float32 to (B, actions) action values.

    Raises:
        UserError: the network does not fit the spaces, or the factory does not do its part.
    """
    shape, actions = _shape(observation_space), _actions(action_space)
    name = resolved_name(policy, observation_space)
    if name == "factory":
        module = _from_factory(str(policy.factory), observation_space, action_space)
        _check_output(module, str(policy.factory), _zeros(observation_space, 2), actions)
        return module.float()
    if name == "mlp":
        return Mlp(shape, actions, 64 * policy.width, _scale(observation_space))
    if len(shape) != 3:
        raise UserError(
            f"policy.network = {name!r} needs images, and the observations have the shape "
            f"{shape}; use policy.network = 'mlp'"
        )
    try:
        if name == "resnet":
            return ResNet(shape, actions, policy.width, _scale(observation_space))
        return NatureCnn(shape, actions, _scale(observation_space))
    except _TooSmall:
        raise UserError(
            f"policy.network = {name!r}: frames of {shape[1]}x{shape[2]} are too small for it"
        ) from None


class _TooSmall(ValueError):
    """The convolutions leave nothing of the image."""


class _PolicyModule(nn.Module):
    """Brings observations (B, *shape) to the weights' type, and pixels to [0, 1] by `scale`."""

    def __init__(self, scale: float, *, image: bool) -> None:
        super().__init__()
        self._scale = scale
        self._format = torch.channels_last if image else torch.contiguous_format

    def _prepare(self, observations: Tensor, weight: Tensor) -> Tensor:
        inputs = observations.to(weight.dtype, memory_format=self._format)
        return inputs if self._scale == 1.0 else inputs * self._scale


class ResidualBlock(nn.Module):
    """Two pre-activation 3x3 convolutions and a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.second(functional.relu(self.first(functional.relu(inputs))))
        return inputs + hidden  # type: ignore[no-any-return]


class ResNet(_PolicyModule):
    """The 15-layer residual network of the Realtime RL paper, width k.

    Three stages of a valid 3x3 convolution (16k, 32k, 32k channels), a 3x3 max-pool of stride 2
    without padding and two residual blocks; ReLU, flatten, linear 512, ReLU, linear actions.
    """

    def __init__(self, shape: tuple[int, ...], actions: int, width: int, scale: float) -> None:
        super().__init__(scale, image=True)
        channels, height, breadth = shape
        layers: list[nn.Module] = []
        for wanted in (16 * width, 32 * width, 32 * width):
            layers += [
                nn.Conv2d(channels, wanted, 3),
                nn.MaxPool2d(3, stride=2),
                ResidualBlock(wanted),
                ResidualBlock(wanted),
            ]
            channels, height, breadth = wanted, (height - 5) // 2 + 1, (breadth - 5) // 2 + 1
        if min(height, breadth) < 1:
            raise _TooSmall
        self.stages = nn.Sequential(*layers)
        self.hidden = nn.Linear(channels * height * breadth, _HIDDEN)
        self.values = nn.Linear(_HIDDEN, actions)

    def forward(self, observations: Tensor) -> Tensor:
        features = self.stages(self._prepare(observations, self.values.weight))
        hidden = self.hidden(functional.relu(features).flatten(1))
        return self.values(functional.relu(hidden))  # type: ignore[no-any-return]


class NatureCnn(_PolicyModule):
    """The convolutional network of the DQN paper (Mnih et al., 2015)."""

    def __init__(self, shape: tuple[int, ...], actions: int, scale: float) -> None:
        super().__init__(scale, image=True)
        channels, height, breadth = shape
        layers: list[nn.Module] = []
        for wanted, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            layers += [nn.Conv2d(channels, wanted, kernel, stride), nn.ReLU()]
            channels = wanted
            height, breadth = (height - kernel) // stride + 1, (breadth - kernel) // stride + 1
        if min(height, breadth) < 1:
            raise _TooSmall
        self.features = nn.Sequential(*layers)
        self.hidden = nn.Linear(channels * height * breadth, _HIDDEN)
        self.values = nn.Linear(_HIDDEN, actions)

    def forward(self, observations: Tensor) -> Tensor:
        features = self.features(self._prepare(observations, self.values.weight)).flatten(1)
        return self.values(functional.relu(self.hidden(features)))  # type: ignore[no-any-return]


class Mlp(_PolicyModule):
    """Two hidden layers over the flattened observation."""

    def __init__(self, shape: tuple[int, ...], actions: int, hidden: int, scale: float) -> None:
        super().__init__(scale, image=False)
        self.layers = nn.Sequential(
            nn.Linear(prod(shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.values = nn.Linear(hidden, actions)

    def forward(self, observations: Tensor) -> Tensor:
        inputs = self._prepare(observations, self.values.weight).flatten(1)
        return self.values(self.layers(inputs))  # type: ignore[no-any-return]


def channels_last(module: nn.Module) -> nn.Module:
    """Lay out the convolutions' weights channels last, which CPUs prefer; in place."""
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def tensor_specs(module: nn.Module) -> tuple[TensorSpec, ...]:
    """Names and shapes of the module's floating point state, in the order of the weight buffers."""
    return tuple(TensorSpec(name, tuple(tensor.shape)) for name, tensor in float_state(module))


def flatten_into(module: nn.Module, out: Floats) -> None:
    """Copy the module's floating point state into a flat buffer.

    Args:
        module: any precision.
        out: (parameters,) float32, filled.
    """
    _copy_flat(module, out, lambda mine, flat: flat.copy_(mine))


def load_flat(module: nn.Module, values: Floats) -> None:
    """Copy a flat buffer into the module's existing tensors, in their precision and layout.

    Args:
        module: any precision.
        values: (parameters,) float32, as `flatten_into` filled it.
    """
    _copy_flat(module, values, lambda mine, flat: mine.copy_(flat))


def float_state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The floating point tensors of the module's state, in order."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            yield name, tensor


def inference_precision(policy: PolicyConfig, name: str) -> torch.dtype:
    """The type of the weights for inference.

    Args:
        policy: its precision decides unless it is `auto`.
        name: of the network, see `resolved_name`.

    Returns:
        bfloat16 for the resnet, which it more than halves in time, otherwise float32.

    Raises:
        UserError: float16, which is 30 to 100 times slower than float32 on a CPU.
    """
    wanted = str(policy.precision)
    if wanted == "auto":
        return torch.bfloat16 if name == "resnet" else torch.float32
    if wanted not in ("float32", "bfloat16"):
        raise UserError(f"policy.precision = {wanted!r}: use auto, float32 or bfloat16")
    return torch.bfloat16 if wanted == "bfloat16" else torch.float32


def inference_device(policy: PolicyConfig) -> torch.device:
    """The device for inference.

    Raises:
        UserError: it is not there.
    """
    device = torch.device(policy.device)
    if device.type == "cuda":
        found = torch.cuda.device_count()
        if (device.index or 0) >= found:
            raise UserError(
                f"policy.device = {policy.device!r}: {found} CUDA devices are usable here; use cpu"
            )
    return device


class ActingPolicy:
    """A network made ready to answer one observation at a time.

    Args:
        policy: network, precision, device.
        observation_space: Box of a stacked observation.
        action_space: Discrete.

    Raises:
        UserError: as `build`, or the device is not there.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
    ) -> None:
        self.device = inference_device(policy)
        dtype = inference_precision(policy, resolved_name(policy, observation_space))
        module = build(policy, observation_space, action_space).eval().requires_grad_(False)
        self.module = channels_last(module.to(self.device, dtype))
        self._zeros = _zeros(observation_space, 1)[0]

    def load(self, values: Floats) -> None:
        """Take over published weights, in place.

        Args:
            values: (parameters,) float32.
        """
        load_flat(self.module, values)

    def warm_up(self) -> None:
        """Run every shape that will be used: a first call costs up to seven times a steady one."""
        for _ in range(3):
            self.values(self._zeros)

    def values(self, observation: npt.NDArray[Any]) -> Floats:
        """The action values of one observation.

        Args:
            observation: (stack, ...) uint8 or float32.

        Returns:
            (actions,) float32.
        """
        with torch.inference_mode():
            batch = torch.from_numpy(observation).unsqueeze(0).to(self.device)
            answer: Floats = self.module(batch)[0].float().cpu().numpy()
        return answer


def _copy_flat(
    module: nn.Module, values: Floats, copy: Callable[[Tensor, Tensor], object]
) -> None:
    flat = torch.from_numpy(values)
    state = list(float_state(module))
    total = sum(tensor.numel() for _, tensor in state)
    if flat.numel() != total:
        raise ValueError(f"{flat.numel()} values for a network of {total}")
    at = 0
    with torch.no_grad():
        for _, tensor in state:
            copy(tensor, flat[at : at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()


def _from_factory(
    path: str, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> nn.Module:
    module_name, _, attribute = path.partition(":")
    try:
        factory: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            factory = getattr(factory, part)
    except Exception as error:
        raise UserError(f"policy.factory = {path!r} cannot be imported: {_line(error)}") from error
    if not callable(factory):
        raise UserError(f"policy.factory = {path!r} is not callable: {type(factory).__name__}")
    try:
        module = factory(observation_space, action_space)
    except Exception as error:
        raise UserError(f"policy.factory = {path!r} failed: {_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise UserError(
            f"policy.factory = {path!r} returned {type(module).__name__}, not a torch.nn.Module"
        )
    return module


def _check_output(
    module: nn.Module, path: str, zeros: npt.NDArray[Any], actions: int
) -> None:
    was_training = module.training
    try:
        with torch.no_grad():
            answer = module.eval()(torch.from_numpy(zeros))
    except Exception as error:
        raise UserError(
            f"policy.factory = {path!r}: the module fails on {zeros.dtype} observations of the "
            f"shape {zeros.shape}: {_line(error)}"
        ) from error
    module.train(was_training)
    wanted = (len(zeros), actions)
    found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if found != wanted:
        raise UserError(
            f"policy.factory = {path!r}: the module maps {len(zeros)} observations to {found}, "
            f"not to {wanted}"
        )


def _line(error: Exception) -> str:
    """The last line of a traceback."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1]}" if text else type(error).__name__


def _shape(observation_space: spaces.Space[Any]) -> tuple[int, ...]:
    if not isinstance(observation_space, spaces.Box):
        raise UserError(f"observations must be a Box, not {type(observation_space).__name__}")
    return tuple(observation_space.shape)


def _actions(action_space: spaces.Space[Any]) -> int:
    if not isinstance(action_space, spaces.Discrete):
        raise UserError(
            f"this version learns Discrete actions only, not {type(action_space).__name__}"
        )
    return int(action_space.n)


def _scale(observation_space: spaces.Space[Any]) -> float:
    return 1.0 / 255.0 if observation_space.dtype == np.uint8 else 1.0


def _zeros(observation_space: spaces.Space[Any], batch: int) -> npt.NDArray[Any]:
    return np.zeros((batch, *_shape(observation_space)), observation_space.dtype)
