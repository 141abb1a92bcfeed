"""A user's network: imported by its path, built, and tried once."""

from __future__ import annotations

import importlib
from typing import Any

import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.errors import UserError


def from_factory(
    path: str, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> nn.Module:
    """Import the factory, `package.module:callable`, and call it with both spaces.

    Raises:
        UserError: it is not there, fails, or returns something else than a module.
    """
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


def check_output(
    module: nn.Module, path: str, zeros: npt.NDArray[Any], shape: tuple[int, ...]
) -> None:
    """Run the module once, and see whether its answer has the shape that is needed.

    Args:
        module: from the factory.
        path: of the factory.
        zeros: (B, *observation), a batch to run it on.
        shape: of the answer to one observation.

    Raises:
        UserError: it fails, or answers something else.
    """
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
