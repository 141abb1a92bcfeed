"""Policy networks: by name, or from a user's factory; and the network as inference holds it.

Every network maps a batch of stacked observations to what its head says about each action. The
built-in ones are in `architectures.py`, the heads in `heads.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.architectures import Mlp, NatureCnn, PolicyModule, ResNet, TooSmall
from rtagent.config import LearningConfig, PolicyConfig
from rtagent.errors import UserError
from rtagent.heads import PLAIN, Head, Support, expected_values
from rtagent.memory.blueprint import TensorSpec

Floats = npt.NDArray[np.float32]
Name = Literal["resnet", "nature", "mlp", "factory"]


def resolved_name(policy: PolicyConfig, observation_space: spaces.Space[Any]) -> Name:
    """The kind of network that the configuration means for these observations."""
    if policy.factory is not None:
        return "factory"
    if policy.network != "auto":
        return policy.network
    return "nature" if len(_shape(observation_space)) >= 3 else "mlp"


def head_of(learning: LearningConfig) -> Head:
    """The head that the configured algorithm learns with."""
    support = Support(learning.atoms, learning.v_min, learning.v_max)
    return Head(learning.dueling, support if learning.algorithm == "c51" else None)


def describe(
    policy: PolicyConfig, observation_space: spaces.Space[Any], head: Head = PLAIN
) -> str:
    """The network in a few words, for display and for checkpoints: `resnet k=7, dueling`."""
    name = resolved_name(policy, observation_space)
    if name == "factory":
        return f"{policy.factory}{head.describe()}"
    width = "" if name == "nature" else f" k={policy.width}"
    return f"{name}{width}{head.describe()}"


def build(
    policy: PolicyConfig,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    head: Head = PLAIN,
) -> nn.Module:
    """Build the policy network in float32.

    Args:
        policy: name, width or factory.
        observation_space: Box of a stacked observation, (stack, height, width) or (stack, n).
        action_space: Discrete.
        head: as the learning algorithm needs it, see `head_of`.

    Returns:
        A module from (B, *observation) uint8 or float32 to (B, actions) action values, or to
        (B, actions, atoms) logits where the head has a support.

    Raises:
        UserError: the network does not fit the spaces or the head, or the factory does not do its
            part.
    """
    shape, actions = _shape(observation_space), _actions(action_space)
    name = resolved_name(policy, observation_space)
    if name == "factory":
        path = str(policy.factory)
        if head.dueling:
            raise UserError(
                f"learning.dueling = true: the head belongs to the network that policy.factory = "
                f"{path!r} builds; set learning.dueling = false"
            )
        module = _from_factory(path, observation_space, action_space)
        _check_output(module, path, _zeros(observation_space, 2), head.output_shape(actions))
        return module.float()
    if name == "mlp":
        return Mlp(shape, actions, 64 * policy.width, _scale(observation_space), head)
    if len(shape) != 3:
        raise UserError(
            f"policy.network = {name!r} needs images, and the observations have the shape "
            f"{shape}; use policy.network = 'mlp'"
        )
    try:
        if name == "resnet":
            return ResNet(shape, actions, policy.width, _scale(observation_space), head)
        return NatureCnn(shape, actions, _scale(observation_space), head)
    except TooSmall:
        raise UserError(
            f"policy.network = {name!r}: frames of {shape[1]}x{shape[2]} are too small for it"
        ) from None


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
        head: of the network that learns.

    Raises:
        UserError: as `build`, or the device is not there.
    """

    def __init__(
        self,
        policy: PolicyConfig,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        head: Head = PLAIN,
    ) -> None:
        self.device = inference_device(policy)
        dtype = inference_precision(policy, resolved_name(policy, observation_space))
        module = build(policy, observation_space, action_space, head).eval().requires_grad_(False)
        self.module = channels_last(module.to(self.device, dtype))
        if isinstance(self.module, PolicyModule):
            self.module.values.float()
        self._support = None if head.support is None else head.support.values().to(self.device)
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
            (actions,) float32; the expected ones where the network gives distributions.
        """
        with torch.inference_mode():
            output = self.module(torch.from_numpy(observation).unsqueeze(0).to(self.device))[0]
            if self._support is not None:
                output = expected_values(output, self._support)
            answer: Floats = output.float().cpu().numpy()
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
    module: nn.Module, path: str, zeros: npt.NDArray[Any], shape: tuple[int, ...]
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
    wanted = (len(zeros), *shape)
    found = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
    if found != wanted:
        raise UserError(
            f"policy.factory = {path!r}: the module maps {len(zeros)} observations to {found}, "
            f"not to {wanted}{' logits, as c51 needs them' if len(shape) > 1 else ''}"
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
