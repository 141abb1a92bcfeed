"""Builds the environment that a configuration names; what fails there is told in one line."""

from __future__ import annotations

import difflib
import importlib
import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cv2
import gymnasium as gym

from rtagent.config import EnvConfig
from rtagent.env import atari
from rtagent.env.registry import register
from rtagent.errors import UserError, first_line, place_of, remedy_of, typed_line

MOST_LISTED = 10
"""Ids listed in an error message."""

_log = logging.getLogger(__name__)


def make(config: EnvConfig) -> gym.Env[Any, Any]:
    """The environment itself, without the adapter.

    Raises:
        UserError: one line that says why it cannot be built.
    """
    register()
    atari.register(config.id)
    # OpenCV's threads would compete with the inference processes, for pictures of 84 x 84.
    cv2.setNumThreads(1)
    try:
        with _keeping_handlers():
            named = class_or_function(config.id)
            if named is None:
                return gym.make(config.id, disable_env_checker=True, **config.kwargs)
            made: object = named(**config.kwargs)
        if not isinstance(made, gym.Env):
            kind = type(made).__name__
            raise UserError(f"env.id = {config.id}: made a {kind}, not a gymnasium.Env")
        return made
    except UserError:
        raise
    except (gym.error.NameNotFound, gym.error.NamespaceNotFound, gym.error.VersionNotFound):
        raise UserError(f"env.id = {config.id}: no such environment{_hint(config.id)}") from None
    except Exception as error:
        raise _unusable(config.id, error) from error


@contextmanager
def _keeping_handlers() -> Iterator[None]:
    """Around code that may handle the signals that end a program, as a robot's library does: then
    nothing would end this one. Afterwards they are handled as before."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler not in (None, signal.getsignal(number)):
                signal.signal(number, handler)


@contextmanager
def closed_if_unusable(env: gym.Env[Any, Any], name: str) -> Iterator[None]:
    """Around what prepares an environment, of `env.id = name`, for use: closes it if that fails.

    Raises:
        UserError: one line that says why it cannot be used.
    """
    try:
        yield
    except BaseException as error:
        # It may have started a simulator.
        close(env)
        if isinstance(error, UserError):
            named = f"env.id = {name}: "
            raise UserError(named + str(error).removeprefix(named)) from None
        if isinstance(error, Exception):
            raise _unusable(name, error) from error
        raise


def close(env: gym.Env[Any, Any]) -> None:
    """Close an environment; an exception on the way is only logged."""
    try:
        env.close()
    except Exception as error:
        _log.warning("the environment cannot be closed: %s", typed_line(error))


def _unusable(name: str, error: Exception) -> UserError:
    """What an environment's own code has raised, in one line."""
    told = isinstance(error, gym.error.Error | ImportError)
    line = (first_line(error) if told else typed_line(error)).rstrip(".")
    place = "" if told else place_of(error)
    return UserError(f"env.id = {name}: {line}{place}{remedy_of(error)}")


def class_or_function(name: str) -> Callable[..., gym.Env[Any, Any]] | None:
    """The class or function `package.module:name`; None if that is a registered id, or neither."""
    module, _, attribute = name.partition(":")
    if not attribute:
        return None
    found: Any = importlib.import_module(module)
    if attribute in gym.registry:
        return None
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found if callable(found) else None


def _hint(name: str) -> str:
    """A hint for an unknown id: similar ids, else how to name an environment of a package."""
    module, _, wanted = name.rpartition(":")
    if module and (registered := _registered_by(module)):
        return f"; {module} registers {', '.join(registered)}"
    by_lower = {each.lower(): each for each in gym.registry}
    near = difflib.get_close_matches(wanted.lower(), by_lower, n=3, cutoff=0.7)
    if near:
        return f"; did you mean {' or '.join(by_lower[each] for each in near)}?"
    return "; an environment of an installed package is named package.module:EnvId-v0"


def _registered_by(module: str) -> list[str]:
    """The ids of environments in a module or package, `MOST_LISTED` at most."""
    found = []
    for name, spec in gym.registry.items():
        entry = spec.entry_point
        place = entry.partition(":")[0] if isinstance(entry, str) else entry and entry.__module__
        if place is not None and f"{place}.".startswith(f"{module}."):
            found.append(name)
    return sorted(found)[:MOST_LISTED]
