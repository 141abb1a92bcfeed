"""The default behaviour: what the environment executes on a tick for which no action is ready.

The Realtime RL paper calls it beta. `env.default_action` chooses it. It runs inside the environment
process, within the tick, so a callable must answer in a small part of a tick.
"""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rtagent.config import EnvConfig
from rtagent.env.actions import Action
from rtagent.env.adapter import Adapter
from rtagent.errors import UserError, place_of, remedy_of, typed_line

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class DefaultBehaviour:
    """Chooses the action of a tick for which the agent has none.

    Attributes:
        noop: the environment's noop, as `Adapter.step` takes it.
    """

    def __init__(self, config: EnvConfig, adapter: Adapter) -> None:
        """Read `env.default_action`.

        Args:
            config: its `default_action` is `noop`, `repeat`, an action in the environment's own
                numbering, of a Box a flat list, or `package.module:callable`. The callable gets a
                copy of the newest frame and returns an action, of a Box also in its own shape; its
                values are clipped.
            adapter: the environment, for its noop and to check actions.

        Raises:
            UserError: one line with the value and what is wrong with it.
        """
        self._adapter = adapter
        self._setting = value = config.default_action
        self._function: Callable[[NDArray[Any]], Any] | None = None
        self.noop = self._constant = adapter.noop_action
        if not isinstance(value, str):
            try:
                self._constant = adapter.actions.accept(value, strict=True)
            except ValueError as error:
                raise UserError(f"env.default_action = {value}: {error}") from None
        elif value not in ("noop", "repeat"):
            self._function = _load(value)

    def try_out(self) -> None:
        """Ask the user's function once, about a frame of zeros, as a camera in the dark has them.

        Raises:
            UserError: it raises, or its answer is no action of the environment.
        """
        frame = np.zeros(self._adapter.frame_shape, self._adapter.frame_dtype)
        try:
            self.action(frame, None)
        except Exception as error:
            raise UserError(
                f"env.default_action fails on a frame of zeros: {typed_line(error)}"
                f"{place_of(error)}"
            ) from error

    def action(self, frame: NDArray[Any], last_action: Action | None) -> Action:
        """The action for this tick, as `Adapter.step` takes it.

        Args:
            frame: the newest frame, of the adapter's shape and type.
            last_action: the action of the previous tick. If None, this is the first tick.

        Raises:
            ValueError: the user's callable returned an action that the environment does not have.
        """
        if self._setting == "repeat":
            return self.noop if last_action is None else last_action
        if self._function is None:
            return self._constant
        answer = self._function(np.array(frame))
        try:
            return self._adapter.actions.accept(answer)
        except ValueError as error:
            raise ValueError(f"env.default_action = {self._setting} answered: {error}") from None


def _load(reference: str) -> Callable[[NDArray[Any]], Any]:
    problem = f"env.default_action = {reference}"
    if not _REFERENCE.fullmatch(reference):
        raise UserError(f"{problem}: expected noop, repeat, an action or package.module:callable")
    module, _, path = reference.partition(":")
    try:
        found: Any = pkgutil.resolve_name(reference)
    except Exception as error:
        # A module that raises this itself, while it is imported, is not kept.
        if isinstance(error, AttributeError) and module in sys.modules:
            raise UserError(f"{problem}: {module} has no {path}") from None
        told = typed_line(error) + place_of(error) + remedy_of(error)
        raise UserError(f"{problem}: cannot import {module}: {told}") from error
    if not callable(found):
        raise UserError(f"{problem}: {path} is not callable")
    return cast("Callable[[NDArray[Any]], Any]", found)
