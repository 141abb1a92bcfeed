"""A user's network: its factory is imported by its path and called, and the network tried once."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rtagent.errors import UserError, place_of, remedy_of


def from_factory(
    path: str, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> nn.Module:
    """Import the factory, `package.module:callable`, and call it with both spaces.

    Raises:
        UserError: it does not exist, fails, or returns something other than a module.
    """
    factory = imported(path)
    try:
        module = factory(observation_space, action_space)
    except Exception as error:
        told = line_of(error) + place_of(error)
        raise UserError(f"policy.factory = {path!r} failed: {told}") from error
    if not isinstance(module, nn.Module):
        raise UserError(
            f"policy.factory = {path!r} returned {type(module).__name__}, not a torch.nn.Module"
        )
    if any(isinstance(each, torch.jit.ScriptModule) for each in module.modules()):
        raise UserError(
            f"policy.factory = {path!r} returned TorchScript, which cannot be copied to learn; "
            "return the module that it was made of, or, if it shall only act, a function of it for "
            "policy.pretrained"
        )
    for name, each in module.state_dict().items():
        if not isinstance(each, Tensor):
            raise UserError(
                f"policy.factory = {path!r}: {name} is a {type(each).__name__}, and a state of "
                "tensors alone is kept; use register_buffer in place of get_extra_state"
            )
        if each.is_complex():
            raise UserError(
                f"policy.factory = {path!r}: {name} is complex, and weights are kept as real "
                "numbers; let the module hold both parts, and join them in forward: "
                "torch.view_as_complex"
            )
    return module


def imported(path: str) -> Callable[..., Any]:
    """The factory at `package.module:callable`.

    Raises:
        UserError: it does not exist, or cannot be called.
    """
    try:
        factory: Any = pkgutil.resolve_name(path)
    except Exception as error:
        raise UserError(
            f"policy.factory = {path!r} cannot be imported: {line_of(error)}{place_of(error)}"
            f"{remedy_of(error)}"
        ) from error
    if not callable(factory):
        raise UserError(f"policy.factory = {path!r} is not callable: {type(factory).__name__}")
    found: Callable[..., Any] = factory
    return found


def check_output(
    module: Any, path: str, zeros: tuple[npt.NDArray[Any], ...], shape: tuple[int, ...]
) -> int | None:
    """Run the module once, and check the shape of its answer.

    Args:
        module: from the factory.
        path: of the factory.
        zeros: a batch to run it on, (B, *observation), and pending actions, see `inputs.py`.
        shape: of the answer to one observation, for one tick.

    Returns:
        H, the number of consecutive ticks that an answer is for; None if answers are no chunks.

    Raises:
        UserError: it fails, or answers something other than (B, *shape) or (B, H, *shape).
    """
    modes = [(each, each.training) for each in module.modules()]
    try:
        with torch.no_grad():
            inputs = [torch.from_numpy(each) for each in zeros]
            size = _begin(module, inputs)
            answer = module.eval()(*inputs)
            if len(inputs) > 1 and encodes(module):
                answer = module.decide(module.encode(inputs[0]), *inputs[1:])
    except Exception as error:
        beside = f" and pending actions {zeros[1].shape}" if len(zeros) > 1 else ""
        raise UserError(
            f"policy.factory = {path!r}: the module fails on {zeros[0].dtype} observations of the "
            f"shape {zeros[0].shape}{beside}: {line_of(error)}{place_of(error)}"
        ) from error
    for each, training in modes:
        each.training = training
    if any(each._version for each in inputs):
        raise UserError(
            f"policy.factory = {path!r}: the module changes its inputs in place, and they are used "
            "again; let it compute new tensors: x = x / 2, not x /= 2"
        )
    count = len(zeros[0])
    if size:
        answer = _without_states(answer, path, (count, size))
    wanted = (count, *shape)
    given = _form(answer)
    if isinstance(given, tuple) and given[:1] + given[2:] == wanted:
        return given[1]
    if given != wanted:
        raise UserError(
            f"policy.factory = {path!r}: the module maps {count} observations to {given}, "
            f"not to {wanted}{' logits, as c51 needs them' if len(shape) > 1 else ''}"
        )
    return None


def check_alike(
    first: nn.Module, second: nn.Module, path: str, zeros: tuple[npt.NDArray[Any], ...]
) -> None:
    """Check that two modules from the factory with the same floating point state answer alike.

    Each process builds the network anew, and takes over this state alone.

    Args:
        first, second: the modules, in evaluation mode.
        path, zeros: as in `check_output`; the zeros are overwritten.

    Raises:
        UserError: they do not.
    """
    answer, other, again = (_seeded(each, zeros) for each in (first, second, first))
    # One that draws numbers elsewhere than from torch answers anew each time.
    alike, repeated = (answer.allclose(each, equal_nan=True) for each in (other, again))
    if repeated and not alike:
        raise UserError(
            f"policy.factory = {path!r}: with the same weights, two modules that it built answer "
            "differently, and each process builds its own; keep random numbers by register_buffer "
            "as persistent floats, or draw them with a seed of your own"
        )


def _seeded(module: nn.Module, zeros: tuple[npt.NDArray[Any], ...]) -> Tensor:
    """The answer to a batch of random bits, with the same random numbers each time."""
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        # Zeros would hide what they are multiplied by, and any equal numbers their order.
        inputs = [torch.from_numpy(each).random_(0, 2) for each in zeros]
        recurrent = _begin(module, inputs)
        answer = module(*inputs)
    return (answer[0] if recurrent else answer).float()  # type: ignore[no-any-return]


def _begin(module: Any, inputs: list[Tensor]) -> int:
    """Give a recurrent module states to begin with; returns their size."""
    size = int(getattr(module, "state_size", 0))
    if size:
        inputs.insert(1, torch.zeros(len(inputs[0]), size))
    return size


def _without_states(answer: Any, path: str, wanted: tuple[int, int]) -> Any:
    """The outputs of a recurrent module's answer, if it also has the states that it leaves.

    Raises:
        UserError: it has none, or they are not of the wanted shape.
    """
    # A tensor can be taken apart, too: into the rows of its batch.
    pair = isinstance(answer, tuple | list) and len(answer) == 2
    if pair and _form(answer[1]) == wanted:
        return answer[0]
    found = f"states {_form(answer[1])}" if pair else _form(answer)
    raise UserError(
        f"policy.factory = {path!r}: forward of a module with state_size = {wanted[1]} must return "
        f"a pair, the outputs and the new states, {wanted}, and it returned {found}"
    )


def _form(answer: Any) -> tuple[int, ...] | str:
    """The shape of a tensor of real numbers, the type of anything else."""
    if not isinstance(answer, Tensor):
        return type(answer).__name__
    return str(answer.dtype) if answer.is_complex() else tuple(answer.shape)


def encodes(module: Any) -> bool:
    """Whether a module has `encode` and `decide`, see `PolicyModule`."""
    return callable(getattr(module, "encode", None)) and callable(getattr(module, "decide", None))


def line_of(error: Exception) -> str:
    """An error in one line, as a traceback ends."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1]}" if text else type(error).__name__
