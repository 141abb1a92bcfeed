"""A batch of zeros: to run every shape once before it counts, and to measure its memory."""

from __future__ import annotations

import torch

from rtagent.learning.replay.batch import Batch
from rtagent.memory.blueprint import Blueprint


def empty_batch(blueprint: Blueprint, count: int) -> Batch:
    """Transitions of zeros.

    Args:
        blueprint: shapes of the run.
        count: B.
    """
    dtype = torch.uint8 if blueprint.frame_dtype == "uint8" else torch.float32
    zeros = torch.zeros((count, blueprint.frame_stack, *blueprint.frame_shape), dtype=dtype)
    numbers = torch.zeros(count)
    actions = torch.zeros((count, *blueprint.action_shape))
    return Batch(
        observations=zeros,
        actions=actions if blueprint.action_shape else actions.long(),
        rewards=numbers,
        discounts=numbers,
        next_observations=zeros,
        terminals=numbers.bool(),
        weights=torch.ones(count),
        demonstrated=numbers.bool(),
    )
