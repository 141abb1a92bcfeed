"""Policy networks, by name or from a user's factory, and their weights as a flat array.

Every network maps a batch of stacked observations to its head's output for each action, or to the
action itself where actions are continuous. The built-in ones are in `architectures.py`, the heads
in `heads.py`, the critics that learners need beside an actor in `actor_critic.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.config import LearningConfig, PolicyConfig
from rtagent.errors import UserError
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import TensorSpec
from rtagent.policy.architectures import HIDDEN, Mlp, NatureCnn, PolicyModule, ResNet, TooSmall
from rtagent.policy.factory import check_alike, check_output, from_factory
from rtagent.policy.heads import (
    FEATURES,
    PLAIN,
    ActionHead,
    AnyHead,
    GaussianHead,
    Head,
    OutputHead,
    PolicyHead,
    SquashedMean,
    Support,
)
from rtagent.policy.inputs import observation_scale, observation_shape, pending_width, zeros
from rtagent.policy.recurrent import Lstm
from rtagent.policy.transformer import Transformer

Name = Literal["resnet", "nature", "mlp", "lstm", "transformer", "factory"]


def resolved_name(policy: PolicyConfig, observation_space: spaces.Space[Any]) -> Name:
    """The kind of network that the configuration means for these observations."""
    if policy.factory is not None:
        return "factory"
    if policy.network != "auto":
        return policy.network
    return "nature" if len(observation_shape(observation_space)) >= 3 else "mlp"


def resolved_algorithm(
    learning: LearningConfig, action_space: spaces.Space[Any]
) -> Literal["dqn", "double-dqn", "c51", "ppo", "a2c", "td3", "ddpg", "sac"]:
    """The algorithm that the configuration means for these actions.

    Raises:
        UserError: the configured algorithm cannot learn these actions.
    """
    wanted = learning.algorithm
    if isinstance(action_space, spaces.Discrete):
        if wanted in ("td3", "ddpg", "sac"):
            raise UserError(
                f"learning.algorithm = {wanted!r} learns continuous actions, and these are "
                f"{_line(action_space)}; use auto, dqn, double-dqn, c51, ppo or a2c"
            )
        return "dqn" if wanted == "auto" else wanted
    if wanted in ("dqn", "double-dqn", "c51", "ppo", "a2c"):
        raise UserError(
            f"learning.algorithm = {wanted!r} learns Discrete actions, and these are "
            f"{_line(action_space)}; use auto, td3, ddpg or sac"
        )
    return "td3" if wanted == "auto" else wanted


def support_of(learning: LearningConfig) -> Support | None:
    """The support of the value distributions; None if the algorithm learns plain values."""
    if learning.algorithm != "c51":
        return None
    return Support(learning.atoms, learning.v_min, learning.v_max)


def head_of(learning: LearningConfig, action_space: spaces.Space[Any]) -> OutputHead:
    """The head that the configured algorithm learns with.

    Raises:
        UserError: the algorithm, or a setting that it does not support, does not fit these actions.
    """
    algorithm = resolved_algorithm(learning, action_space)
    if algorithm in ("dqn", "double-dqn", "c51"):
        return Head(learning.dueling, support_of(learning))
    if learning.placement != "off" and algorithm in ("ppo", "a2c"):
        raise UserError(
            f"learning.placement = {learning.placement!r}: steps of dqn, double-dqn, c51, td3, "
            f"ddpg and sac are planned, and {algorithm} learns here; set learning.placement = 'off'"
        )
    if learning.dueling:
        raise UserError(
            f"learning.dueling = true: {algorithm} learns no value for each action; set "
            "learning.dueling = false"
        )
    if learning.demonstration_margin > 0.0:
        raise UserError(
            f"learning.demonstration_margin = {learning.demonstration_margin:g}: {algorithm} "
            "learns no value for each action; set learning.demonstration_margin = 0"
        )
    if algorithm in ("ppo", "a2c"):
        return PolicyHead(algorithm=algorithm)
    assert isinstance(action_space, spaces.Box)
    low, high = (tuple(map(float, side)) for side in (action_space.low, action_space.high))
    if algorithm == "sac":
        return GaussianHead(low, high)
    return ActionHead(low, high, algorithm, critics=1 if algorithm == "ddpg" else 2)


def mean_of(head: OutputHead) -> nn.Module | None:
    """Turns a random actor's answers into its mean actions, (B, n); None for other heads."""
    return SquashedMean(head.low, head.high) if isinstance(head, GaussianHead) else None


def describe(
    policy: PolicyConfig, observation_space: spaces.Space[Any], head: OutputHead = PLAIN
) -> str:
    """The network in a few words, for display and for checkpoints: `resnet k=7, dueling`."""
    name = resolved_name(policy, observation_space)
    if name == "factory":
        return f"{policy.factory}{head.describe()}"
    width = "" if name == "nature" else f" k={policy.width}"
    return f"{name}{width}{head.describe()}"


def build(
    policy: PolicyConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any],
    head: OutputHead = PLAIN,
) -> nn.Module:
    """Build the policy network in float32.

    Args:
        policy: name, width or factory.
        observation_space: Box of a stacked observation, (stack, height, width) or (stack, n); or as
            `inputs.py` says.
        action_space: Discrete, or a flat Box with bounds.
        head: the one that the learning algorithm needs, see `head_of`.

    Returns:
        A module from (B, *observation) uint8 or float32 to (B, actions) action values, or to
        (B, actions, atoms) logits where the head has a support; of an actor, to (B, n) actions, or
        to (B, 2 n), see `GaussianHead`.

    Raises:
        UserError: the network does not fit the spaces or the head, or the factory fails.
    """
    shape, actions = observation_shape(observation_space), outputs_of(action_space)
    name = resolved_name(policy, observation_space)
    if name == "factory":
        path = str(policy.factory)
        if isinstance(head, Head) and head.dueling:
            raise UserError(
                f"learning.dueling = true: the head belongs to the network that policy.factory = "
                f"{path!r} builds; set learning.dueling = false"
            )
        module = from_factory(path, observation_space, action_space).float()
        check_output(module, path, zeros(observation_space, 2), head.output_shape(actions))
        return module
    scale, pending = observation_scale(observation_space), pending_width(observation_space)
    width = 64 * policy.width
    with refusing_small(name, shape):
        if name == "resnet" or name == "nature":
            return build_convolutional(name, shape, actions, policy.width, scale, head, pending)
        if name == "transformer":
            return Transformer(shape, actions, width, scale, head, pending)
        if name == "lstm" and len(shape) >= 3:
            features = build_convolutional("nature", shape, 0, 1, scale, FEATURES, pending)
            return Lstm(features, HIDDEN, actions, width, head, pending)
    if name == "lstm":
        encoder = Mlp(shape, 0, width, scale, FEATURES, pending)
        return Lstm(encoder, width, actions, width, head, pending)
    return Mlp(shape, actions, width, scale, head, pending)


def build_convolutional(
    name: Literal["resnet", "nature"], shape: tuple[int, ...], actions: int, width: int,
    scale: float, head: AnyHead, pending: int,
) -> PolicyModule:
    """Build one of the networks for images, see `PolicyModule`; the width is k of the resnet.

    Raises:
        UserError: the observations are no images.
        TooSmall: they are too small.
    """
    if len(shape) == 4:
        # Each colour of each frame is a channel.
        stack, *sides, colours = shape
        shape = (stack * colours, *sides)
    if len(shape) != 3:
        raise UserError(
            f"policy.network = {name!r} needs images, and the observations have the shape "
            f"{shape}; use policy.network = 'mlp'"
        )
    if name == "resnet":
        return ResNet(shape, actions, width, scale, head, pending)
    return NatureCnn(shape, actions, scale, head, pending)


@contextmanager
def refusing_small(name: str, shape: tuple[int, ...]) -> Iterator[None]:
    """Make `TooSmall` a `UserError` that names the configured network and the frames."""
    try:
        yield
    except TooSmall:
        raise UserError(
            f"policy.network = {name!r}: frames of {shape[1]}x{shape[2]} are too small for it; "
            "set a larger env.image_size, or policy.network = 'mlp'"
        ) from None


def tensor_specs(module: nn.Module) -> tuple[TensorSpec, ...]:
    """Names and shapes of the module's floating point state, in the order of the weight buffers."""
    return tuple(TensorSpec(name, tuple(tensor.shape)) for name, tensor in float_state(module))


def flattened(module: nn.Module) -> Floats:
    """A flat copy of the module's floating point state, (parameters,) float32."""
    parts = [tensor.detach().flatten().float().cpu() for _, tensor in float_state(module)]
    flat: Floats = torch.cat(parts).numpy()
    return flat


def load_flat(module: nn.Module, values: Floats) -> None:
    """Copy (parameters,) float32 into the module's tensors, whatever their type and layout."""
    flat, at = torch.from_numpy(values), 0
    state = [tensor for _, tensor in float_state(module)]
    total = sum(tensor.numel() for tensor in state)
    if flat.numel() != total:
        raise ValueError(f"{flat.numel()} values for a network of {total}")
    with torch.no_grad():
        for tensor in state:
            tensor.copy_(flat[at : at + tensor.numel()].view(tensor.shape))
            at += tensor.numel()


def float_state(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The floating point tensors of the module's state, in order."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            yield name, tensor


def chunk_length(
    module: nn.Module, policy: PolicyConfig, observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any], head: OutputHead,
) -> int | None:
    """Number of consecutive ticks that a network's answer is for; None if answers are no chunks."""
    if resolved_name(policy, observation_space) != "factory":
        return None
    shape = head.output_shape(outputs_of(action_space))
    return check_output(module, str(policy.factory), zeros(observation_space, 2), shape)


def check_rebuilt(
    module: nn.Module, policy: PolicyConfig, observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any], head: OutputHead,
) -> None:
    """Check that another process could build a user's network, and take over its weights.

    Raises:
        UserError: with the same weights, its network would answer otherwise.
    """
    other = build(policy, observation_space, action_space, head).eval()
    load_flat(other, flattened(module))
    check_alike(module.eval(), other, str(policy.factory), zeros(observation_space, 2))


def outputs_of(action_space: spaces.Space[Any]) -> int:
    """The number of discrete actions, or of the components of a continuous one."""
    if isinstance(action_space, spaces.Discrete):
        return int(action_space.n)
    assert isinstance(action_space, spaces.Box)
    return action_space.shape[0]


def _line(space: spaces.Space[Any]) -> str:
    """A space on one line, however many values its bounds have."""
    return " ".join(str(space).split())
