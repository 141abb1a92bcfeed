"""The shapes of one run: what must be known before the shared memory can be laid out.

The probe process fills it in (it may import torch and build the environment; the supervisor may
not) and the supervisor hands it, pickled, to every worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TensorSpec:
    """One named tensor of the network's state, float32 in the weight buffers."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of values."""
        return prod(self.shape)


@dataclass(frozen=True)
class Blueprint:
    """Shapes and rates of one run.

    Attributes:
        rate_hz: ticks per second.
        frame_shape: shape of one frame, without the stack.
        frame_dtype: numpy name of its element type: uint8 or float32.
        frame_stack: frames per observation.
        observation_space: Gymnasium space of a stacked observation: (stack, *frame_shape).
        action_space: Gymnasium space of an action.
        action_shape: () for Discrete, (n,) for Box.
        action_dtype: int32 for Discrete, float32 for Box.
        action_meanings: a word for each discrete action; empty if unknown.
        network: name and width or the factory, for display and for checkpoints.
        tensors: the acting network's state in buffer order.
        screen: whether a frame can be shown as a picture.
        critics: tensors that learners train beside the acting network and keep behind it in their
            arrays; empty if there are none.
        reward_range: least and largest reward of a tick, 0 among them. If None, not declared.
        sight: what the agent sees of the environment, in words.
        cartridge: what is played where the environment's id does not say it; else empty.
        chunk: actions of consecutive ticks that the network answers with. If None, its answers are
            no chunks.
        pending_actions: how many of them a policy is given beside an observation, see
            `memory/pending.py`.
        precision: of the network that acts, where torch runs it: float32 or bfloat16.
        state_size: numbers that a recurrent network carries along, see `memory/policy_states.py`;
            0: it carries none.
        actions: `env.actions.Actions`, which knows the environment's own numbering and shape of
            actions. If None, not known.
    """

    rate_hz: float
    frame_shape: tuple[int, ...]
    frame_dtype: str
    frame_stack: int
    observation_space: Any
    action_space: Any
    action_shape: tuple[int, ...]
    action_dtype: str
    action_meanings: tuple[str, ...]
    network: str
    tensors: tuple[TensorSpec, ...]
    screen: bool
    critics: tuple[TensorSpec, ...] = ()
    reward_range: tuple[float, float] | None = None
    sight: str = ""
    cartridge: str = ""
    chunk: int | None = None
    pending_actions: int = 0
    precision: Literal["float32", "bfloat16"] = "float32"
    state_size: int = 0
    actions: Any = field(default=None, compare=False)

    @property
    def frame_bytes(self) -> int:
        """Bytes of one frame's pixels or values."""
        return prod(self.frame_shape) * np.dtype(self.frame_dtype).itemsize

    def no_observation(self) -> npt.NDArray[Any]:
        """An observation of zeros."""
        return np.zeros(self.observation_space.shape, self.frame_dtype)

    @property
    def parameters(self) -> int:
        """Number of float32 values in the acting network's state."""
        return sum(spec.elements for spec in self.tensors)

    @property
    def learned_tensors(self) -> tuple[TensorSpec, ...]:
        """What learners train, in buffer order: the acting network, then its critics."""
        return self.tensors + self.critics

    @property
    def learned_parameters(self) -> int:
        """Number of float32 values in what learners train."""
        return sum(spec.elements for spec in self.learned_tensors)

    @property
    def tick_seconds(self) -> float:
        """tau_M in seconds."""
        return 1.0 / self.rate_hz
