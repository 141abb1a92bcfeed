"""How the learner reads shares that a buffer node has sampled."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rtagent.cluster.message import Kind, Message, MessageError
from rtagent.config import MOST_BATCH
from rtagent.learning.replay.batch import Batch
from rtagent.memory.array_buffer import Floats
from rtagent.memory.blueprint import Blueprint
from rtagent.memory.frames import Frames

Columns = dict[str, npt.NDArray[Any]]

COLUMNS = ("actions", "rewards", "discounts", "terminals", "weights", "demonstrated")
FINITE_COLUMNS = ("actions", "rewards", "weights")
FLOAT, FLAG, INDEX = np.dtype("<f4"), np.dtype("?"), np.dtype("<i8")
LARGEST_WEIGHT = "largest_weight"
"""By which the importance weights of a share were divided: see `Replay.largest_weight`."""
LARGEST_COUNT = 2**62
"""Largest number that a node may say that it has counted, of ticks too."""


class ReceivedShares:
    """The transitions of a node that samples by itself.

    Args:
        slots: number of frames that are kept for the node.

    Attributes:
        generated: transitions that the node's world has generated.
        expected: see `Welcome`; always 0, for this node sends no ticks.
    """

    expected = 0

    def __init__(self, slots: int, blueprint: Blueprint) -> None:
        self._frames: Frames = np.zeros((slots, *blueprint.frame_shape), blueprint.frame_dtype)
        self._stack = blueprint.frame_stack
        self._discrete = blueprint.action_shape == ()
        self._actions = blueprint.action_space.n if self._discrete else 0
        action = Kind(INDEX if self._discrete else FLOAT, blueprint.action_shape)
        flag, number = Kind(FLAG, ()), Kind(FLOAT, ())
        self._kinds = dict(zip(COLUMNS, (action, number, number, flag, number, flag), strict=True))
        self.generated = 0

    def receive(self, message: Message) -> Callable[[], Columns]:
        """Store a share's frames; a function that gives the share's columns.

        Raises:
            MessageError: something is missing, or is not what this network learns from; or there is
                no memory for the share.
        """
        arrays = message.arrays
        try:
            slots = arrays["slots"]
            # Before the memory for so many stacks is taken.
            if slots.shape[1:] != (2 * self._stack,) or not 0 < len(slots) <= MOST_BATCH:
                raise ValueError(f"slots {slots.shape}")
            self._frames[arrays["new_slots"]] = arrays["new_frames"]
            # Copied now: a later message may put other frames into these slots.
            stacks = self._frames.take(slots, axis=0)
            columns = {name: arrays[name] for name in COLUMNS}
            largest = float(message.values[LARGEST_WEIGHT])
            self._check(columns, len(slots), largest)
            discounts = np.where(columns["terminals"], 0.0, columns["discounts"])
            # All of its frames: one that lies here may have come with a share that was refused.
            check_finite(stacks, discounts, *(columns[name] for name in FINITE_COLUMNS))
        except (KeyError, IndexError, TypeError, ValueError, OverflowError, MemoryError) as error:
            raise MessageError(f"no share of a batch: {error!r}") from error
        columns["observations"] = stacks[:, : self._stack]
        columns["next_observations"] = stacks[:, self._stack :]
        columns[LARGEST_WEIGHT] = np.array([largest])
        return lambda: columns

    def _check(self, columns: Columns, count: int, largest: float) -> None:
        """Raise a ValueError for what would end the learner, or spoil a batch of several nodes."""
        kinds = {
            name: Kind(dtype, (count, *shape)) for name, (dtype, shape) in self._kinds.items()
        }
        found = {name: Kind(each.dtype, each.shape) for name, each in columns.items()}
        if found != kinds:
            raise ValueError(f"columns {found} of {count} transitions")
        actions = columns["actions"]
        if self._discrete and not 0 <= actions.min() <= actions.max() < self._actions:
            raise ValueError("an action that the world does not have")
        if not 0.0 < largest < math.inf:
            raise ValueError(f"{LARGEST_WEIGHT} = {largest}")

    def learned(self, errors: Floats) -> tuple[dict[str, Any], Columns]:
        """Values and arrays for the answer to a share: its errors, which become priorities."""
        return {}, {"errors": errors}


def check_finite(*arrays: npt.NDArray[Any]) -> None:
    """Raise a ValueError for a number that is not finite: the whole batch would be left out."""
    if not all(np.isfinite(each).all() for each in arrays if each.dtype.kind == "f"):
        raise ValueError("a number that is not finite")


def batch_of(shares: list[Columns]) -> Batch:
    """A batch of the transitions of several shares; its largest importance weight is 1.

    Each node's weights correct how it samples, not how the batch is divided among the nodes.
    """
    columns = {
        name: shares[0][name] if len(shares) == 1
        else np.concatenate([each[name] for each in shares])
        for name in shares[0] if name != LARGEST_WEIGHT
    }
    if len(shares) > 1:
        largest = np.concatenate([each[LARGEST_WEIGHT] for each in shares])
        counts = [len(each["weights"]) for each in shares]
        columns["weights"] *= np.repeat(largest / largest.max(), counts).astype(np.float32)
    # Read-only memory would make torch complain; these few values are copied.
    tensors: dict[str, Any] = {
        name: torch.from_numpy(each if each.flags.writeable else each.copy())
        for name, each in columns.items()
    }
    return Batch(**tensors)
