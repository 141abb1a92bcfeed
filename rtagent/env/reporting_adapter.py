"""For commands that step an environment themselves: what it, or the user's function for the default
behaviour, raises is one line for the user.

The daemon's environment process needs the exception: its traceback becomes an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rtagent.config import EnvConfig
from rtagent.env.actions import Action
from rtagent.env.adapter import Adapter, Step
from rtagent.env.default_action import DefaultBehaviour
from rtagent.errors import UserError
from rtagent.logs.log_format import error_with_calls

CALLS = 2
"""Innermost calls that the line has; the last ones are of this program."""


class ReportingAdapter(Adapter):
    """As `Adapter`, but whatever an episode raises is a `UserError` that names the environment."""

    def __init__(self, env: gym.Env[Any, Any], config: EnvConfig) -> None:
        super().__init__(env, config)
        self._id = config.id

    def reset(self, seed: int | None = None) -> NDArray[Any]:
        """As `Adapter.reset`."""
        with self._reporting("reset"):
            return super().reset(seed)

    def step(self, action: Any) -> Step:
        """As `Adapter.step`."""
        with self._reporting("step"):
            return super().step(action)

    def picture(self) -> NDArray[np.uint8] | None:
        """As `Adapter.picture`."""
        with self._reporting("render"):
            return super().picture()

    @contextmanager
    def _reporting(self, call: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise UserError(
                f"env.id = {self._id}: {call}() raised {error_with_calls(error, CALLS)}"
            ) from error


class ReportingDefault(DefaultBehaviour):
    """As `DefaultBehaviour`, but whatever the user's function raises is a `UserError`."""

    def action(self, frame: NDArray[Any], last_action: Action | None) -> Action:
        """As `DefaultBehaviour.action`."""
        try:
            return super().action(frame, last_action)
        except Exception as error:
            raise UserError(
                f"env.default_action fails: {error_with_calls(error, CALLS)}"
            ) from error
